package cli

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/cli/session"
)

// TestStoreFlags passes contradictory flags about an external store. The error names each flag and repeats no password.
func TestStoreFlags(t *testing.T) {
	a := session.New(nil, io.Discard, io.Discard)
	a.Env = func(string) string { return "" }
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		says []string
	}{
		{[]string{"--store-user", "u"}, []string{"--store-user needs --store", "external store"}},
		{[]string{"--store-prefix", "p/"}, []string{"--store-prefix needs --store"}},
		{[]string{"--store", "etcd://u:hidden@h"}, []string{"--store-user", "--store-password-file"}},
		{
			[]string{"--store", "etcd://h", "--store-user", "u"},
			[]string{"--store-user u needs a password", "BERTH_STORE_PASSWORD"},
		},
		{[]string{"--store", "etcd://h", "--store-password-file", file}, []string{"needs --store-user"}},
		{
			[]string{
				"--store", "etcd://h", "--store-user", "u", "--store-password-file", file + "-none",
				"--store-prefix", "p",
			},
			[]string{"--store-password-file " + file + "-none: no such file", `--store-prefix "p"`, "ends in a slash"},
		},
		{[]string{"--store", "consul://h", "--store-prefix", "/p/"}, []string{`--store-prefix "/p/"`, "slash"}},
		{[]string{"--store-datacenter", "dc1"}, []string{"--store-datacenter needs --store"}},
		{[]string{"--store", "redis://h"}, []string{"want etcd://host:port or consul://host:port"}},
		{[]string{"--store", "consul://u:hidden@h"}, []string{"--store-token-file"}},
		{
			[]string{"--store", "consul://h", "--store-user", "u", "--store-token-file", file + "-none"},
			[]string{"--store-user is for a store etcd://", "--store-token-file " + file + "-none: no such file"},
		},
		{
			[]string{"--store", "etcd://h", "--store-token-file", file, "--store-datacenter", "dc1"},
			[]string{"--store-token-file is for a store consul://", "--store-datacenter is for a store consul://"},
		},
		{
			[]string{"--store", "etcd://h", "--store-cert", file, "--store-ca", "system"},
			[]string{"--store-cert and --store-key must be given together"},
		},
	} {
		for _, command := range []string{"server", "dev"} {
			root := newRootCommand(a)
			root.SetArgs(append([]string{command, "--data-dir", t.TempDir()}, c.args...))
			err := root.ExecuteContext(t.Context())
			if err == nil {
				t.Errorf("berth %s %v: got no error", command, c.args)
				continue
			}
			for _, want := range c.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("berth %s %v: got error %v, want %q in it", command, c.args, err, want)
				}
			}
			if strings.Contains(err.Error(), "hidden") {
				t.Errorf("berth %s %v: the error contains a password: %v", command, c.args, err)
			}
		}
	}
}
