package store_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// reader rebuilds all pulses from the changes that it receives.
type reader struct {
	mark   uint64
	pulses map[string]cluster.Pulse
}

func (r *reader) read(tables *store.Tables) store.PulseChanges {
	c := tables.PulsesSince(r.mark)
	r.mark = c.Mark
	if c.All {
		r.pulses = map[string]cluster.Pulse{}
	}
	maps.Copy(r.pulses, c.Pulses)
	for _, node := range c.Dropped {
		delete(r.pulses, node)
	}
	return c
}

// Readers that read changes at different rates know all pulses after any sequence of sets and drops. A reader that
// reads twice in a row receives nothing the second time.
func TestPulseChangesAreLossless(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		engine := memory.New(memory.Options{})
		defer engine.Close()
		tables := store.NewTables(store.TablesConfig{Engine: engine})
		readers := []*reader{{}, {}, {}}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			node := fmt.Sprintf("n%d", rapid.IntRange(0, 5).Draw(t, "node"))
			switch rapid.SampledFrom(
				[]string{"set", "set", "set", "drop", "drop", "churn", "read", "read", "read"}).Draw(t, "act") {
			case "set": // older pulses are ignored
				tables.SetPulse(node, cluster.Pulse{
					Session: uint64(rapid.IntRange(1, 2).Draw(t, "session")),
					Seq:     uint64(rapid.IntRange(0, 5).Draw(t, "seq")),
					Next:    time.Duration(rapid.IntRange(1, 3).Draw(t, "next")) * time.Second,
				})
			case "drop":
				tables.DropPulse(node)
			case "churn": // up to more nodes than the table remembers as dropped
				for i := range rapid.SampledFrom([]int{3, 1000, 1100}).Draw(t, "nodes") {
					name := fmt.Sprintf("gone%d", i)
					tables.SetPulse(name, cluster.Pulse{Session: 1})
					if i%50 != 0 {
						tables.DropPulse(name)
					}
				}
			case "read":
				r := readers[rapid.IntRange(0, len(readers)-1).Draw(t, "reader")]
				r.read(tables)
				if diff := cmp.Diff(tables.Pulses(), r.pulses); diff != "" {
					t.Fatalf("what a reader knows (-want +got):\n%s", diff)
				}
				if c := r.read(tables); r.mark != 0 && (c.All || len(c.Pulses)+len(c.Dropped) > 0) {
					t.Fatalf("received again: %+v", c)
				}
			}
			for node, p := range tables.Pulses() {
				if got, ok := tables.Pulse(node); !ok || got != p {
					t.Fatalf("the pulse of %s is %+v, %v, among all it is %+v", node, got, ok, p)
				}
			}
		}
	})
}

// A reader receives only changes, and all pulses after too many nodes were dropped.
func TestPulseChangesAreFew(t *testing.T) {
	engine := memory.New(memory.Options{})
	defer engine.Close()
	tables := store.NewTables(store.TablesConfig{Engine: engine})
	for i := range 100 {
		tables.SetPulse(fmt.Sprintf("n%d", i), cluster.Pulse{Session: 1})
	}
	first := tables.PulsesSince(0)
	if !first.All || len(first.Pulses) != 100 {
		t.Fatalf("the first answer has %d pulses, all: %v", len(first.Pulses), first.All)
	}
	tables.SetPulse("n7", cluster.Pulse{Session: 1, Seq: 1})
	tables.SetPulse("n7", cluster.Pulse{Session: 1, Seq: 2})
	tables.SetPulse("n8", cluster.Pulse{}) // of an older session
	tables.DropPulse("n9")
	tables.DropPulse("n9")
	want := store.PulseChanges{
		Mark: first.Mark + 3, Pulses: map[string]cluster.Pulse{"n7": {Session: 1, Seq: 2}},
		Dropped: []string{"n9"},
	}
	got := tables.PulsesSince(first.Mark)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	for i := range 1024 {
		tables.SetPulse(fmt.Sprintf("m%d", i), cluster.Pulse{Session: 1})
		tables.DropPulse(fmt.Sprintf("m%d", i))
	}
	if c := tables.PulsesSince(got.Mark); c.All || len(c.Dropped) != 1024 {
		t.Errorf("a reader that knows the end of n9: all %v, %d dropped; want 1024 one by one", c.All, len(c.Dropped))
	}
	if c := tables.PulsesSince(first.Mark); !c.All || len(c.Pulses) != 99 {
		t.Errorf("a reader that does not know of n9: all %v, %d pulses; want all 99", c.All, len(c.Pulses))
	}
}
