//go:build prove

package e2e_test

import (
	"fmt"
	"testing"

	"github.com/berthd/berth/internal/store/consul/consultest"
	"github.com/berthd/berth/test/harness"
)

// TestConsulLimitsRequests runs two servers on a Consul that begins to enforce low limits on the rate of requests. The
// servers wait and try again: a service still grows, tasks run on, and the status and the log name the limit.
func TestConsulLimitsRequests(t *testing.T) {
	t.Parallel()
	consul := consultest.Start(t, 1, consultest.Options{})[0]
	f := harness.NewFleet(t)
	f.Flags = []string{"--store", "consul://" + consul.Address}
	hosts := harness.Loopback(3)
	f.Init(hosts[0]).Start()
	f.Join(hosts[1]).Start()
	f.Agent(hosts[2])
	f.Berth("run", f.Write("v1.yaml", fmt.Sprintf(hello, 1, 2))).Want(t, 0, "2/2")
	before := running(t, f.Site, "hello", 2)
	w := beginWrites(f, t)
	w.more(f)
	consul.Configure(map[string]any{"limits": map[string]any{"request_limits": map[string]any{
		"mode": "enforcing", "read_rate": 20, "write_rate": 8,
	}}})
	f.Eventually(soon, wantStatus(f, "Alarms:", "the store limits the rate of requests"))
	consul.AwaitRefusals(20)
	w.more(f)
	f.Eventually(soon, func() error {
		if r := f.Berth("scale", "--detach", "service/hello", "5"); r.Code != 0 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	five := running(t, f.Site, "hello", 5)
	w.more(f)

	consul.Configure(nil)
	w.more(f)
	w.check(t)
	f.Berth("scale", "--detach", "service/hello", "6").Want(t, 0)
	six := running(t, f.Site, "hello", 6)
	samePids(t, before, six)
	samePids(t, five, six)
}
