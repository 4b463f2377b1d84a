package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/store/consul/consultest"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// layoutLimit covers the 30 s after which desired records are projected.
const layoutLimit = 2 * time.Minute

// TestLayoutInConsul runs the examples of docs/reference/layout.md for Consul, against a real one.
func TestLayoutInConsul(t *testing.T) {
	t.Parallel()
	testkit.NeedCommand(t, "bash", "curl", "jq")
	servers := consultest.Start(t, 1, consultest.Options{})
	tool := t.TempDir()
	if err := os.Symlink(consultest.Program(t), filepath.Join(tool, "consul")); err != nil {
		t.Fatal(err)
	}
	runLayout(t, "Consul", "consul://"+servers[0].Address, 10, "PATH="+tool+":"+os.Getenv("PATH"),
		"CONSUL_HTTP_ADDR=http://"+servers[0].Address)
}

// TestLayoutInEtcd runs the examples of docs/reference/layout.md for etcd, against a real one.
func TestLayoutInEtcd(t *testing.T) {
	t.Parallel()
	testkit.NeedCommand(t, "bash", "curl", "jq", "etcdctl")
	store := startEtcd(t)
	address := strings.Replace(store, "etcd://", "http://", 1)
	runLayout(t, "etcd", store, 7, "ETCDCTL_API=3", "ETCDCTL_ENDPOINTS="+address, "ETCD="+address)
}

// runLayout makes the objects of the page in a store, and runs the commands of a section. Each prints what the page
// says, sooner or later. The page has at least so many commands.
func runLayout(t *testing.T, section, store string, least int, environment ...string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/reference/layout.md")
	if err != nil {
		t.Fatal(err)
	}
	_, examples, _ := strings.Cut(string(page), "\n## Examples\n")
	s := harness.New(t, harness.Process)
	s.Server("--store", store)
	s.StartAgent("--name", "n1")
	s.Berth("run", "--detach", s.Write("objects.yaml", blockOf(t, examples, "yaml"))).Want(t, 0)
	running(t, s, "web", 2)
	_, examples, _ = strings.Cut(examples, "\n### "+section+"\n")
	examples, _, _ = strings.Cut(examples, "\n### ")
	commands := 0
	for _, m := range regexp.MustCompile("(?ms)^```console\n(.*?)^```$").FindAllStringSubmatch(examples, -1) {
		script := ""
		for _, example := range strings.Split("\n"+m[1], "\n$ ")[1:] {
			command, want, _ := strings.Cut(example, "\n")
			if commands++; want == "" { // it prepares the next command
				script += command + "\n"
				continue
			}
			want = strings.TrimSuffix(want, "\n") + "\n"
			s.Eventually(layoutLimit, func() error {
				cmd := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-c", script+command)
				cmd.Env = append(os.Environ(), environment...)
				got, err := cmd.CombinedOutput()
				if err != nil {
					return fmt.Errorf("%s%s\nfailed with %w:\n%s", script, command, err, got)
				}
				if string(got) != want {
					return fmt.Errorf("%s%s\nprinted\n%s\nwant\n%s", script, command, got, want)
				}
				return nil
			})
			script = ""
		}
	}
	if commands < least {
		t.Errorf("%d commands were run, want at least %d", commands, least)
	}
}

// blockOf returns the first block of a language.
func blockOf(t *testing.T, text, language string) string {
	t.Helper()
	m := regexp.MustCompile("(?ms)^```" + language + "\n(.*?)^```$").FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("the page has no block of %s", language)
	}
	return m[1]
}
