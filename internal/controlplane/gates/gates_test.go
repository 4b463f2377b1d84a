package gates

import (
	"context"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane/planetest"
)

// The cycle begins and ends the checks of a service's gates. Reading results changes nothing, whatever the reader asks.
func TestReadingResultsChangesNothing(t *testing.T) {
	tables := planetest.NewTables(t)
	p := tables.Prefix()
	spec := &cluster.Service{
		Cluster: "c", Name: "web", Count: 1, Lifespan: cluster.Lifespan{Generation: 2},
		Update: cluster.Update{Gates: []cluster.Gate{{Name: "errors"}}},
	}
	rollout := &cluster.Rollout{
		Version: cluster.Version{Generation: 2, State: cluster.RolloutRolling}, Most: 1,
		Changed: time.Unix(1_700_000_000, 0).UTC(),
	}
	tables.Put(p.Service("c", "web"), spec)
	tables.Put(p.Rollout("c", "web"), rollout)
	now := time.Hour
	asked := 0
	g := New(Config{
		Check: func(context.Context, cluster.Gate) (bool, string, error) { return true, "", nil },
		Ask: func(context.Context, func(context.Context)) bool {
			asked++
			return false // too many are running
		},
		Now: func() time.Time { return time.Unix(0, 0).Add(now) }, Clock: func() time.Duration { return now },
	})
	o := spec.Owner()
	checked := func() bool {
		now += time.Hour
		asked = 0
		g.AskDue(t.Context())
		return asked > 0
	}

	if got := g.Results(o, spec, rollout); len(got) != 1 || got[0].Name != "errors" || got[0].Passes != 0 {
		t.Errorf("before the gates are checked the results are %+v, want an empty one", got)
	}
	if g.Seen(o) != nil || checked() {
		t.Error("reading results began the checks")
	}
	g.Follow(tables.Snapshot(), o)
	if len(g.Seen(o)) != 1 || !checked() {
		t.Error("the gates of a continuing rollout are not checked")
	}
	paused := *spec
	paused.Rollout.Paused = true
	for name, read := range map[string]*cluster.Service{"a paused rollout": &paused, "no service": nil} {
		g.Results(o, read, rollout)
		if len(g.Seen(o)) != 1 || !checked() {
			t.Errorf("reading the results of %s ended the checks", name)
		}
	}
	tables.Put(p.Service("c", "web"), &paused)
	g.Follow(tables.Snapshot(), o)
	if g.Seen(o) != nil || checked() {
		t.Error("the gates of a paused rollout are checked")
	}
}
