package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// addRebalancings lets users move tasks of services.
func (a *generator) addRebalancings() {
	for range 1 + a.random.IntN(3) {
		a.add(a.randomTime(), User, []string{"web", "api", "disk"}[a.random.IntN(3)], 0,
			fmt.Sprintf("rebalance %d", 1+a.random.IntN(4)))
	}
}

// rebalance requests moves of up to n tasks of a service, each to a random node. Berth skips moves that do not fit.
// Instead, rebalance may cancel a running rebalancing. A refused request is not repeated.
func (u *user) rebalance(ctx context.Context, service string, n int) {
	d := u.fleet.random.roll("rebalance")
	s := u.fleet.hosts[d.below(len(u.fleet.hosts))].liveServer()
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	snap := s.tables.Snapshot()
	if e, ok := snap.RunningRebalancing(cluster.DefaultDomain); ok {
		next := *e.Value
		next.Cancelled = true
		if d.below(2) == 0 {
			u.propose(ctx, s, &next, e.Modified)
		}
		return
	}
	rec := &cluster.Rebalancing{
		ID: 1, Domain: cluster.DefaultDomain, Created: time.Now().UTC(), Parallel: 1 +
			d.below(3), State: cluster.RebalancingRunning,
	}
	for e := range snap.Rebalancings() {
		rec.ID = e.Value.ID + 1
	}
	for row := range snap.Attempts(cluster.OwnerRef{Kind: cluster.KindService, Cluster: inCluster, Name: service}) {
		to := u.fleet.nodes[d.below(len(u.fleet.nodes))].name
		if len(rec.Moves) == n || !row.Live() || row.Desired == nil || row.Desired.Stop != nil || row.Node == to {
			continue
		}
		rec.Moves = append(rec.Moves, cluster.RebalancingMove{
			Task: row.Task, Attempt: row.Number, UUID: row.Desired.UUID, From: row.Node, To: to,
			State: cluster.MoveWaiting,
		})
	}
	if len(rec.Moves) > 0 {
		u.propose(ctx, s, rec, 0)
	}
}

// propose writes the record of a rebalancing as the API server does. The write may be refused, or its acknowledgement
// lost.
func (u *user) propose(ctx context.Context, s *server, rec *cluster.Rebalancing, modified uint64) {
	var unit store.Unit
	key := prefix.Rebalancing(rec.ID)
	unit.Compare(key, modified)
	if err := unit.Put(key, rec); err != nil {
		panic(err) // a fault of the simulator
	}
	_, _ = s.engine.Commit(ctx, []store.Group{unit.Group})
}
