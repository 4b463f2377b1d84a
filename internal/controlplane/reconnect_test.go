package controlplane_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// P6.7: the deletion of an outcome has an unknown result, and arrives after the next attempt was placed. A plan of the
// owner is in flight while its node returns, so that the verdict on the node is written apart from the deletion.
func TestLateReconnectionIsRefused(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var late atomic.Pointer[[]store.Group]
		var takes atomic.Int64 // how long a plan record takes
		isReconnection := func(groups []store.Group) bool {
			for i := range groups {
				for _, op := range groups[i].Ops {
					if op.Delete && strings.HasPrefix(op.Key, string(p)+"attempt/c.web.") {
						return true
					}
				}
			}
			return false
		}
		w.server.stop()
		w.faulty = w.engine.Open(memory.Hooks{Before: func(ctx context.Context, groups []store.Group) error {
			if hasPlacements(groups) {
				sleep(ctx, time.Duration(takes.Load()))
			}
			if late.Load() == nil && isReconnection(groups) {
				late.Store(&groups)
				return store.ErrUnknown
			}
			return nil
		}})
		w.start()
		a := w.node("n1")
		w.definition(1, 1000)
		w.service(2, 1, 1)
		w.until(10*time.Second, "2 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 2 })
		a.kill()
		w.until(2*time.Minute, "2 lost", func(s *store.Snapshot) bool { return eventCounts(s)["task.lost"] == 2 })
		takes.Store(int64(3 * time.Second))
		w.node("n2")
		w.definition(2, 3000)
		w.put(p.Service("c", "side"), &cluster.Service{
			Cluster: "c", Name: "side", Count: 1, Definition: cluster.Ref{Name: "d", Version: 2}, Priority: 900,
			OnDisconnect: cluster.DisconnectKeep, Lifespan: cluster.Lifespan{Generation: 1, Created: time.Now()},
		})
		time.Sleep(time.Second) // in-bubble: inWorld makes one
		a.run()
		for range 20_000 { // the next try of the leader must not come before the agent dies
			if late.Load() != nil {
				break
			}
			time.Sleep(time.Millisecond) // in-bubble: inWorld makes one
		}
		if late.Load() == nil {
			t.Fatal("no attempt reconnects")
		}
		takes.Store(0)
		// The agent begins another registration, and dies before its full report.
		a.kill()
		e, _ := w.server.tables.Snapshot().NodeStatus("n1")
		again := *e.Value
		again.Session, again.Synced = again.Session+1, false
		w.put(e.Key, &again)
		w.node("n3")
		w.until(10*time.Second, "both tasks run elsewhere", func(s *store.Snapshot) bool {
			return countOn(s, "n2")+countOn(s, "n3") == 3
		})
		if _, err := w.engine.Commit(t.Context(), *late.Load()); err != nil {
			t.Fatal(err)
		}
		a.run()
		time.Sleep(time.Minute) // in-bubble: inWorld makes one
		live := map[cluster.TaskID]int{}
		for row := range w.server.tables.Snapshot().Attempts(cluster.OwnerRef{
			Kind: cluster.KindService, Cluster: "c", Name: "web",
		}) {
			if row.Outcome == nil {
				live[row.Task]++
			}
		}
		for task, n := range live { // order-free: each by itself
			if n != 1 {
				t.Errorf("%s has %d attempts without an outcome, want 1", task, n)
			}
		}
		if len(live) != 2 {
			t.Errorf("%d tasks have an attempt without an outcome, want 2", len(live))
		}
	})
}
