package controlplane

import (
	"fmt"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// A leader of an idle fleet decides for a part of the owners each minute, and for each owner again within relearnParts
// minutes.
func TestIdleFleetIsLearntInParts(t *testing.T) {
	const owners = 400
	v := newTestWatch(t)
	p := v.tables.Prefix()
	for i := range owners {
		name := fmt.Sprintf("web%d", i)
		v.put(p.Service("c", name),
			&cluster.Service{Cluster: "c", Name: name, Count: 1, Lifespan: cluster.Lifespan{Generation: 1}})
	}
	l := v.newLoop()
	defer l.follow.Close()
	snap := v.tables.Snapshot()
	l.clock.now = time.Unix(1_700_000_000, 0)
	l.learner.learn(snap, store.Changes{Resync: true}, l.clock.now)
	if len(l.queue.dirty) != owners {
		t.Errorf("a new leader decides for %d owners, want all %d", len(l.queue.dirty), owners)
	}

	turns := map[cluster.OwnerRef]int{}
	for minute := range relearnParts {
		clear(l.queue.dirty)
		l.learner.learn(snap, store.Changes{}, l.clock.now)
		if len(l.queue.dirty) != 0 {
			t.Fatalf("%d owners are decided for before the interval is over", len(l.queue.dirty))
		}
		l.clock.now = l.clock.now.Add(relearnInterval)
		l.learner.learn(snap, store.Changes{}, l.clock.now)
		if len(l.queue.dirty) > owners/relearnParts*2 {
			t.Errorf("minute %d: %d of %d owners are decided for, though nothing changed", minute, len(l.queue.dirty),
				owners)
		}
		for o := range l.queue.dirty { // order-free: each is counted by itself
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
