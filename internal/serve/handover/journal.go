// Package handover moves a node between its own server and the servers of a fleet (P7.2).
//
// The journal is a file in the data directory of the node. It says who drives the node, and how far a move is. The
// process that runs the node reads it at each start, so a move continues after any crash:
//
//	own → prepared → releasing → servers     the way to the fleet: berth node adopt
//	servers → returning → own                the way back: berth node release
//
// The phase releasing is completed by the process itself. All other steps wait for the command, which may be repeated.
// Number grows with each change of the owner, so that the agent's own state is prepared once for each owner.
package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/serve/datadir"
)

// File is the name of the journal in the data directory.
const File = "owner.json"

// Folders of the data directory of a standalone node.
const (
	serverDir = "server"
	agentDir  = "agent"
	agentDB   = "agent.db"
)

// Journal is the content of the file.
type Journal struct {
	Number uint64            `json:"number"`
	Phase  api.HandoverPhase `json:"phase"`
	Since  time.Time         `json:"since,omitzero"`
	// Servers drive the node, or are to adopt it.
	Servers []string `json:"servers,omitempty"`
	// Revisions, in the phase releasing, are those of the objects to release.
	Revisions map[string]uint64 `json:"revisions,omitempty"`
	// Objects, in the phase returning, are those that the node's own server adopts.
	Objects *api.NodeObjects `json:"objects,omitempty"`
}

// ReadJournal returns the journal of a data directory. Without a file the node drives itself.
func ReadJournal(dataDir string) (j Journal, err error) {
	path := filepath.Join(dataDir, File)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Journal{Phase: api.HandoverOwn}, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &j)
	}
	if err == nil && !slices.Contains(j.Phase.Values(), j.Phase) {
		err = fmt.Errorf("the phase %q is unknown", j.Phase)
	}
	if err != nil {
		return j, fmt.Errorf("read who drives the node: %s: %w", path, err)
	}
	return j, nil
}

// write replaces the journal of a data directory atomically.
func (j *Journal) write(dataDir string) error {
	b, err := json.MarshalIndent(j, "", "  ")
	if err == nil {
		err = datadir.ReplaceFile(filepath.Join(dataDir, File), append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write who drives the node: %w", err)
	}
	return nil
}

// DrivesItself reports whether the node's own server drives it.
func (j *Journal) DrivesItself() bool {
	return j.Phase == api.HandoverOwn || j.Phase == api.HandoverPrepared || j.Phase == api.HandoverReleasing
}
