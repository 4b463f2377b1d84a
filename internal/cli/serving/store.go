// Package serving implements the commands that run servers and agents: dev, server and agent.
package serving

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/serve/engines"
)

// addStoreFlags adds the flags about a store that runs elsewhere. checkStore parses them.
func (f *serverFlags) addStoreFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.storeURL, "store", "",
		"external etcd to use, `etcd://host:2379,host:2379`, instead of the server's own; it "+
			"must be the same on every server")
	fs.StringVar(&f.Store.CA, "store-ca", "",
		"file with the certificate authority of the external etcd, or `system` for the authorities of this "+
			"machine; enables https")
	fs.StringVar(&f.Store.Cert, "store-cert", "", "file with the client certificate for the external etcd")
	fs.StringVar(&f.Store.Key, "store-key", "", "file with the key of the client certificate")
	fs.StringVar(&f.Store.User, "store-user", "", "user name at the external etcd")
	fs.StringVar(&f.Store.PasswordFile, "store-password-file", "",
		"file with the password of that user; default "+engines.PasswordVariable+" in the environment")
	fs.StringVar(&f.Store.Prefix, "store-prefix", "",
		"prefix of all keys in the external etcd, such as prod/; control planes that share an etcd need "+
			"different prefixes")
}

// checkStoreUser adds faults of the user and of the prefix to list.
func checkStoreUser(c *engines.Location, list *session.Faults) {
	switch {
	case c.User == "" && c.PasswordFile != "":
		list.Add("--store-password-file needs --store-user")
	case c.User != "" && c.PasswordFile == "" && os.Getenv(engines.PasswordVariable) == "":
		list.Add("--store-user %s needs a password: name a file with --store-password-file, or set %s", c.User,
			engines.PasswordVariable)
	}
	if c.Prefix != "" && (!strings.HasSuffix(c.Prefix, "/") || strings.ContainsFunc(c.Prefix, func(r rune) bool {
		return r <= ' ' || r == 0x7f
	})) {
		list.Add("--store-prefix %q: want a name without spaces that ends in a slash, such as prod/", c.Prefix)
	}
}

// checkStore parses the flags about an etcd that runs elsewhere.
func (f *serverFlags) checkStore(list *session.Faults) {
	files := []struct{ flag, path string }{
		{"--store-ca", f.Store.CA},
		{"--store-cert", f.Store.Cert},
		{"--store-key", f.Store.Key},
		{"--store-password-file", f.Store.PasswordFile},
	}
	if f.storeURL == "" {
		for _, file := range append(files, struct{ flag, path string }{"--store-user", f.Store.User},
			struct{ flag, path string }{"--store-prefix", f.Store.Prefix}) {
			if file.path != "" {
				list.Add("%s needs --store: it is only for an external etcd", file.flag)
			}
		}
		return
	}
	scheme, hosts, _ := strings.Cut(f.storeURL, "://")
	if hosts == "" || !slices.Contains(engines.Schemes(), scheme) {
		list.Add("--store %q: want etcd://host:port; separate several with commas", f.storeURL)
		return
	}
	if strings.Contains(hosts, "@") { // the value may hold a password, so the message does not repeat it
		list.Add("--store: want etcd://host:port without user and password: use --store-user and " +
			"--store-password-file")
		return
	}
	checkStoreUser(&f.Store, list)
	f.Store.Scheme = scheme
	transport := "http://"
	if f.Store.CA != "" || f.Store.Cert != "" {
		transport = "https://"
	}
	for _, host := range session.SplitList([]string{hosts}) {
		address, err := parseHostPort(strings.TrimPrefix(host, scheme+"://"), datadir.PortEtcd)
		list.AddError("--store", err)
		f.Store.Endpoints = append(f.Store.Endpoints, transport+address)
	}
	if (f.Store.Cert == "") != (f.Store.Key == "") {
		list.Add("--store-cert and --store-key must be given together")
	}
	for _, file := range files {
		if file.path == "" || file.flag == "--store-ca" && file.path == engines.SystemCA {
			continue
		}
		if _, err := os.Stat(file.path); err != nil {
			list.Add("%s %s", file.flag, plainPathError(err))
		}
	}
}
