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

// TestImmediateProjection: in a domain that asks for it, the records of each attempt are created in the transaction of
// its plan record, in a real Consul and in a real etcd.
func TestImmediateProjection(t *testing.T) {
	t.Parallel()
	testkit.NeedCommand(t, "bash", "curl", "jq", "etcdctl")
	consul, etcd := consultest.Start(t, 1, consultest.Options{})[0].Address, startEtcd(t)
	for store, revisions := range map[string]string{
		"consul://" + consul: `for noun in plan state; do curl -s "http://` + consul +
			`/v1/kv/berth/$noun/?recurse"; done | jq -r '.[] | "\(.CreateIndex) \(.Key)"'`,
		etcd: `for noun in plan state; do etcdctl --endpoints ` + strings.TrimPrefix(etcd, "etcd://") +
			` get --prefix -w json berth/$noun/; done | jq -r '.kvs[] | "\(.create_revision) \(.key | @base64d)"'`,
	} {
		s := harness.New(t, harness.Process)
		s.Server("--store", store)
		s.Berth("run", s.Write("domain.yaml", "kind: Domain\nname: default\nprojection: immediate\n")).Want(t, 0)
		s.Berth("domain", "status", "default").Want(t, 0, "projection", "immediate")
		s.Agent()
		s.Berth("run", "--detach", s.Write("v1.yaml", fmt.Sprintf(hello, 1, 3))).Want(t, 0)
		running(t, s, "hello", 3)
		out, err := exec.CommandContext(t.Context(), "bash", "-c", revisions).CombinedOutput()
		if err != nil {
			t.Fatalf("%v:\n%s", err, out)
		}
		plans, states := map[string]bool{}, map[string]int{}
		for line := range strings.Lines(string(out)) {
			revision, key, _ := strings.Cut(strings.TrimSpace(line), " ")
			if strings.HasPrefix(key, "berth/plan/") {
				plans[revision] = true
			} else {
				states[revision]++
			}
		}
		created := 0
		for revision, n := range states {
			if created += n; !plans[revision] {
				t.Errorf("%d records of attempts were created without a plan record:\n%s", n, out)
			}
		}
		if created != 6 {
			t.Errorf("there are %d records of 3 attempts, want 6:\n%s", created, out)
		}
	}
}
