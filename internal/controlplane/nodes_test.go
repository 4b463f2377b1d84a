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

// testWatch is a nodeWatch over tables that the test writes, at a time that the test sets.
type testWatch struct {
	*nodeWatch
	t      *testing.T
	engine store.Engine
	tables *store.Tables
	now    time.Duration
	events map[string]int
}

// newTestWatch returns a watch whose leader has led for two minutes.
func newTestWatch(t *testing.T) *testWatch {
	t.Helper()
	engine := memory.New(memory.Options{})
	v := &testWatch{t: t, engine: engine, now: time.Hour, events: map[string]int{}}
	v.tables = store.NewTables(store.TablesConfig{Engine: engine, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = v.tables.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	v.nodeWatch = newNodeWatch(nodeWatchConfig{
		Tables: v.tables, Domain: cluster.DefaultDomain, Logger: slog.New(slog.DiscardHandler),
		Clock: func() time.Duration { return v.now },
	}, 1, func() bool { return false })
	v.advance(2 * time.Minute)
	return v
}

// newLoop returns the loop of a leader with the watch.
func (v *testWatch) newLoop() *loop {
	l := newLoop(&Plane{config: Config{
		Tables: v.tables, Domain: v.config.Domain, Logger: v.config.Logger, Clock: v.config.Clock,
	}})
	l.term = &term{fence: &store.Fence{Incarnation: 5, Epoch: 2}}
	*l.nodes = *v.nodeWatch
	v.nodeWatch = l.nodes
	return l
}

func (v *testWatch) put(key string, record any) {
	v.t.Helper()
	value, err := store.Encode(record)
	if err != nil {
		v.t.Fatal(err)
	}
	v.commit([]store.Group{{Ops: []store.Op{{Key: key, Value: value}}}})
}

func (v *testWatch) commit(groups []store.Group) {
	v.t.Helper()
	r, err := v.engine.Commit(v.t.Context(), groups)
	if err != nil {
		v.t.Fatal(err)
	}
	if _, err := v.tables.WaitFor(v.t.Context(), r.Revision); err != nil {
		v.t.Fatal(err)
	}
}

// advance lets time pass, with a judgement each second, and writes the verdicts.
func (v *testWatch) advance(d time.Duration) {
	v.t.Helper()
	for end := v.now + d; v.now < end; {
		v.now += time.Second
		out, _ := v.judgeNodes(v.tables.Snapshot(), store.Changes{Resync: true}, time.Unix(0, 0).Add(v.now))
		for _, u := range out.units {
			for _, e := range u.Events {
				v.events[e.Type]++
			}
			v.commit([]store.Group{{Compares: u.Compares, Ops: u.Ops}})
		}
	}
}

func (v *testWatch) register(name string, session uint64, synced bool) {
	v.t.Helper()
	v.put(v.tables.Prefix().NodeStatus(name), &cluster.NodeStatus{
		Name: name, Session: session, Synced: synced, Registered: time.Unix(0, 0).Add(v.now),
	})
}

func (v *testWatch) pulse(name string, session, seq uint64) {
	v.tables.SetPulse(name, cluster.Pulse{Session: session, Seq: seq, At: v.now, Next: 5 * time.Second})
}

func (v *testWatch) wantVerdict(name string, state cluster.NodeState, absence watcher.Absence, returns int) {
	v.t.Helper()
	got := v.verdicts[name]
	if got == nil {
		v.t.Fatalf("nothing is known of %s", name)
	}
	if a := v.absenceOf(name, cluster.KindService); got.Node.State != state || a != absence ||
		got.Node.Returns != returns {
		v.t.Errorf("%s is %s, its services' tasks are %v, and it returned %d times; want %s, %v and %d (silence %v)",
			name, got.Node.State, a, got.Node.Returns, state, absence, returns, got.Silence)
	}
}

// settledNode makes a node that has been ready for two minutes, in session 1.
func (v *testWatch) settledNode(name string) {
	v.t.Helper()
	v.register(name, 1, true)
	for seq := range uint64(120) {
		v.pulse(name, 1, seq)
		v.advance(time.Second)
	}
	v.wantVerdict(name, cluster.NodeReady, watcher.Present, 0)
}

// An agent moves to another server. Its digest arrives before the registration, after it, or late.
func TestDigestAndRegistrationInAnyOrder(t *testing.T) {
	for name, move := range map[string]func(v *testWatch){
		"digest first": func(v *testWatch) {
			v.pulse("a", 2, 0)
			v.advance(time.Second)
			v.wantVerdict("a", cluster.NodeReady, watcher.Present, 0)
			v.register("a", 2, true)
		},
		"digest first, and tables that are late": func(v *testWatch) {
			v.pulse("a", 2, 0)
			v.advance(7 * time.Second)
			v.wantVerdict("a", cluster.NodeReady, watcher.Present, 0)
			v.register("a", 2, true)
		},
		"registration first": func(v *testWatch) {
			v.advance(4 * time.Second)
			v.register("a", 2, true)
			v.advance(2 * time.Second)
			v.wantVerdict("a", cluster.NodeReady, watcher.Present, 0)
			v.pulse("a", 2, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := newTestWatch(t)
			v.settledNode("a")
			move(v)
			v.advance(2 * time.Second)
			v.wantVerdict("a", cluster.NodeReady, watcher.Present, 0)
			v.pulse("a", 2, 1)
			v.advance(time.Second)
			v.wantVerdict("a", cluster.NodeReady, watcher.Present, 0)
			if v.events["node.suspect"]+v.events["node.down"] != 0 {
				t.Errorf("it was thought silent: %v", v.events)
			}
			v.advance(90 * time.Second)
			v.wantVerdict("a", cluster.NodeDown, watcher.Silent, 0)
		})
	}
}

// New nodes register at another server: until its digest comes they are joining, which is no silence and no return.
func TestNewNodesElsewhere(t *testing.T) {
	v := newTestWatch(t)
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"}
	for _, name := range names {
		v.register(name, 1, false)
	}
	v.advance(time.Second)
	for _, name := range names {
		v.wantVerdict(name, cluster.NodeJoining, watcher.Present, 0)
		v.pulse(name, 1, 0)
		v.register(name, 1, true)
	}
	v.advance(time.Second)
	for _, name := range names {
		v.wantVerdict(name, cluster.NodeReady, watcher.Present, 0)
	}
	if v.events["node.mass-silence"]+v.events["node.down"] != 0 {
		t.Errorf("new nodes were thought silent: %v", v.events)
	}
}

// A node that registers and is never heard is silent from its registration on.
func TestNodeThatOnlyRegistered(t *testing.T) {
	v := newTestWatch(t)
	v.register("a", 1, false)
	v.advance(19 * time.Second)
	v.wantVerdict("a", cluster.NodeJoining, watcher.Present, 0)
	v.advance(50 * time.Second)
	v.wantVerdict("a", cluster.NodeDown, watcher.Silent, 0)
}

// After a recovery an attempt that the store does not know proves another loss, unless it belongs to the first one.
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
			v := newTestWatch(t)
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
			s := lossDetector{
				domain: cluster.DefaultDomain, fence: &store.Fence{Incarnation: 5, Epoch: 2},
			}
			if got := s.check(v.tables.Snapshot(), store.Changes{Resync: true}, decided); got != c.want {
				t.Errorf("the alarm is given: %v, want %v", got, c.want)
			}
		})
	}
}

