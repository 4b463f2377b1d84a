package serving

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/serve/node"
)

func TestDiscoveryFlags(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		flags  discoveryFlags
		want   node.Discovery
		faults []string
	}{
		"nothing": {discoveryFlags{}, node.Discovery{}, nil},
		"an address": {
			discoveryFlags{url: "consul://127.0.0.1:8501"}, node.Discovery{Endpoint: "http://127.0.0.1:8501"}, nil,
		},
		"the usual port": {
			discoveryFlags{url: "consul://consul.example"}, node.Discovery{Endpoint: "http://consul.example:8500"}, nil,
		},
		"everything": {
			discoveryFlags{"consul://h:1", node.Discovery{
				CA: "system", Cert: file, Key: file, TokenFile: file, Namespace: "team",
			}},
			node.Discovery{
				Endpoint: "https://h:1", CA: "system", Cert: file, Key: file, TokenFile: file, Namespace: "team",
			},
			nil,
		},
		"another scheme": {discoveryFlags{url: "etcd://h:1"}, node.Discovery{}, []string{"want consul://host:port"}},
		"no host":        {discoveryFlags{url: "consul://"}, node.Discovery{}, []string{"want consul://host:port"}},
		"two addresses":  {discoveryFlags{url: "consul://h,i"}, node.Discovery{}, []string{"want one address"}},
		"a password": {
			discoveryFlags{url: "consul://u:hidden@h"}, node.Discovery{}, []string{"use --discovery-token-file"},
		},
		"several faults": {
			discoveryFlags{"consul://h:x", node.Discovery{Cert: file, TokenFile: file + "-none"}},
			node.Discovery{},
			[]string{
				"--discovery-token-file " + file + "-none: no such file",
				"--discovery-cert and --discovery-key must be given together", "--discovery ",
			},
		},
		"no address": {
			discoveryFlags{"", node.Discovery{CA: "system", TokenFile: file, Namespace: "team"}},
			node.Discovery{},
			[]string{
				"--discovery-token-file needs --discovery", "--discovery-ca needs --discovery",
				"--discovery-namespace needs --discovery",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, list := test.flags, &session.Faults{}
			f.check(list)
			if len(list.List) != len(test.faults) {
				t.Fatalf("got %q, want %q", list.List, test.faults)
			}
			for i, want := range test.faults {
				if !strings.Contains(list.List[i], want) || strings.Contains(list.List[i], "hidden") {
					t.Errorf("got %q, want %q", list.List[i], want)
				}
			}
			if diff := cmp.Diff(test.want, f.parsed); len(test.faults) == 0 && diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
