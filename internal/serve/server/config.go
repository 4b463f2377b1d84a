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

// StorePasswordVariable is the environment variable with the password for an external store.
const StorePasswordVariable = "BERTH_STORE_PASSWORD"

// readPassword reads the user's password. Each call reads it again, because it may change.
func (c *StoreConfig) readPassword() (string, error) {
	if c.PasswordFile != "" {
		return datadir.ReadCredential("the password for the store", c.PasswordFile)
	}
	if password := os.Getenv(StorePasswordVariable); password != "" {
		return password, nil
	}
	return "", fmt.Errorf("the password for the store is missing: neither --store-password-file nor %s is set",
		StorePasswordVariable)
}

// External returns the location of the store for server.json, or nil if the flags name none.
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

// Config is the configuration of a server.
type Config struct {
	DataDir string   // has the store, the token, the server's id, its certificates and settings
	Listen  []string // addresses in the form of apiserver.Listen
	// ListenPeers is the host:port for the other members of the store. "" is the advertised port on all interfaces.
	ListenPeers string
	Store       StoreConfig
	Snapshots   snapshotConfig
	Egress      egress.Policy // for gates and for scaling queries
	Traces      string        // URL for spans; "" for none
	// MaxWaiters bounds the requests that wait for changes, and MaxClientWaiters those of one client. 0 is the default.
	MaxWaiters, MaxClientWaiters int
	// CertificateLife is the validity of the certificates that the server signs. 0 is the default.
	CertificateLife time.Duration
	// Permissions are the permissions of clusters that are created without any.
	Permissions []cluster.Permission
	// Values are the settings by flag name, shown to operators. They contain no secrets.
	Values map[string]string
	Log    *slog.Logger
	// Command is the command that started the server, for hints; "" is `berth server`. Notices, unless nil, receives
	// lines for the user.
	Command string
	Notices func(text string)
}

// StoreConfig names an external etcd. Without endpoints the store runs in the server.
type StoreConfig struct {
	Endpoints     []string
	Cert, Key, CA string
	// User is the etcd user; "" is none. Its password is in PasswordFile or, without one, in StorePasswordVariable.
	User, PasswordFile string
	Prefix             string // of all keys; "" or with a slash at the end
}

// snapshotConfig configures periodic snapshots. An Every of 0 disables them.
type snapshotConfig struct {
	Every time.Duration
	Keep  int
	Dir   string // the default is the directory snapshots in the data directory
}

// tls returns the TLS files for an external etcd, or nil for plain http.
func (c *StoreConfig) tls() *etcd.TLSFiles {
	if c.CA == "" && c.Cert == "" {
		return nil
	}
	return &etcd.TLSFiles{Cert: c.Cert, Key: c.Key, CA: c.CA}
}
