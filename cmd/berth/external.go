package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/berthd/berth/internal/store/etcd"
)

// externalStore is where a store that runs elsewhere is reached, as server.json or store.json remembers it: so that a
// start without --store is no start with another, empty store.
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
	fs.StringVar(&f.storeURL, "store", "",
		"etcd that runs elsewhere, `etcd://host:2379,host:2379`, instead of the server's own; every server "+
			"names the same")
	fs.StringVar(&f.store.ca, "store-ca", "",
		"file with the authority of that etcd's certificates, or `system` for those that this machine "+
			"knows; then it is reached over https")
	fs.StringVar(&f.store.cert, "store-cert", "", "file with the certificate that is shown to that etcd")
	fs.StringVar(&f.store.key, "store-key", "", "file with the key of that certificate")
	fs.StringVar(&f.store.user, "store-user", "", "user of that etcd to log in as")
	fs.StringVar(&f.store.passwordFile, "store-password-file", "",
		"file with that user's password; default "+storePasswordVariable+" in the environment")
	fs.StringVar(&f.store.prefix, "store-prefix", "",
		"what all keys in that etcd begin with, such as prod/; each control plane that shares an etcd has its own")
}

// checkUser notes what is wrong with who logs in, and with the prefix.
func (c *storeConfig) checkUser(list *faults) {
	switch {
	case c.user == "" && c.passwordFile != "":
		list.add("--store-password-file is given and --store-user is not")
	case c.user != "" && c.passwordFile == "" && os.Getenv(storePasswordVariable) == "":
		list.add("--store-user %s wants a password: name a file with --store-password-file, or set %s", c.user,
			storePasswordVariable)
	}
	if c.prefix != "" && (!strings.HasSuffix(c.prefix, "/") || strings.ContainsFunc(c.prefix, func(r rune) bool {
		return r <= ' ' || r == 0x7f
	})) {
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
	return "", fmt.Errorf("there is no password for the store: neither --store-password-file nor %s is set",
		storePasswordVariable)
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

// storeFile is the file of a data directory that remembers a store that runs elsewhere, of a server without settings:
// `berth dev`, or one that only serves its own machine.
const storeFile = "store.json"

// readStore returns what the storeFile of a data directory remembers, nil where there is none.
func readStore(dataDir string) (*externalStore, error) {
	path := filepath.Join(dataDir, storeFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // the store is the server's own
	}
	if err != nil {
		return nil, fmt.Errorf("read where the store runs: %w", err)
	}
	m := new(externalStore)
	if err = json.Unmarshal(b, m); err == nil && len(m.Endpoints) == 0 {
		err = errors.New("it names no endpoints")
	}
	if err != nil {
		return nil, &hintedError{
			fmt.Errorf("read where the store runs: %s: %w", path, err),
			"Name it with --store and move that file away: it is written anew.",
		}
	}
	return m, nil
}

// write makes the storeFile of a data directory.
func (m *externalStore) write(dataDir string) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := replaceFile(filepath.Join(dataDir, storeFile), append(b, '\n')); err != nil {
		return fmt.Errorf("write where the store runs: %w", err)
	}
	return nil
}

// lastStore returns whether the store ran elsewhere at the last start, and where; nil where it is not known yet.
func (s *server) lastStore() (elsewhere bool, at *externalStore, err error) {
	if s.settings != nil {
		return s.settings.External, s.settings.Store, nil
	}
	at, err = readStore(s.config.dataDir)
	return at != nil, at, err
}

// chooseStore decides between a store of the server's own and one that runs elsewhere, by the flags and by what the
// last start left in the data directory. A server of a store that runs elsewhere must never begin one of its own: under
// the same authority it would lead a control plane beside the others, and one that only serves its own machine would
// know nothing of what runs there.
func (s *server) chooseStore() error {
	c := &s.config.store
	own := filepath.Join(s.config.dataDir, storeDir)
	_, err := os.Stat(filepath.Join(own, "member"))
	hasOwn := err == nil
	elsewhere, at, err := s.lastStore()
	if err != nil {
		return err
	}
	command := cmp.Or(s.config.command, "berth server") + dataDirFlag(s.config.dataDir)
	switch {
	case len(c.endpoints) > 0 && hasOwn && !elsewhere:
		hint := "Start it without --store; or move that folder away if the server is to leave its store for " +
			"the other one."
		if s.settings == nil {
			hint = "Start it without --store to go on with that one. For the other one name another " +
				"--data-dir, or move that folder away: what it holds is then not known here."
		}
		return &hintedError{fmt.Errorf("%s is the store of this server, and --store names another", own), hint}
	case len(c.endpoints) > 0 && elsewhere && at != nil && at.Prefix != c.prefix:
		return &hintedError{
			fmt.Errorf("the keys of this server's store begin with %q, and with --store-prefix %q it would "+
				"begin another one", at.Prefix, c.prefix),
			"Start it as before:  " + command + at.flags(),
		}
	case len(c.endpoints) == 0 && elsewhere && at == nil:
		return &hintedError{
			fmt.Errorf("the store of the server in %s runs elsewhere, and --store is missing: it must not "+
				"begin one of its own", s.config.dataDir),
			"Name it as the other servers do:  " + command + at.flags(),
		}
	case len(c.endpoints) == 0 && elsewhere:
		c.endpoints, c.ca, c.cert, c.key = slices.Clone(at.Endpoints), at.CA, at.Cert, at.Key
		c.user, c.passwordFile, c.prefix = at.User, at.PasswordFile, at.Prefix
		s.config.log.Info("the store runs elsewhere, as at the last start", "store", at.url())
		if s.config.say != nil {
			s.config.say(fmt.Sprintf(
				"the store is %s, as at the last start; for a store of its own name another --data-dir", at.url()))
		}
	}
	return nil
}

// rememberStore writes down that the store runs elsewhere, and where it was reached.
func (s *server) rememberStore() error {
	now, err := s.config.store.remembered()
	if err != nil || now == nil {
		return err
	}
	elsewhere, had, err := s.lastStore()
	if err != nil {
		return err
	}
	if elsewhere && had != nil && had.flags() == now.flags() && slices.Equal(had.Endpoints, now.Endpoints) {
		return nil
	}
	if s.settings == nil {
		return now.write(s.config.dataDir)
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
