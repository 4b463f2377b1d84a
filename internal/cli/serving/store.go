// Package serving implements the commands that run servers and agents: dev, server and agent.
package serving

import (
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/serve/server"
	"github.com/berthd/berth/internal/store/etcd"
)

// addStoreFlags adds the flags about a store that runs elsewhere. checkStore parses them.
func (f *serverFlags) addStoreFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.storeURL, "store", "",
		"etcd that runs elsewhere, `etcd://host:2379,host:2379`, instead of the server's own; every server "+
			"names the same")
	fs.StringVar(&f.Store.CA, "store-ca", "",
		"file with the authority of that etcd's certificates, or `system` for those that this machine "+
			"knows; then it is reached over https")
	fs.StringVar(&f.Store.Cert, "store-cert", "", "file with the certificate that is shown to that etcd")
	fs.StringVar(&f.Store.Key, "store-key", "", "file with the key of that certificate")
	fs.StringVar(&f.Store.User, "store-user", "", "user of that etcd to log in as")
	fs.StringVar(&f.Store.PasswordFile, "store-password-file", "",
		"file with that user's password; default "+server.StorePasswordVariable+" in the environment")
	fs.StringVar(&f.Store.Prefix, "store-prefix", "",
		"what all keys in that etcd begin with, such as prod/; each control plane that shares an etcd has its own")
}

// checkStoreUser adds faults of the user and of the prefix to list.
func checkStoreUser(c *server.StoreConfig, list *session.Faults) {
	switch {
	case c.User == "" && c.PasswordFile != "":
		list.Add("--store-password-file is given and --store-user is not")
	case c.User != "" && c.PasswordFile == "" && os.Getenv(server.StorePasswordVariable) == "":
		list.Add("--store-user %s wants a password: name a file with --store-password-file, or set %s", c.User,
			server.StorePasswordVariable)
	}
	if c.Prefix != "" && (!strings.HasSuffix(c.Prefix, "/") || strings.ContainsFunc(c.Prefix, func(r rune) bool {
		return r <= ' ' || r == 0x7f
	})) {
		list.Add("--store-prefix %q: want letters without blanks and a slash at the end, such as prod/", c.Prefix)
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
				list.Add("%s is only for an etcd that runs elsewhere: --store is missing", file.flag)
			}
		}
		return
	}
	hosts, ok := strings.CutPrefix(f.storeURL, "etcd://")
	if !ok || hosts == "" {
		list.Add("--store %q: want etcd://host:port, with commas between several", f.storeURL)
		return
	}
	if strings.Contains(hosts, "@") { // the value may hold a password, so the message does not repeat it
		list.Add("--store: want etcd://host:port; a user is named by --store-user, and the password stands " +
			"in the file of --store-password-file")
		return
	}
	checkStoreUser(&f.Store, list)
	scheme := "http://"
	if f.Store.CA != "" || f.Store.Cert != "" {
		scheme = "https://"
	}
	for _, host := range session.SplitList([]string{hosts}) {
		address, err := parseHostPort(strings.TrimPrefix(host, "etcd://"), datadir.PortEtcd)
		list.AddError("--store", err)
		f.Store.Endpoints = append(f.Store.Endpoints, scheme+address)
	}
	if (f.Store.Cert == "") != (f.Store.Key == "") {
		list.Add("--store-cert and --store-key belong together: one is missing")
	}
	for _, file := range files {
		if file.path == "" || file.flag == "--store-ca" && file.path == etcd.SystemCA {
			continue
		}
		if _, err := os.Stat(file.path); err != nil {
			list.Add("%s %s", file.flag, plainPathError(err))
		}
	}
}
