package fleetview

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane/nodewatch"
	"github.com/berthd/berth/internal/controlplane/planetest"
	"github.com/berthd/berth/internal/controlplane/queue"
	"github.com/berthd/berth/internal/store"
)

// newLearner returns a learner over tables with a number of services, and a function that returns the marked owners and
// unmarks them.
func newLearner(t *testing.T, owners int) (*planetest.Tables, *Learner, func() []cluster.OwnerRef) {
	t.Helper()
	tables := planetest.NewTables(t)
	p := tables.Prefix()
	for i := range owners {
		name := fmt.Sprintf("web%d", i)
		tables.Put(p.Service("c", name),
			&cluster.Service{Cluster: "c", Name: name, Count: 1, Lifespan: cluster.Lifespan{Generation: 1}})
	}
	watch := nodewatch.New(nodewatch.Config{
		Tables: tables.Tables, Domain: cluster.DefaultDomain, Logger: slog.New(slog.DiscardHandler),
		Clock: func() time.Duration { return time.Hour },
	}, 1, func() bool { return false })
	queue := queue.NewOwners(p, 1000)
	return tables, NewLearner(New(cluster.DefaultDomain, watch), queue), func() []cluster.OwnerRef {
		all := queue.Ordered(tables.Snapshot(), nil, func(cluster.OwnerRef) bool { return false })
		queue.Finish(all, func(cluster.OwnerRef) bool { return false })
		return all
	}
}

// A changed pool concerns all owners, because each may name it without a strategy of its own.
func TestChangedPoolIsLearnt(t *testing.T) {
	const owners = 3
	tables, l, marked := newLearner(t, owners)
	now := time.Unix(1_700_000_000, 0)
	f := tables.Follow()
	defer f.Close()
	<-f.Wake()
	l.Learn(tables.Snapshot(), f.Take(), now)
	marked()
	tables.Put(tables.Prefix().Pool("gpu"), &cluster.Pool{Name: "gpu", Strategy: cluster.StrategyWhole})
	<-f.Wake()
	l.Learn(tables.Snapshot(), f.Take(), now)
	if n := len(marked()); n != owners {
		t.Errorf("a changed pool makes the leader decide for %d owners, want all %d", n, owners)
	}
}

// A leader of an idle fleet decides for a part of the owners each minute, and for each owner again within relearnParts
// minutes.
func TestIdleFleetIsLearntInParts(t *testing.T) {
	const owners = 400
	tables, l, marked := newLearner(t, owners)
	snap, now := tables.Snapshot(), time.Unix(1_700_000_000, 0)
	l.Learn(snap, store.Changes{Resync: true}, now)
	if n := len(marked()); n != owners {
		t.Errorf("a new leader decides for %d owners, want all %d", n, owners)
	}

	turns := map[cluster.OwnerRef]int{}
	for minute := range relearnParts {
		l.Learn(snap, store.Changes{}, now)
		if n := len(marked()); n != 0 {
			t.Fatalf("%d owners are decided for before the interval is over", n)
		}
		now = now.Add(relearnInterval)
		l.Learn(snap, store.Changes{}, now)
		part := marked()
		if len(part) > owners/relearnParts*2 {
			t.Errorf("minute %d: %d of %d owners are decided for, though nothing changed", minute, len(part), owners)
		}
		for _, o := range part {
			turns[o]++
		}
	}
	if len(turns) != owners {
		t.Errorf("%d of %d owners had a turn after all parts", len(turns), owners)
	}
	for o, n := range turns { // order-free: each by itself
		if n != 1 {
			t.Errorf("%s had %d turns, want 1", o, n)
		}
	}
}
