package nodewatch

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// observer is a Watch with tables of its own.
type observer struct {
	tables *store.Tables
	follow *store.Follower
	watch  *Watch
}

// nodesWorld is a store that two watches judge at the same times, with a clock.
type nodesWorld struct {
	t         *rapid.T
	engine    *memory.Engine
	now       time.Duration
	observers []*observer
	session   map[string]uint64
	seq       uint64
}

func newNodesWorld(ctx context.Context, t *rapid.T, running *sync.WaitGroup) *nodesWorld {
	w := &nodesWorld{t: t, engine: memory.New(memory.Options{}), now: time.Hour, session: map[string]uint64{}}
	for range 2 {
		o := &observer{tables: store.NewTables(
			store.TablesConfig{Engine: w.engine, Logger: slog.New(slog.DiscardHandler)})}
		running.Go(func() { _ = o.tables.Run(ctx) })
		<-o.tables.Synced()
		o.follow = o.tables.Follow()
		w.observers = append(w.observers, o)
	}
	w.startTerm()
	return w
}

// startTerm begins a leader's term over tables that former leaders wrote.
func (w *nodesWorld) startTerm() {
	for _, o := range w.observers {
		nothing := func() bool { return false }
		if o.watch != nil {
			o.watch.StartTerm(1, nothing)
			continue
		}
		o.watch = New(Config{
			Tables: o.tables, Domain: cluster.DefaultDomain, Logger: slog.New(slog.DiscardHandler),
			Clock: func() time.Duration { return w.now },
		}, 1, nothing)
	}
}

func (w *nodesWorld) wall() time.Time { return time.Unix(1_700_000_000, 0).UTC().Add(w.now) }

// commit writes groups, and both tables then show them.
func (w *nodesWorld) commit(groups ...store.Group) {
	if _, err := w.engine.Commit(context.Background(), groups); err != nil {
		w.t.Fatal(err)
	}
	for _, o := range w.observers {
		if _, err := o.tables.Settled(context.Background()); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *nodesWorld) put(key string, record any) {
	value, err := store.Encode(record)
	if err != nil {
		w.t.Fatal(err)
	}
	w.commit(store.Group{Ops: []store.Op{{Key: key, Value: value}}})
}

func (w *nodesWorld) remove(key string) {
	w.commit(store.Group{Ops: []store.Op{{Key: key, Delete: true}}})
}

// act changes something about a node, or lets time pass.
func (w *nodesWorld) act() {
	t := w.t
	name := fmt.Sprintf("n%02d", rapid.IntRange(0, 12).Draw(t, "node"))
	keys := w.observers[0].tables.Prefix()
	switch rapid.SampledFrom([]string{
		"pulse", "pulse", "pulses", "soon", "soon", "register", "register", "host",
		"settings", "remove", "time", "time", "quiet", "drop", "strangers", "unkillable", "term",
	}).Draw(t, "act") {
	case "pulse":
		w.pulse(name)
	case "pulses":
		for node := range w.session { // order-free: each by itself
			w.pulse(node)
		}
	case "soon": // its stream broke
		for _, o := range w.observers {
			if p, ok := o.tables.Pulse(name); ok {
				p.Next = min(p.Next, w.now+5*time.Second-p.At)
				o.tables.SetPulse(name, p)
			}
		}
	case "register":
		w.session[name]++
		w.put(keys.NodeStatus(name), &cluster.NodeStatus{
			Name: name, Session: w.session[name], Registered: w.wall(), Synced: rapid.Bool().Draw(t, "synced"),
		})
	case "host":
		h := &cluster.Host{Name: name, Gone: rapid.Bool().Draw(t, "gone")}
		if rapid.Bool().Draw(t, "drained") {
			h.Drain = &cluster.Drain{}
		}
		if rapid.Bool().Draw(t, "elsewhere") {
			h.Domain = "other"
		}
		w.put(keys.Host(name), h)
	case "settings":
		w.put(keys.Domain(cluster.DefaultDomain), &cluster.Domain{RescheduleUntil: w.wall().Add(time.Minute)})
	case "remove":
		w.remove(rapid.SampledFrom([]string{keys.NodeStatus(name), keys.Node(name), keys.Host(name)}).Draw(t, "record"))
	case "drop": // the tables found that the node was forgotten
		for _, o := range w.observers {
			o.tables.DropPulse(name)
		}
	case "strangers": // more come and go than the tables remember one by one
		for i := range 1100 {
			for _, o := range w.observers {
				o.tables.SetPulse(fmt.Sprintf("stranger%d", i), cluster.Pulse{Session: 1, At: w.now})
				o.tables.DropPulse(fmt.Sprintf("stranger%d", i))
			}
		}
	case "unkillable":
		row := &store.AttemptRow{}
		row.Node, row.Observed = name, &cluster.Observed{State: cluster.StateStopping}
		if rapid.Bool().Draw(t, "lives") {
			row.Observed.Reason = cluster.ReasonUnkillable
		}
		for _, o := range w.observers {
			o.watch.NoteUnkillable(store.AttemptKey{Task: "c.s.1.0", Number: 1}, row)
		}
	case "term":
		w.startTerm()
	case "quiet": // for longer than any limit, in steps below the gap of the watcher
		for range rapid.IntRange(1, 24).Draw(t, "passes") {
			w.now += 4 * time.Second
			w.compare(true)
		}
	case "time":
		w.now += time.Duration(rapid.SampledFrom([]int{1, 100, 999, 1000, 1000, 2000, 4000, 20_000, 61_000}).Draw(t,
			"ms")) * time.Millisecond
	}
}

func (w *nodesWorld) pulse(name string) {
	w.seq++
	p := cluster.Pulse{
		Session: w.session[name], Seq: w.seq, At: w.now,
		Next: time.Duration(rapid.SampledFrom([]int{5, 60, 60}).Draw(w.t, "promise")) * time.Second,
	}
	for _, o := range w.observers {
		o.tables.SetPulse(name, p)
	}
}

// TestDueNodesSuffice: a watch that judges changed and due nodes reaches the same verdicts, at the same times, as one
// that judges all nodes in each pass.
func TestDueNodesSuffice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		w := newNodesWorld(ctx, t, &running)
		for i := range 11 {
			name := fmt.Sprintf("n%02d", i)
			w.session[name] = 1
			w.put(w.observers[0].tables.Prefix().NodeStatus(name),
				&cluster.NodeStatus{Name: name, Session: 1, Registered: w.wall(), Synced: true})
			w.pulse(name)
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			for range rapid.IntRange(0, 3).Draw(t, "acts") {
				w.act()
			}
			w.compare(rapid.IntRange(0, 9).Draw(t, "written") > 0)
		}
	})
}

