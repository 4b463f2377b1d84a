package engines

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/store/remote"
)

const (
	// PasswordVariable is the environment variable with the password for an external etcd.
	PasswordVariable = "BERTH_STORE_PASSWORD"
	// TokenVariable is the environment variable with the token for Consul.
	TokenVariable = "BERTH_STORE_TOKEN" //nolint:gosec // a name, no token
	// SystemCA, in place of a file with authorities, means the authorities that the machine trusts.
	SystemCA = remote.SystemCA
)

// Location names an external store. Without endpoints the store runs in the server.
type Location struct {
	// Scheme is one of Schemes; "" without endpoints.
	Scheme        string
	Endpoints     []string
	Cert, Key, CA string
	// User is the store's user; "" is none. Its password is in PasswordFile or, without one, in PasswordVariable.
	User, PasswordFile string
	// TokenFile is the file with the token for Consul. Without it TokenVariable may have one. Datacenter is the one of
	// Consul that holds the store; "" is that of its agent.
	TokenFile, Datacenter string
	Prefix                string // of all keys; "" or with a slash at the end
}

// Recorded returns the location that a data directory records.
func Recorded(at *datadir.ExternalStore) Location {
	return Location{
		Scheme: cmp.Or(at.Scheme, SchemeEtcd), Endpoints: slices.Clone(at.Endpoints), CA: at.CA, Cert: at.Cert,
		Key: at.Key, User: at.User, PasswordFile: at.PasswordFile, TokenFile: at.TokenFile, Datacenter: at.Datacenter,
		Prefix: at.Prefix,
	}
}

// Record returns the location for a data directory, with absolute paths; nil if the store is the server's own.
func (l Location) Record() (*datadir.ExternalStore, error) {
	if len(l.Endpoints) == 0 {
		return nil, nil //nolint:nilnil // the store is the server's own
	}
	m := &datadir.ExternalStore{
		Scheme: l.Scheme, Endpoints: slices.Clone(l.Endpoints), User: l.User, Datacenter: l.Datacenter,
		Prefix: l.Prefix,
	}
	for _, file := range []struct {
		from string
		to   *string
	}{
		{l.CA, &m.CA},
		{l.Cert, &m.Cert},
		{l.Key, &m.Key},
		{l.PasswordFile, &m.PasswordFile},
		{l.TokenFile, &m.TokenFile},
	} {
		if file.from == "" || file.from == SystemCA {
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

// readPassword reads the user's password. Each call reads it again, because it may change.
func (l Location) readPassword() (string, error) {
	if l.PasswordFile != "" {
		return datadir.ReadCredential("the password for the store", l.PasswordFile)
	}
	if password := os.Getenv(PasswordVariable); password != "" {
		return password, nil
	}
	return "", fmt.Errorf("the password for the store is missing: neither --store-password-file nor %s is set",
		PasswordVariable)
}

// readToken reads the token for Consul. Each call reads it again, because it may change. Without a file and a variable
// there is no token, as for a Consul without ACLs.
func (l Location) readToken() (string, error) {
	if l.TokenFile != "" {
		return datadir.ReadCredential("the token for the store", l.TokenFile)
	}
	return os.Getenv(TokenVariable), nil
}
