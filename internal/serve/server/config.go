package server

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/egress"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/store/etcd"
)

// StorePasswordVariable names the variable of the environment with the password for a store that runs elsewhere.
const StorePasswordVariable = "BERTH_STORE_PASSWORD"

// password reads the user's password anew, as it may have been changed.
func (c *StoreConfig) readPassword() (string, error) {
	if c.PasswordFile != "" {
		return datadir.ReadSecret("the password for the store", c.PasswordFile)
	}
	if password := os.Getenv(StorePasswordVariable); password != "" {
		return password, nil
	}
	return "", fmt.Errorf("there is no password for the store: neither --store-password-file nor %s is set",
		StorePasswordVariable)
}

// Remembered returns what server.json keeps of the flags; nil where they name no store.
func (c *StoreConfig) External() (*datadir.ExternalStore, error) {
	if len(c.Endpoints) == 0 {
		return nil, nil //nolint:nilnil // the store is the server's own
	}
	m := &datadir.ExternalStore{Endpoints: slices.Clone(c.Endpoints), User: c.User, Prefix: c.Prefix}
	for _, file := range []struct {
		from string
		to   *string
	}{{c.CA, &m.CA}, {c.Cert, &m.Cert}, {c.Key, &m.Key}, {c.PasswordFile, &m.PasswordFile}} {
		if file.from == "" || file.from == etcd.SystemCA {
			*file.to = file.from
			continue
		}
		path, err := filepath.Abs(file.from)
		if err != nil {
			return nil, fmt.Errorf("find the files for the store: %w", err)
		}
		*file.to = path
	}
	return m, nil
}

// Config is what a server needs.
type Config struct {
	DataDir string   // holds the store, the token, the server's id, its certificates and settings
	Listen  []string // addresses as apiserver.Listen takes them
	// ListenPeers is the host:port for the other members of the store; "" is that of the advertised address, on all
	// interfaces.
	ListenPeers string
	Store       StoreConfig
	Snapshots   snapshotConfig
	Egress      egress.Policy // for gates and for queries of scaling
	Traces      string        // where spans are sent; "" is nowhere
	// Waiters is how many requests may wait for changes at once, and clientWaiters how many of them one client may
	// have; 0 is the usual.
	MaxWaiters, MaxClientWaiters int
	// CertificateLife is that of the certificates that the server signs; 0 is the usual one.
	CertificateLife time.Duration
	// Permissions are those of clusters that are made without naming any.
	Permissions []cluster.Permission
	// Values are the settings by the names of their flags, for operators to see. Nothing in them is secret.
	Values map[string]string
	Log    *slog.Logger
	// Command is what it was started with, for hints; "" is berth server. say, unless nil, tells a person who started
	// it what goes without a flag.
	Command string
	Notices func(text string)
}

// StoreConfig names an etcd that runs elsewhere; without endpoints the store runs in the server.
type StoreConfig struct {
	Endpoints     []string
	Cert, Key, CA string
	// User logs in there, with what passwordFile holds or, without one, the environment's storePasswordVariable; "" is
	// nobody.
	User, PasswordFile string
	Prefix             string // of all keys there; "" or with a slash at its end
}

// snapshotConfig says when the store is saved; every 0 is never.
type snapshotConfig struct {
	Every time.Duration
	Keep  int
	Dir   string // default snapshots in the data directory
}

// tls returns the files that are shown to an etcd that runs elsewhere, or nil for plain http.
func (c *StoreConfig) tls() *etcd.TLSFiles {
	if c.CA == "" && c.Cert == "" {
		return nil
	}
	return &etcd.TLSFiles{Cert: c.Cert, Key: c.Key, CA: c.CA}
}
