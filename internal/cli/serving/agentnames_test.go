package serving

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/cli/session"
)

func TestNameFlags(t *testing.T) {
	for name, c := range map[string]struct {
		flags nameFlags
		want  string // the parsed form
		fault string
	}{
		"the defaults": {flags: nameFlags{listen: defaultDNSListen}, want: "127.0.0.1:7053 []"},
		"nowhere":      {flags: nameFlags{listen: "off"}, want: "invalid AddrPort []"},
		"resolvers": {
			flags: nameFlags{
				listen:    "[::1]:53",
				upstreams: []string{"192.0.2.1", "192.0.2.2:5353", "2001:db8::1", "[2001:db8::1]:54"},
			},
			want: "[::1]:53 [192.0.2.1:53 192.0.2.2:5353 [2001:db8::1]:53 [2001:db8::1]:54]",
		},
		"no port": {
			flags: nameFlags{listen: "127.0.0.1"},
			fault: "--dns-listen \"127.0.0.1\": want an IP address with a port",
		},
		"any address": {flags: nameFlags{listen: "0.0.0.0:53"}, fault: "want one specific address"},
		"a name as resolver": {
			flags: nameFlags{listen: "off", upstreams: []string{"dns.example"}},
			fault: "--dns-upstream \"dns.example\": want the IP address",
		},
		"the agent asks itself": {
			flags: nameFlags{listen: defaultDNSListen, upstreams: []string{defaultDNSListen}},
			fault: "it is the agent's own --dns-listen",
		},
	} {
		var list session.Faults
		c.flags.check(&list)
		notices := strings.Join(list.List, "; ")
		if (notices == "") != (c.fault == "") || !strings.Contains(notices, c.fault) {
			t.Errorf("%s: got %q, want %q", name, notices, c.fault)
		}
		if got := fmt.Sprint(c.flags.parsed.Listen, " ", c.flags.parsed.Upstreams); c.fault == "" && got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}
