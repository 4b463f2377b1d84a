package nodewatch

import (
	"log/slog"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane/planetest"
	"github.com/berthd/berth/internal/logic/watcher"
	"github.com/berthd/berth/internal/store"
)

// testWatch is a Watch over tables that the test writes, at a time that the test sets.
type testWatch struct {
	*Watch
	t      *testing.T
	tables *planetest.Tables
	now    time.Duration
	events map[string]int
}

// newTestWatch returns a watch whose leader has led for two minutes.
func newTestWatch(t *testing.T) *testWatch {
	t.Helper()
	v := &testWatch{t: t, tables: planetest.NewTables(t), now: time.Hour, events: map[string]int{}}
	v.Watch = New(Config{
		Tables: v.tables.Tables, Domain: cluster.DefaultDomain, Logger: slog.New(slog.DiscardHandler),
		Clock: func() time.Duration { return v.now },
	}, 1, func() bool { return false })
	v.advance(2 * time.Minute)
	return v
}

// advance lets time pass, with a judgement each second, and writes the verdicts.
func (v *testWatch) advance(d time.Duration) {
	v.t.Helper()
	for end := v.now + d; v.now < end; {
		v.now += time.Second
		out, _ := v.Judge(v.tables.Snapshot(), store.Changes{Resync: true}, time.Unix(0, 0).Add(v.now))
		for _, u := range out.Units {
			for _, e := range u.Events {
				v.events[e.Type]++
			}
			v.tables.Commit(u.Group)
		}
	}
}

func (v *testWatch) register(name string, session uint64, synced bool) {
	v.t.Helper()
	v.tables.Put(v.tables.Prefix().NodeStatus(name), &cluster.NodeStatus{
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
	if a := v.AbsenceOf(name, cluster.KindService); got.Node.State != state || a != absence ||
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

// A node that registers and never reports is silent from its registration on.
func TestNodeThatOnlyRegistered(t *testing.T) {
	v := newTestWatch(t)
	v.register("a", 1, false)
	v.advance(19 * time.Second)
	v.wantVerdict("a", cluster.NodeJoining, watcher.Present, 0)
	v.advance(50 * time.Second)
	v.wantVerdict("a", cluster.NodeDown, watcher.Silent, 0)
}
