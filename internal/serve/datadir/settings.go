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

// Hosts returns the names and addresses for the server's certificate.
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

// CheckSame returns an error unless the existing settings equal the wanted ones.
func (s *Settings) CheckSame(want Settings, dataDir string) error {
	if s.API == want.API && s.Peer == want.Peer && s.Name == want.Name {
		return nil
	}
	return &hinted.Error{
		Err: fmt.Errorf("%s belongs to a server already: %s, at %s and %s", dataDir, s.Name, s.API, s.Peer),
		Hint: "The certificate and the membership of the store depend on these values. To change " +
			"them, remove the server and join it again from an empty data directory.",
	}
}

// Files of a server's data directory.
const (
	SettingsFile = "server.json"
	PKIDir       = "pki"
	StoreDir     = "etcd"
	IDFile       = "server-id"
)

// Settings is the file server.json, the configuration of a server that other machines reach. `berth server init` and
// `berth server join` write it. The server itself records the location of its store. No other program changes it.
type Settings struct {
	// Name is a display name.
	Name string `json:"name"`
	// API and Peer are the https addresses of the API and of the store's member.
	API  string `json:"api"`
	Peer string `json:"peer"`
	// Join lists the members that the store's new member joins, empty for the first server. It has no effect once the
	// member has data.
	Join []store.Member `json:"join,omitempty"`
	// External says that the store runs elsewhere, so the server never creates one. Store is its last location, nil
	// until the first start unless the join named it.
	External bool           `json:"external,omitempty"`
	Store    *ExternalStore `json:"store,omitempty"`
	// StoreMade says that the server's own store was opened once. If the store is missing then, the server refuses to
	// start with an empty one, which could halt the control plane.
	StoreMade bool `json:"store_made,omitempty"`
}

// ReadSettings returns the settings of a data directory, or nil if there are none.
func ReadSettings(dataDir string) (*Settings, error) {
	path := filepath.Join(dataDir, SettingsFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // a missing file is no error
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
		return nil, fmt.Errorf("read the server's settings: %s: %s; `berth server init` or `berth server join` "+
			"writes the file", path, wrong[0])
	}
	return &s, nil
}

// Write replaces the settings of a data directory atomically.
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

// ServerName returns the default name of a server.
func ServerName() string { return MachineName() }

// ValidServerName reports whether certificates and the store accept the name.
func ValidServerName(name string) bool { return cluster.ValidNodeName(name) }
