package controlplane

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// view is one reign's watch over tables that the test writes, at a time that the test sets.
type view struct {
	*watch
	t      *testing.T
	engine store.Engine
	tables *store.Tables
	now    time.Duration
	events map[string]int
}

// newView returns one whose leader has led for two minutes.
func newView(t *testing.T) *view {
	t.Helper()
	engine := memory.New(memory.Options{})
	v := &view{t: t, engine: engine, now: time.Hour, events: map[string]int{}}
	v.tables = store.NewTables(store.TablesConfig{Engine: engine, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = v.tables.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	v.watch = newWatch(Config{
		Tables: v.tables, Domain: cluster.DefaultDomain, Logger: slog.New(slog.DiscardHandler),
		Clock: func() time.Duration { return v.now },
	}, 1, func() bool { return false })
	v.pass(2 * time.Minute)
	return v
}

func (v *view) put(key string, record any) {
	v.t.Helper()
	value, err := store.Encode(record)
	if err != nil {
		v.t.Fatal(err)
	}
	v.commit([]store.Group{{Ops: []store.Op{{Key: key, Value: value}}}})
}

func (v *view) commit(groups []store.Group) {
	v.t.Helper()
	r, err := v.engine.Commit(v.t.Context(), groups)
	if err != nil {
		v.t.Fatal(err)
	}
	if _, err := v.tables.WaitFor(v.t.Context(), r.Revision); err != nil {
		v.t.Fatal(err)
	}
}

// pass lets time pass, with a look each second, and writes the verdicts.
func (v *view) pass(d time.Duration) {
	v.t.Helper()
	for end := v.now + d; v.now < end; {
		v.now += time.Second
		out, _ := v.judge(v.tables.Snapshot(), store.Changes{Resync: true}, time.Unix(0, 0).Add(v.now))
		for _, u := range out.units {
			for _, e := range u.Events {
				v.events[e.Type]++
			}
			v.commit([]store.Group{{Compares: u.Compares, Ops: u.Ops}})
		}
	}
}

func (v *view) registered(name string, session uint64, synced bool) {
	v.t.Helper()
	v.put(v.tables.Prefix().NodeStatus(name), &cluster.NodeStatus{
		Name: name, Session: session, Synced: synced, Registered: time.Unix(0, 0).Add(v.now),
	})
}

func (v *view) heard(name string, session, seq uint64) {
	v.tables.SetPulse(name, cluster.Pulse{Session: session, Seq: seq, At: v.now, Next: 5 * time.Second})
}

func (v *view) want(name string, state cluster.NodeState, absence watcher.Absence, returns int) {
	v.t.Helper()
	got := v.verdicts[name]
	if got == nil {
		v.t.Fatalf("nothing is known of %s", name)
	}
	if a := v.absence(name, cluster.KindService); got.Node.State != state || a != absence ||
		got.Node.Returns != returns {
		v.t.Errorf("%s is %s, its services' tasks are %v, and it returned %d times; want %s, %v and %d (silence %v)",
			name, got.Node.State, a, got.Node.Returns, state, absence, returns, got.Silence)
	}
}

// well makes a node that has been well for two minutes, by the session 1.
func (v *view) well(name string) {
	v.t.Helper()
	v.registered(name, 1, true)
	for seq := range uint64(120) {
		v.heard(name, 1, seq)
		v.pass(time.Second)
	}
	v.want(name, cluster.NodeReady, watcher.Present, 0)
}

// An agent moves to another server, whose digest comes here before the registration does, or after it, or late.
func TestDigestAndRegistrationInAnyOrder(t *testing.T) {
	for name, move := range map[string]func(v *view){
		"digest first": func(v *view) {
			v.heard("a", 2, 0)
			v.pass(time.Second)
			v.want("a", cluster.NodeReady, watcher.Present, 0)
			v.registered("a", 2, true)
		},
		"digest first, and tables that are late": func(v *view) {
			v.heard("a", 2, 0)
			v.pass(7 * time.Second)
			v.want("a", cluster.NodeReady, watcher.Present, 0)
			v.registered("a", 2, true)
		},
		"registration first": func(v *view) {
			v.pass(4 * time.Second)
			v.registered("a", 2, true)
			v.pass(2 * time.Second)
			v.want("a", cluster.NodeReady, watcher.Present, 0)
			v.heard("a", 2, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := newView(t)
			v.well("a")
			move(v)
			v.pass(2 * time.Second)
			v.want("a", cluster.NodeReady, watcher.Present, 0)
			v.heard("a", 2, 1)
			v.pass(time.Second)
			v.want("a", cluster.NodeReady, watcher.Present, 0)
			if v.events["node.suspect"]+v.events["node.down"] != 0 {
				t.Errorf("it was thought silent: %v", v.events)
			}
			v.pass(90 * time.Second)
			v.want("a", cluster.NodeDown, watcher.Silent, 0)
		})
	}
}

// New nodes register at another server: until its digest comes they are joining, which is no silence and no return.
func TestNewNodesElsewhere(t *testing.T) {
	v := newView(t)
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"}
	for _, name := range names {
		v.registered(name, 1, false)
	}
	v.pass(time.Second)
	for _, name := range names {
		v.want(name, cluster.NodeJoining, watcher.Present, 0)
		v.heard(name, 1, 0)
		v.registered(name, 1, true)
	}
	v.pass(time.Second)
	for _, name := range names {
		v.want(name, cluster.NodeReady, watcher.Present, 0)
	}
	if v.events["node.mass-silence"]+v.events["node.down"] != 0 {
		t.Errorf("new nodes were thought silent: %v", v.events)
	}
}

// One that registers and is never heard is silent from its registration on.
func TestNodeThatOnlyRegistered(t *testing.T) {
	v := newView(t)
	v.registered("a", 1, false)
	v.pass(19 * time.Second)
	v.want("a", cluster.NodeJoining, watcher.Present, 0)
	v.pass(50 * time.Second)
	v.want("a", cluster.NodeDown, watcher.Silent, 0)
}

// After a recovery an attempt that the store does not know tells of another loss, unless it is of the first one.
func TestAttemptOfWhichLoss(t *testing.T) {
	decided := time.Unix(0, 0).Add(time.Hour)
	for name, c := range map[string]struct {
		started time.Time
		plan    uint64
		want    bool
	}{
		"begun before the decision":               {started: decided.Add(-time.Minute), plan: 9},
		"begun after it":                          {started: decided.Add(time.Minute), plan: 3, want: true},
		"not begun, of a plan that was seen then": {plan: 7},
		"not begun, of a later plan":              {plan: 8, want: true},
		"of a plan that the store knows":          {started: decided.Add(time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			v := newView(t)
			p := v.tables.Prefix()
			v.put(p.Node("a"), &cluster.Node{Name: "a", Domain: cluster.DefaultDomain, Generation: 1, Session: 1})
			v.put(p.NodeStatus("a"), &cluster.NodeStatus{
				Name: "a", Session: 1,
				Token: cluster.Token{Generation: 1, Incarnation: 5, Epoch: 1},
			})
			v.put(p.Recovery(cluster.DefaultDomain),
				&cluster.Recovery{State: cluster.RecoveryAdopt, Plan: 7, Decided: decided})
			task := cluster.ServiceTask("c", "web", 1, 0)
			v.put(p.Observed("a", task), &cluster.Observed{
				Task: task, Attempt: 1, UUID: "u", Node: "a", State: cluster.StateStarting, Started: c.started,
				Plan: c.plan,
			})
			s := sentry{config: v.config, fence: &store.Fence{Incarnation: 5, Epoch: 2}}
			if got := s.look(v.tables.Snapshot(), store.Changes{Resync: true}, decided); got != c.want {
				t.Errorf("the alarm is given: %v, want %v", got, c.want)
			}
		})
	}
}

// The evidence that the store went back is there for one sentry of a reign, and gone when the other looks, as the lost
// plan's number was given again: both are alarmed.
func TestSentriesOfAReignShareTheAlarm(t *testing.T) {
	v := newView(t)
	p := v.tables.Prefix()
	v.put(p.Node("a"), &cluster.Node{Name: "a", Domain: cluster.DefaultDomain, Generation: 1, Session: 1})
	v.put(p.NodeStatus("a"), &cluster.NodeStatus{
		Name: "a", Session: 1,
		Token: cluster.Token{Generation: 1, Incarnation: 5, Epoch: 1},
	})
	task := cluster.ServiceTask("c", "web", 1, 0)
	v.put(p.Observed("a", task),
		&cluster.Observed{Task: task, Attempt: 1, UUID: "u", Node: "a", State: cluster.StateRunning, Plan: 1})
	one := sentry{config: v.config, fence: &store.Fence{Incarnation: 5, Epoch: 2}, shared: new(alarms)}
	other := one
	if !one.look(v.tables.Snapshot(), store.Changes{Resync: true}, time.Unix(0, 0)) {
		t.Fatal("no alarm is given of a plan that the store does not have")
	}
	v.put(p.Plan(1), &cluster.PlanRecord{Seq: 1, Token: cluster.Token{Incarnation: 5, Epoch: 2}})
	if !other.look(v.tables.Snapshot(), store.Changes{Resync: true}, time.Unix(0, 0)) || other.alarm != one.alarm {
		t.Errorf("the other sentry has the alarm %v, want %v", other.alarm, one.alarm)
	}
}
