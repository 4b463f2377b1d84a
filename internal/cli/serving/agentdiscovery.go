package serving

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/serve/engines"
	"github.com/berthd/berth/internal/serve/node"
)

// discoveryFlags name the Consul in which the node registers its tasks.
type discoveryFlags struct {
	url    string
	parsed node.Discovery
}

func (f *discoveryFlags) addFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.url, "discovery", "",
		"`consul://HOST:PORT` of the Consul agent in which to register healthy tasks whose definition says so; best "+
			"the one of this machine")
	fs.StringVar(&f.parsed.TokenFile, "discovery-token-file", "",
		"file with the token for this Consul; default "+node.DiscoveryTokenVariable+" in the environment")
	fs.StringVar(&f.parsed.CA, "discovery-ca", "",
		"file with the certificate authority of this Consul, or `system` for the authorities of this machine; "+
			"enables https")
	fs.StringVar(&f.parsed.Cert, "discovery-cert", "", "file with the client certificate for this Consul")
	fs.StringVar(&f.parsed.Key, "discovery-key", "", "file with the key of the client certificate")
	fs.StringVar(&f.parsed.Namespace, "discovery-namespace", "",
		"namespace of the registrations, in Consul Enterprise; default the one of the token")
}

// check parses the flags and adds their faults to list.
func (f *discoveryFlags) check(list *session.Faults) {
	d := &f.parsed
	flags := []struct {
		name, value string
		file        bool
	}{
		{"--discovery-token-file", d.TokenFile, true},
		{"--discovery-ca", d.CA, d.CA != engines.SystemCA},
		{"--discovery-cert", d.Cert, true},
		{"--discovery-key", d.Key, true},
		{"--discovery-namespace", d.Namespace, false},
	}
	for _, flag := range flags {
		if f.url == "" && flag.value != "" {
			list.Add("%s needs --discovery", flag.name)
		}
	}
	if f.url == "" {
		return
	}
	for _, flag := range flags {
		if flag.value == "" || !flag.file {
			continue
		}
		if _, err := os.Stat(flag.value); err != nil {
			list.Add("%s %s", flag.name, session.PlainPathError(err))
		}
	}
	if (d.Cert == "") != (d.Key == "") {
		list.Add("--discovery-cert and --discovery-key must be given together")
	}
	host, ok := strings.CutPrefix(f.url, engines.SchemeConsul+"://")
	switch {
	case strings.Contains(host, "@"): // the value may hold a password, so the message does not repeat it
		list.Add("--discovery: want consul://host:port without user and password: use --discovery-token-file")
		return
	case !ok || host == "":
		list.Add("--discovery %q: want consul://host:port", f.url)
		return
	case strings.Contains(host, ","):
		list.Add("--discovery %q: want one address: the registrations belong to one agent of Consul", f.url)
		return
	}
	transport := "http://"
	if d.CA != "" || d.Cert != "" {
		transport = "https://"
	}
	address, err := session.ParseHostPort(host, datadir.PortConsul)
	list.AddError("--discovery", err)
	d.Endpoint = transport + address
}
