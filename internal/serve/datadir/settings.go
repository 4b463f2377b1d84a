package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/store"
)

// Hosts are the names and addresses that a certificate of the server is for.
func (s *Settings) Hosts() []string {
	hosts := []string{"localhost", "127.0.0.1"}
	for _, text := range []string{s.API, s.Peer} {
		u, err := url.Parse(text)
		if err == nil && !slices.Contains(hosts, u.Hostname()) {
			hosts = append([]string{u.Hostname()}, hosts...)
		}
	}
	return hosts
}

// Same demands that settings which stand already are those that are asked for.
func (s *Settings) CheckSame(want Settings, dataDir string) error {
	if s.API == want.API && s.Peer == want.Peer && s.Name == want.Name {
		return nil
	}
	return &hinted.Error{
		Err: fmt.Errorf("%s is a server already: %s, reached at %s and %s", dataDir, s.Name, s.API, s.Peer),
		Hint: "Its certificate and its place in the store are bound to these. To change them, remove the server " +
			"and join it anew from an empty data directory.",
	}
}

// Files of a server's data directory.
const (
	SettingsFile = "server.json"
	PKIDir       = "pki"
	StoreDir     = "etcd"
	IDFile       = "server-id"
)

// Settings is what a restart of a server that others reach needs to know: the file server.json of its data
// directory. `berth server init` and `berth server join` write it; the server notes in it where its store is. Nobody
// else changes it.
type Settings struct {
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
	Store    *ExternalStore `json:"store,omitempty"`
	// StoreMade says that the server's own store was opened once. If it is missing then, the server does not begin
	// another one, which would be empty, and halt the control plane that the others go on with.
	StoreMade bool `json:"store_made,omitempty"`
}

// ReadSettings returns the settings of a data directory, or nil if there are none.
func ReadSettings(dataDir string) (*Settings, error) {
	path := filepath.Join(dataDir, SettingsFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // no settings are no fault
	}
	if err != nil {
		return nil, fmt.Errorf("read the server's settings: %w", err)
	}
	var s Settings
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

// Write replaces the settings of a data directory, all or nothing.
func (s *Settings) Write(dataDir string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := ReplaceFile(filepath.Join(dataDir, SettingsFile), append(b, '\n')); err != nil {
		return fmt.Errorf("write the server's settings: %w", err)
	}
	return nil
}

// ServerName is the name of a server where none is given: the machine's.
func ServerName() string { return MachineName() }

// ValidServerName reports whether a name will do for a server: certificates and the store carry it.
func ValidServerName(name string) bool { return cluster.ValidNodeName(name) }
