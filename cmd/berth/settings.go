package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// Files of a server's data directory.
const (
	settingsFile = "server.json"
	pkiDir       = "pki"
	storeDir     = "etcd"
	idFile       = "server-id"
)

// serverSettings is what a restart of a server that others reach needs to know: the file server.json of its data
// directory. `berth server init` and `berth server join` write it; the server notes in it where its store is. Nobody
// else changes it.
type serverSettings struct {
	// Name is for people.
	Name string `json:"name"`
	// API and Peer are the https addresses that agents and people, and the other members of the store, reach it at.
	API  string `json:"api"`
	Peer string `json:"peer"`
	// Join holds the members that the store's new member joins; empty for the first server. Once the member has
	// data it is of no matter.
	Join []store.Member `json:"join,omitempty"`
	// External says that the store runs elsewhere: the server never begins one of its own. Store is where it was
	// reached last; nil until the first start, unless the join named it.
	External bool           `json:"external,omitempty"`
	Store    *externalStore `json:"store,omitempty"`
	// StoreMade says that the server's own store was opened once. If it is missing then, the server does not begin
	// another one, which would be empty, and halt the control plane that the others go on with.
	StoreMade bool `json:"store_made,omitempty"`
}

// readSettings returns the settings of a data directory, or nil if there are none.
func readSettings(dataDir string) (*serverSettings, error) {
	path := filepath.Join(dataDir, settingsFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // no settings are no fault
	}
	if err != nil {
		return nil, fmt.Errorf("read the server's settings: %w", err)
	}
	var s serverSettings
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("read the server's settings: %s: %w", path, err)
	}
	var wrong []string
	if s.Name == "" {
		wrong = append(wrong, "it has no name")
	}
	for what, text := range map[string]string{"api": s.API, "peer": s.Peer} {
		if u, err := url.Parse(text); err != nil || u.Scheme != "https" || u.Host == "" {
			wrong = append(wrong, fmt.Sprintf("%s %q is not https://host:port", what, text))
		}
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("read the server's settings: %s: %s; `berth server init` or `berth server "+
			"join` write it", path, wrong[0])
	}
	return &s, nil
}

// write replaces the settings of a data directory, all or nothing.
func (s *serverSettings) write(dataDir string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := replaceFile(filepath.Join(dataDir, settingsFile), append(b, '\n')); err != nil {
		return fmt.Errorf("write the server's settings: %w", err)
	}
	return nil
}

// replaceFile writes a file that only this user reads, all or nothing, and survives a loss of power.
func replaceFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".berth-")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes what was renamed in a folder survive a loss of power.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// serverName is the name of a server where none is given: the machine's.
func serverName() string { return machineName() }

// validServerName reports whether a name will do for a server: certificates and the store carry it.
func validServerName(name string) bool { return cluster.ValidNodeName(name) }
