// Package storeflags has the flags that name a store outside of Berth's servers.
package storeflags

import (
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/serve/engines"
)

// Flags are the flags about a store that runs elsewhere.
type Flags struct {
	// Location is complete after Check. Without --store it has no endpoints.
	Location engines.Location
	url      string
}

// AddTo adds the flags to a command.
func (f *Flags) AddTo(fs *pflag.FlagSet) {
	fs.StringVar(&f.url, "store", "",
		"external store to use, `etcd://host:2379,host:2379` or consul://host:8500, instead of the server's own; it "+
			"must be the same on every server")
	fs.StringVar(&f.Location.CA, "store-ca", "",
		"file with the certificate authority of the external store, or `system` for the authorities of this "+
			"machine; enables https")
	fs.StringVar(&f.Location.Cert, "store-cert", "", "file with the client certificate for the external store")
	fs.StringVar(&f.Location.Key, "store-key", "", "file with the key of the client certificate")
	fs.StringVar(&f.Location.User, "store-user", "", "user name at the external etcd")
	fs.StringVar(&f.Location.PasswordFile, "store-password-file", "",
		"file with the password of that user; default "+engines.PasswordVariable+" in the environment")
	fs.StringVar(&f.Location.TokenFile, "store-token-file", "",
		"file with the token for Consul; default "+engines.TokenVariable+" in the environment")
	fs.StringVar(&f.Location.Datacenter, "store-datacenter", "",
		"datacenter of Consul that holds the store; default the one of its agent")
	fs.StringVar(&f.Location.Prefix, "store-prefix", "",
		"prefix of all keys in the external store, such as prod/; control planes that share a store need "+
			"different prefixes")
}

// checkUser adds faults of the user, the token and the prefix to list.
func checkUser(c *engines.Location, list *session.Faults) {
	for _, only := range []struct{ flag, value, scheme string }{
		{"--store-user", c.User, engines.SchemeEtcd},
		{"--store-password-file", c.PasswordFile, engines.SchemeEtcd},
		{"--store-token-file", c.TokenFile, engines.SchemeConsul},
		{"--store-datacenter", c.Datacenter, engines.SchemeConsul},
	} {
		if only.value != "" && only.scheme != c.Scheme {
			list.Add("%s is for a store %s://, and --store names one %s://", only.flag, only.scheme, c.Scheme)
		}
	}
	switch {
	case c.Scheme != engines.SchemeEtcd: // it has no users
	case c.User == "" && c.PasswordFile != "":
		list.Add("--store-password-file needs --store-user")
	case c.User != "" && c.PasswordFile == "" && os.Getenv(engines.PasswordVariable) == "":
		list.Add("--store-user %s needs a password: name a file with --store-password-file, or set %s", c.User,
			engines.PasswordVariable)
	}
	if c.Scheme == engines.SchemeConsul && (strings.HasPrefix(c.Prefix, "/") || strings.Contains(c.Prefix, "//") ||
		len(c.Prefix) > 64) {
		list.Add("--store-prefix %q: Consul's keys do not begin with a slash nor have two in a row; want 64 bytes at "+
			"most, such as prod/", c.Prefix)
	}
	if c.Prefix != "" && (!strings.HasSuffix(c.Prefix, "/") || strings.ContainsFunc(c.Prefix, func(r rune) bool {
		return r <= ' ' || r == 0x7f
	})) {
		list.Add("--store-prefix %q: want a name without spaces that ends in a slash, such as prod/", c.Prefix)
	}
}

// Check parses the flags, and adds their faults to list.
func (f *Flags) Check(list *session.Faults) {
	files := []struct{ flag, path string }{
		{"--store-ca", f.Location.CA},
		{"--store-cert", f.Location.Cert},
		{"--store-key", f.Location.Key},
		{"--store-password-file", f.Location.PasswordFile},
		{"--store-token-file", f.Location.TokenFile},
	}
	if f.url == "" {
		for _, file := range append(files, struct{ flag, path string }{"--store-user", f.Location.User},
			struct{ flag, path string }{"--store-datacenter", f.Location.Datacenter},
			struct{ flag, path string }{"--store-prefix", f.Location.Prefix}) {
			if file.path != "" {
				list.Add("%s needs --store: it is only for an external store", file.flag)
			}
		}
		return
	}
	scheme, hosts, _ := strings.Cut(f.url, "://")
	port, ok := engines.Port(scheme)
	if hosts == "" || !ok {
		list.Add("--store %q: want etcd://host:port or consul://host:port; separate several with commas", f.url)
		return
	}
	if strings.Contains(hosts, "@") { // the value may hold a password, so the message does not repeat it
		list.Add("--store: want %s://host:port without user and password: use --store-user and "+
			"--store-password-file, or --store-token-file", scheme)
		return
	}
	f.Location.Scheme = scheme
	checkUser(&f.Location, list)
	transport := "http://"
	if f.Location.CA != "" || f.Location.Cert != "" {
		transport = "https://"
	}
	for _, host := range session.SplitList([]string{hosts}) {
		address, err := session.ParseHostPort(strings.TrimPrefix(host, scheme+"://"), port)
		list.AddError("--store", err)
		f.Location.Endpoints = append(f.Location.Endpoints, transport+address)
	}
	if (f.Location.Cert == "") != (f.Location.Key == "") {
		list.Add("--store-cert and --store-key must be given together")
	}
	for _, file := range files {
		if file.path == "" || file.flag == "--store-ca" && file.path == engines.SystemCA {
			continue
		}
		if _, err := os.Stat(file.path); err != nil {
			list.Add("%s %s", file.flag, session.PlainPathError(err))
		}
	}
}