// One detector of a term sees the evidence of a loss. It is gone when the other one looks, as the number of the lost
// plan was given again. Both give the alarm.
func TestLossDetectorsShareTheAlarm(t *testing.T) {
	v := newTestWatch(t)
	p := v.tables.Prefix()
	v.put(p.Node("a"), &cluster.Node{Name: "a", Domain: cluster.DefaultDomain, Generation: 1, Session: 1})
	v.put(p.NodeStatus("a"), &cluster.NodeStatus{
		Name: "a", Session: 1,
		Token: cluster.Token{Generation: 1, Incarnation: 5, Epoch: 1},
	})
	task := cluster.ServiceTask("c", "web", 1, 0)
	v.put(p.Observed("a", task),
		&cluster.Observed{Task: task, Attempt: 1, UUID: "u", Node: "a", State: cluster.StateRunning, Plan: 1})
	one := lossDetector{
		domain: cluster.DefaultDomain, fence: &store.Fence{Incarnation: 5, Epoch: 2},
		shared: new(sharedAlarm),
	}
	other := one
	if !one.check(v.tables.Snapshot(), store.Changes{Resync: true}, time.Unix(0, 0)) {
		t.Fatal("no alarm is given of a plan that the store does not have")
	}
	v.put(p.Plan(1), &cluster.PlanRecord{Seq: 1, Token: cluster.Token{Incarnation: 5, Epoch: 2}})
	if !other.check(v.tables.Snapshot(), store.Changes{Resync: true}, time.Unix(0, 0)) || other.alarm != one.alarm {
		t.Errorf("the other detector has the alarm %v, want %v", other.alarm, one.alarm)
	}
}
