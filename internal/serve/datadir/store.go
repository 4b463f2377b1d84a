package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/berthd/berth/internal/hinted"
)

// ExternalStore is where a store that runs elsewhere is reached, as server.json or store.json remembers it: so that a
// start without --store is no start with another, empty store.
type ExternalStore struct {
	// Endpoints are URLs of etcd's client listeners.
	Endpoints []string `json:"endpoints"`
	// CA, Cert and Key are paths of files, absolute; empty for plain http.
	CA   string `json:"ca,omitempty"`
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key,omitempty"`
	// User logs in, with what PasswordFile, an absolute path, holds; without one, with the environment's.
	User         string `json:"user,omitempty"`
	PasswordFile string `json:"password_file,omitempty"`
	// Prefix is what all keys there begin with.
	Prefix string `json:"prefix,omitempty"`
}

// Flags returns the flags of `berth server` that name the store, with a blank before each.
func (m *ExternalStore) Flags() string {
	if m == nil {
		return " --store etcd://HOST:2379[,HOST:2379]"
	}
	words := []string{"", "--store", m.URL()}
	for _, file := range [][]string{
		{"--store-ca", m.CA},
		{"--store-cert", m.Cert},
		{"--store-key", m.Key},
		{"--store-user", m.User},
		{"--store-password-file", m.PasswordFile},
		{"--store-prefix", m.Prefix},
	} {
		if file[1] != "" {
			words = append(words, file...)
		}
	}
	return strings.Join(words, " ")
}

// URL is the value of --store.
func (m *ExternalStore) URL() string {
	var hosts []string
	for _, e := range m.Endpoints {
		_, host, _ := strings.Cut(e, "://")
		hosts = append(hosts, host)
	}
	return "etcd://" + strings.Join(hosts, ",")
}

// StoreFile is the file of a data directory that remembers a store that runs elsewhere, of a server without settings:
// `berth dev`, or one that only serves its own machine.
const StoreFile = "store.json"

// ReadStore returns what the storeFile of a data directory remembers, nil where there is none.
func ReadExternalStore(dataDir string) (*ExternalStore, error) {
	path := filepath.Join(dataDir, StoreFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // the store is the server's own
	}
	if err != nil {
		return nil, fmt.Errorf("read where the store runs: %w", err)
	}
	m := new(ExternalStore)
	if err = json.Unmarshal(b, m); err == nil && len(m.Endpoints) == 0 {
		err = errors.New("it names no endpoints")
	}
	if err != nil {
		return nil, &hinted.Error{
			Err:  fmt.Errorf("read where the store runs: %s: %w", path, err),
			Hint: "Name it with --store and move that file away: it is written anew.",
		}
	}
	return m, nil
}

// Write makes the storeFile of a data directory.
func (m *ExternalStore) Write(dataDir string) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := ReplaceFile(filepath.Join(dataDir, StoreFile), append(b, '\n')); err != nil {
		return fmt.Errorf("write where the store runs: %w", err)
	}
	return nil
}

// DataDirFlag is the flag that names a data directory, with a blank before it; empty for the usual one.
func Flag(dataDir string) string {
	if dataDir == DefaultDataDir() {
		return ""
	}
	return " --data-dir " + dataDir
}
