//go:build prove

package e2e_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/store/consul/consultest"
	"github.com/berthd/berth/test/harness"
)

// TestConsulWentBack takes Consul back to a snapshot of its own, as its operator does after a loss. Whatever was
// acknowledged since is lost, so the servers change nothing and wait for the decision of a human. Tasks run on, also
// those that the store does not know any more.
func TestConsulWentBack(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		// lost is acknowledged after the snapshot. It returns the number of tasks that run then.
		lost func(t *testing.T, f *harness.Fleet) int
		// isStopped says that the servers are stopped while Consul is restored.
		isStopped bool
	}{
		{"tasks", growByTwo, false},
		{"a cluster", func(t *testing.T, f *harness.Fleet) int {
			putCluster(t, f, "later")
			return 2
		}, false},
		{"tasks, with stopped servers", growByTwo, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			consul := consultest.Start(t, 1, consultest.Options{})[0]
			f := harness.NewFleet(t)
			f.Flags = []string{"--store", "consul://" + consul.Address}
			hosts := harness.Loopback(3)
			f.Init(hosts[0]).Start()
			f.Join(hosts[1]).Start()
			f.Agent(hosts[2])
			f.Berth("run", f.Write("v1.yaml", fmt.Sprintf(hello, 1, 2))).Want(t, 0, "2/2")
			running(t, f.Site, "hello", 2)
			putCluster(t, f, "kept")
			saved := saveConsul(t, consul)

			tasks := test.lost(t, f)
			before := running(t, f.Site, "hello", tasks)
			if test.isStopped {
				for _, s := range f.Servers {
					s.Terminate()
				}
			}
			if err := consul.Client().Snapshot().Restore(nil, strings.NewReader(saved)); err != nil {
				t.Fatal(err)
			}
			if test.isStopped {
				for _, s := range f.Servers {
					s.Start()
				}
			}

			// 1. The servers wait for the decision, and say so.
			f.Eventually(soon, wantStatus(f, "Alarms:", "the store went back", "berth operator recover"))
			f.Berth("events", "--type", "recovery.needed").Want(t, 0, "the store lost writes")
			if _, err := f.Client().Cluster(t.Context(), "kept"); err != nil {
				t.Errorf("the cluster of the snapshot: %v", err)
			}
			if _, err := f.Client().Cluster(t.Context(), "later"); client.StatusOf(err) != 404 {
				t.Errorf("a cluster that was written after the snapshot: %v, want 404", err)
			}

			// 2. The operator writes again what was lost, and decides. All tasks run on.
			f.Berth("scale", "--detach", "service/hello", fmt.Sprint(tasks)).Want(t, 0)
			f.Berth("operator", "recover", "--adopt").Want(t, 0)
			samePids(t, before, running(t, f.Site, "hello", tasks))
			f.Eventually(soon, func() error {
				if r := f.Berth("status"); strings.Contains(r.Stdout, "went back") {
					return fmt.Errorf("the alarm remains after the decision:\n%v", r)
				}
				return nil
			})
			f.Berth("events", "--type", "recovery.decided").Want(t, 0, "adopt")

			// 3. Work continues, also under another leader.
			f.Berth("scale", "--detach", "service/hello", fmt.Sprint(tasks+1)).Want(t, 0)
			running(t, f.Site, "hello", tasks+1)
			f.Leader().Kill()
			f.Leader()
			f.Berth("scale", "--detach", "service/hello", fmt.Sprint(tasks+2)).Want(t, 0)
			samePids(t, before, running(t, f.Site, "hello", tasks+2))
		})
	}
}

// growByTwo scales the service to four tasks.
func growByTwo(t *testing.T, f *harness.Fleet) int {
	t.Helper()
	f.Berth("scale", "--detach", "service/hello", "4").Want(t, 0)
	running(t, f.Site, "hello", 4)
	return 4
}

func putCluster(t *testing.T, f *harness.Fleet, name string) {
	t.Helper()
	if _, err := f.Client().PutCluster(t.Context(), api.Cluster{Name: name}, client.Condition{}); err != nil {
		t.Fatal(err)
	}
}

// saveConsul returns a snapshot of Consul's own.
func saveConsul(t *testing.T, consul *consultest.Server) string {
	t.Helper()
	from, _, err := consul.Client().Snapshot().Save(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	saved, err := io.ReadAll(from)
	if err != nil {
		t.Fatal(err)
	}
	return string(saved)
}
