package e2e_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// TestRecordsInEtcd starts, moves and stops tasks with etcdctl alone, in the default domain on a real etcd.
func TestRecordsInEtcd(t *testing.T) {
	t.Parallel()
	testkit.NeedCommand(t, "etcdctl")
	store := startEtcd(t)
	s := harness.New(t, harness.Process)
	s.Server("--store", store)
	s.StartAgent("--name", "n1")
	s.StartAgent("--name", "n2", "--data-dir", t.TempDir())
	put := func(node string, index int, value string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "etcdctl", "put",
			fmt.Sprintf("berth/state/%s/default.hello.1.%d", node, index), value)
		cmd.Env = append(cmd.Environ(), "ETCDCTL_API=3",
			"ETCDCTL_ENDPOINTS="+strings.Replace(store, "etcd://", "http://", 1))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v:\n%s", err, out)
		}
	}
	on := func(want ...string) {
		t.Helper()
		s.Eventually(soon, func() error {
			var got []string
			for _, task := range running(t, s, "hello", len(want)) {
				got = append(got, task.Node)
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				return fmt.Errorf("the tasks run on %v, want %v", got, want)
			}
			return nil
		})
	}
	s.Eventually(soon, func() error { // a record with a node that never registered is refused
		if r := s.Berth("wait", "node/n1", "node/n2"); r.Code != 0 {
			return fmt.Errorf("the nodes are not ready: %v", r)
		}
		return nil
	})
	s.Berth("run", s.Write("domain.yaml", "kind: Domain\nname: default\nscheduler: {type: kv}\n")).Want(t, 0)
	s.Berth("run", "--detach", s.Write("hello.yaml", fmt.Sprintf(hello, 1, 2))).Want(t, 0)
	put("n1", 0, "{}")
	put("n1", 1, "")
	on("n1", "n1")
	s.Berth("wait", "service/hello").Want(t, 0)
	put("n2", 1, `{"reason": "n1 gets warm"}`)
	on("n1", "n2")
	put("n3", 0, "{}")
	s.Eventually(soon, func() error {
		r := s.Berth("events", "--type", "task.record-refused")
		if !strings.Contains(r.Stdout, "the domain has no node n3") {
			return fmt.Errorf("no event of the refusal:\n%s%s", r.Stdout, r.Stderr)
		}
		return nil
	})
	on("n1", "n2")
}