// compare lets both watches judge and compares the results. It writes them if write is true.
func (w *nodesWorld) compare(write bool) {
	w.t.Helper()
	due, every := w.observers[0], w.observers[1]
	every.watch.sharedInputs = sharedInputs{} // judges all nodes in each pass
	last := due.watch.last
	var out [2]Judged
	for i, o := range w.observers {
		changes := o.follow.Take()
		out[i], _ = o.watch.Judge(o.tables.Snapshot(), changes, w.wall())
		slices.Sort(out[i].Touched)
	}
	if diff := cmp.Diff(out[1].Touched, out[0].Touched); diff != "" {
		w.t.Fatalf("nodes that mean something else now (-all +due):\n%s", diff)
	}
	if !reflect.DeepEqual(out[0].Units, out[1].Units) {
		w.t.Fatalf("judging all nodes writes\n%+v\njudging the due nodes\n%+v", out[1].Units, out[0].Units)
	}
	if diff := cmp.Diff(every.watch.summary(), due.watch.summary()); diff != "" {
		w.t.Fatalf("verdicts (-all +due):\n%s", diff)
	}
	var verdicts []watcher.Verdict
	for _, v := range every.watch.verdicts { // order-free: IsMassSilence sorts
		verdicts = append(verdicts, v.Verdict)
	}
	if massSilence := watcher.IsMassSilence(verdicts, w.now, every.watch.options); due.watch.last != last &&
		massSilence != due.watch.massSilence {
		w.t.Fatalf("a mass silence: %v, want %v", due.watch.massSilence, massSilence)
	}
	if !write {
		return
	}
	writer := store.NewWriter(w.engine, due.tables.Prefix(), nil, func() uint64 { return 1 })
	if _, _, err := writer.Commit(context.Background(), out[0].Units); err != nil {
		w.t.Fatal(err)
	}
	w.commit()
}

// summary returns the properties of verdicts that decisions use, by node.
func (w *Watch) summary() map[string]string {
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(w.verdicts)) {
		v := w.verdicts[name]
		out[name] = fmt.Sprintf("%s until %v, last report %v, foreign %v, gone %v, drain %v, service %s, job %s",
			v.Node.State, v.Node.Until, v.Heard,
			v.Foreign, w.IsGone(name), w.DrainOf(name) != nil, v.Absence(false), v.Absence(true))
	}
	return out
}
