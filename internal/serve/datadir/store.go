package datadir

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/berthd/berth/internal/hinted"
)

// ExternalStore is the location of a store that runs elsewhere, as server.json or store.json records it. A start
// without --store then does not begin with an empty store.
type ExternalStore struct {
	// Scheme is that of the store's URL; "" is etcd.
	Scheme string `json:"scheme,omitempty"`
	// Endpoints are the client URLs of the store.
	Endpoints []string `json:"endpoints"`
	// CA, Cert and Key are absolute paths, empty for plain http.
	CA   string `json:"ca,omitempty"`
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key,omitempty"`
	// User is the etcd user. PasswordFile is an absolute path; without it the environment has the password.
	User         string `json:"user,omitempty"`
	PasswordFile string `json:"password_file,omitempty"`
	// TokenFile is the absolute path of the file with the token for Consul; without it the environment may have one.
	// Datacenter is the one of Consul, "" for that of its agent.
	TokenFile  string `json:"token_file,omitempty"`
	Datacenter string `json:"datacenter,omitempty"`
	// Prefix is the prefix of all keys.
	Prefix string `json:"prefix,omitempty"`
}

// Flags returns the flags of `berth server` that name the store. A blank precedes each.
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
		{"--store-token-file", m.TokenFile},
		{"--store-datacenter", m.Datacenter},
		{"--store-prefix", m.Prefix},
	} {
		if file[1] != "" {
			words = append(words, file...)
		}
	}
	return strings.Join(words, " ")
}

// URL returns the value of --store.
func (m *ExternalStore) URL() string {
	var hosts []string
	for _, e := range m.Endpoints {
		_, host, _ := strings.Cut(e, "://")
		hosts = append(hosts, host)
	}
	return cmp.Or(m.Scheme, "etcd") + "://" + strings.Join(hosts, ",")
}

// StoreFile records an external store for a server without settings: `berth dev`, or a server for its own machine only.
const StoreFile = "store.json"

// ReadExternalStore returns the content of StoreFile, or nil if it does not exist.
func ReadExternalStore(dataDir string) (*ExternalStore, error) {
	path := filepath.Join(dataDir, StoreFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // the store is the server's own
	}
	if err != nil {
		return nil, fmt.Errorf("read the settings of the external store: %w", err)
	}
	m := new(ExternalStore)
	if err = json.Unmarshal(b, m); err == nil && len(m.Endpoints) == 0 {
		err = errors.New("it names no endpoints")
	}
	if err != nil {
		return nil, &hinted.Error{
			Err:  fmt.Errorf("read the settings of the external store: %s: %w", path, err),
			Hint: "Name the store with --store and rename that file: the server writes a new one.",
		}
	}
	return m, nil
}

// Write writes StoreFile.
func (m *ExternalStore) Write(dataDir string) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := ReplaceFile(filepath.Join(dataDir, StoreFile), append(b, '\n')); err != nil {
		return fmt.Errorf("write the settings of the external store: %w", err)
	}
	return nil
}

// Flag returns the flag that names a data directory, after a blank. For the default directory it returns "".
func Flag(dataDir string) string {
	if dataDir == DefaultDataDir() {
		return ""
	}
	return " --data-dir " + dataDir
}
