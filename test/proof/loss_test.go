package proof_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store/consul/consultest"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// lossesVariable is the environment variable with the number of killed leaders.
const lossesVariable = "BERTH_PROOF_LOSSES"

// Limits of the time from the death of a leader to the next task that is placed, on a machine that does nothing
// else; a machine that runs all tests gets laxLoss.
const (
	medianLoss = 1500 * time.Millisecond
	// medianLossOnConsul is medianLoss for servers whose state is in Consul.
	medianLossOnConsul = 3 * time.Second
	maxLoss            = 3 * time.Second
	laxLoss            = 20 * time.Second
	// strictLosses is the number of losses from which the strict limits apply. The servers get betweenLosses before
	// each loss: after each of several losses in a row, the standby servers wait longer (P1.3).
	strictLosses  = 20
	betweenLosses = 35 * time.Second
)

// TestLeaderLossToTheNextPlacement kills leaders and measures how long it takes until the task that a scaling at that
// moment adds is placed.
func TestLeaderLossToTheNextPlacement(t *testing.T) {
	f := harness.NewFleet(t)
	hosts := harness.Loopback(servers + 1)
	f.Start(hosts[:servers]...)
	f.Agent(hosts[servers])
	measureLosses(t, f, medianLoss, maxLoss, func() { f.Voters(servers) })
}

// TestLeaderLossOnConsul does the same with servers whose state is in three servers of Consul. Consul runs on; the test
// that one of its servers dies or is cut off is TestStoreInConsul.
func TestLeaderLossOnConsul(t *testing.T) {
	consul := consultest.Start(t, 3, consultest.Options{})
	addresses := make([]string, len(consul))
	for i, s := range consul {
		addresses[i] = s.Address
	}
	store := []string{"--store", "consul://" + strings.Join(addresses, ",")}
	f := harness.NewFleet(t)
	hosts := harness.Loopback(servers + 1)
	f.Init(hosts[0]).Start(store...)
	for _, h := range hosts[1:servers] {
		f.Join(h).Start(store...)
	}
	f.Agent(hosts[servers])
	measureLosses(t, f, medianLossOnConsul, laxLoss, func() {
		f.Eventually(laxLoss, func() error {
			members, err := f.Members()
			if err == nil && (len(members) != servers || slices.ContainsFunc(members, isDown)) {
				err = fmt.Errorf("want %d servers that are up: %+v", servers, members)
			}
			return err
		})
	})
}

func isDown(s api.ServerView) bool { return s.State != api.ServerUp }

// measureLosses kills leaders, starts them again, and measures each time until the next placement. Whole waits until
// the fleet is whole. From strictLosses on, the median and the longest time are bounded.
func measureLosses(t *testing.T, f *harness.Fleet, maxMedian, maxTime time.Duration, whole func()) {
	t.Helper()
	losses := int(testkit.Setting(t, lossesVariable, 3))
	f.Berth("run", f.Write("standing.yaml", fmt.Sprintf(standing, 1))).Want(t, 0, "healthy")
	var took []time.Duration
	for n := range losses {
		if losses >= strictLosses {
			rest := time.Now()
			testkit.Eventually(t, 2*betweenLosses, func() error {
				if left := betweenLosses - time.Since(rest); left > 0 {
					return fmt.Errorf("the servers rest for another %v", left.Round(time.Second))
				}
				return nil
			})
		}
		leader := f.Leader()
		i := slices.Index(f.Servers, leader)
		other := f.Servers[(i+1+n%(servers-1))%servers].Client()
		leader.Kill()
		began := time.Now()
		scale(t, other, n+2)
		testkit.Eventually(t, laxLoss, func() error {
			page, err := other.Tasks(t.Context(), client.TaskFilter{Service: "standing"}, client.ListOptions{})
			if err != nil {
				return err
			}
			placed := 0
			for _, task := range page.Items {
				if task.Node != "" {
					placed++
				}
			}
			if placed < n+2 {
				return fmt.Errorf("%d tasks are placed, want %d", placed, n+2)
			}
			return nil
		})
		took = append(took, time.Since(began))
		leader.Start()
		whole()
	}
	slices.Sort(took)
	median, most := took[len(took)/2], took[len(took)-1]
	t.Logf("leader loss to the next placement: median of %d %v, least %v, most %v", losses,
		median.Round(time.Millisecond), took[0].Round(time.Millisecond), most.Round(time.Millisecond))
	if losses >= strictLosses && (median > maxMedian || most > maxTime) {
		t.Errorf("median %v and most %v, want at most %v and %v", median, most, maxMedian, maxTime)
	}
}

// scale repeats its request until the control plane accepts it.
func scale(t *testing.T, c *client.Client, count int) {
	t.Helper()
	testkit.Eventually(t, laxLoss, func() error {
		brief, stop := context.WithTimeout(t.Context(), 2*time.Second)
		defer stop()
		return c.ScaleService(brief, cluster.DefaultCluster, "standing", count, client.Condition{})
	})
}
