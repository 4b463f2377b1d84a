package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/berthd/berth/internal/store/etcd"
)

// externalStore is where a store that runs elsewhere is reached, as server.json remembers it: so that a start without --store
// is no start with another, empty store.
type externalStore struct {
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

// storePasswordVariable names the variable of the environment with the password for a store that runs elsewhere.
const storePasswordVariable = "BERTH_STORE_PASSWORD"

// storeFlags are the flags that name a store that runs elsewhere; checkStore reads them.
func (f *serverFlags) storeFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.storeURL, "store", "", "etcd that runs elsewhere, `etcd://host:2379,host:2379`, instead of the server's own; every server names the same")
	fs.StringVar(&f.store.ca, "store-ca", "", "file with the authority of that etcd's certificates, or `system` for those that this machine knows; then it is reached over https")
	fs.StringVar(&f.store.cert, "store-cert", "", "file with the certificate that is shown to that etcd")
	fs.StringVar(&f.store.key, "store-key", "", "file with the key of that certificate")
	fs.StringVar(&f.store.user, "store-user", "", "user of that etcd to log in as")
	fs.StringVar(&f.store.passwordFile, "store-password-file", "", "file with that user's password; default "+storePasswordVariable+" in the environment")
	fs.StringVar(&f.store.prefix, "store-prefix", "", "what all keys in that etcd begin with, such as prod/; each control plane that shares an etcd has its own")
}

// checkUser notes what is wrong with who logs in, and with the prefix.
func (c *storeConfig) checkUser(list *faults) {
	switch {
	case c.user == "" && c.passwordFile != "":
		list.add("--store-password-file is given and --store-user is not")
	case c.user != "" && c.passwordFile == "" && os.Getenv(storePasswordVariable) == "":
		list.add("--store-user %s wants a password: name a file with --store-password-file, or set %s", c.user, storePasswordVariable)
	}
	if c.prefix != "" && (!strings.HasSuffix(c.prefix, "/") || strings.ContainsFunc(c.prefix, func(r rune) bool { return r <= ' ' || r == 0x7f })) {
		list.add("--store-prefix %q: want letters without blanks and a slash at the end, such as prod/", c.prefix)
	}
}

// password reads the user's password anew, as it may have been changed.
func (c *storeConfig) password() (string, error) {
	if c.passwordFile != "" {
		return readSecret("the password for the store", c.passwordFile)
	}
	if password := os.Getenv(storePasswordVariable); password != "" {
		return password, nil
	}
	return "", fmt.Errorf("there is no password for the store: neither --store-password-file nor %s is set", storePasswordVariable)
}

// remembered returns what server.json keeps of the flags; nil where they name no store.
func (c *storeConfig) remembered() (*externalStore, error) {
	if len(c.endpoints) == 0 {
		return nil, nil //nolint:nilnil // the store is the server's own
	}
	m := &externalStore{Endpoints: slices.Clone(c.endpoints), User: c.user, Prefix: c.prefix}
	for _, file := range []struct {
		from string
		to   *string
	}{{c.ca, &m.CA}, {c.cert, &m.Cert}, {c.key, &m.Key}, {c.passwordFile, &m.PasswordFile}} {
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

// flags returns the flags of `berth server` that name the store, with a blank before each.
func (m *externalStore) flags() string {
	if m == nil {
		return " --store etcd://HOST:2379[,HOST:2379]"
	}
	words := []string{"", "--store", m.url()}
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

// url is the value of --store.
func (m *externalStore) url() string {
	var hosts []string
	for _, e := range m.Endpoints {
		_, host, _ := strings.Cut(e, "://")
		hosts = append(hosts, host)
	}
	return "etcd://" + strings.Join(hosts, ",")
}

// chooseStore decides between a store of the server's own and one that runs elsewhere, by the flags and by what server.json
// remembers. A server of a store that runs elsewhere must never begin one of its own: under the same authority it would lead
// a control plane beside the others.
func (s *server) chooseStore() error {
	c := &s.config.store
	own := filepath.Join(s.config.dataDir, storeDir)
	_, err := os.Stat(filepath.Join(own, "member"))
	hasOwn := err == nil
	switch {
	case s.settings == nil:
	case len(c.endpoints) > 0 && hasOwn && !s.settings.External:
		return &hintedError{
			fmt.Errorf("%s is the store of this server, and --store names another", own),
			"Start it without --store; or move that folder away if the server is to leave its store for the other one.",
		}
	case len(c.endpoints) > 0 && s.settings.External && s.settings.Store != nil && s.settings.Store.Prefix != c.prefix:
		return &hintedError{
			fmt.Errorf("the keys of this server's store begin with %q, and with --store-prefix %q it would begin another one", s.settings.Store.Prefix, c.prefix),
			"Start it as before:  berth server" + dataDirFlag(s.config.dataDir) + s.settings.Store.flags(),
		}
	case len(c.endpoints) == 0 && s.settings.External && s.settings.Store == nil:
		return &hintedError{
			fmt.Errorf("the store of the server in %s runs elsewhere, and --store is missing: it must not begin one of its own", s.config.dataDir),
			"Name it as the other servers do:  berth server" + dataDirFlag(s.config.dataDir) + s.settings.Store.flags(),
		}
	case len(c.endpoints) == 0 && s.settings.External:
		m := s.settings.Store
		c.endpoints, c.ca, c.cert, c.key = slices.Clone(m.Endpoints), m.CA, m.Cert, m.Key
		c.user, c.passwordFile, c.prefix = m.User, m.PasswordFile, m.Prefix
		s.config.log.Info("the store runs elsewhere, as at the last start", "store", m.url())
	}
	return nil
}

// rememberStore writes down that the store runs elsewhere, and where it was reached.
func (s *server) rememberStore() error {
	now, err := s.config.store.remembered()
	if err != nil || now == nil || s.settings == nil {
		return err
	}
	if had := s.settings.Store; s.settings.External && had != nil && had.flags() == now.flags() && slices.Equal(had.Endpoints, now.Endpoints) {
		return nil
	}
	s.settings.External, s.settings.Store = true, now
	return s.settings.write(s.config.dataDir)
}

// dataDirFlag is the flag that names a data directory, with a blank before it; empty for the usual one.
func dataDirFlag(dataDir string) string {
	if dataDir == defaultDataDir() {
		return ""
	}
	return " --data-dir " + dataDir
}
