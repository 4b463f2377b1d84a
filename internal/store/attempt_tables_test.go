package store

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
)

// All lookups of attempts agree after any sequence of changes, and an earlier snapshot does not change.
func TestRowsAreFoundEachWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newState(func(key string, err error) { t.Fatalf("%s: %v", key, err) })
		var held *Snapshot
		var was []string
		for revision := range rapid.Uint64Range(1, 60).Draw(t, "changes") {
			task := cluster.JobTask("c", "j", 1, "s", rapid.IntRange(0, 12).Draw(t, "task"))
			node := fmt.Sprint("n", rapid.IntRange(0, 2).Draw(t, "node"))
			n := rapid.IntRange(1, 3).Draw(t, "attempt")
			var key string
			var record any
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				key, record = Prefix("").Observed(node, task), &cluster.Observed{Task: task, Attempt: n, Node: node}
			case 1:
				key, record = Prefix("").Desired(node, task),
					&cluster.Desired{Task: task, Attempt: n, UUID: "u", Node: node}
			case 2:
				key, record = Prefix("").Outcome(task, n), &cluster.Outcome{Task: task, Attempt: n, Node: node}
			}
			c := Change{
				Record:  Record{Key: key, Modified: revision + 1},
				Deleted: rapid.IntRange(0, 2).Draw(t, "deleted") == 0,
			}
			if !c.Deleted {
				var err error
				if c.Value, err = Encode(record); err != nil {
					t.Fatal(err)
				}
			}
			s.apply(Batch{Changes: []Change{c}, Revision: revision + 1}, "")
			if snap := s.publish(); rapid.IntRange(0, 9).Draw(t, "held") == 0 {
				held, was = snap, names(snap.AllAttempts())
			}
			agree(t, s.Snapshot)
		}
		if held != nil {
			if diff := cmp.Diff(was, names(held.AllAttempts())); diff != "" {
				t.Fatalf("an earlier snapshot changed:\n%s", diff)
			}
			agree(t, held)
		}
	})
}

// Two attempts on two nodes have the same number. The number belongs to the placed attempt, and the status of the other
// one is detached, whichever record came first. So no record of one is written under a key of the other.
func TestNumberThatWasGivenTwice(t *testing.T) {
	task := cluster.ServiceTask("c", "web", 1, 1)
	owner := cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "web"}
	records := map[string]any{
		Prefix("").Observed("n3", task): &cluster.Observed{
			Task: task, Attempt: 2, UUID: "theirs", Node: "n3",
			State: cluster.StateRunning,
		},
		Prefix("").Plan(4): &cluster.PlanRecord{Seq: 4, Owners: []cluster.PlanOwner{{
			Owner: owner, Generation: 1, Tasks: []cluster.Placed{{Index: 1, Attempt: 2, UUID: "ours", Node: "n2"}},
		}}},
		Prefix("").Desired("n2", task): &cluster.Desired{
			Task: task, Attempt: 2, UUID: "ours", Node: "n2",
			Owner: owner,
		},
	}
	keys := slices.Sorted(maps.Keys(records))
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		s := newState(func(key string, err error) { t.Errorf("%s: %v", key, err) })
		for i, at := range order {
			value, err := Encode(records[keys[at]])
			if err != nil {
				t.Fatal(err)
			}
			c := Change{Record: Record{Key: keys[at], Value: value, Modified: uint64(at + 1)}}
			s.apply(Batch{Changes: []Change{c}, Revision: uint64(i + 1)}, "")
		}
		placed, ok := s.publish().Attempt(task, 2)
		if !ok || placed.Node != "n2" || placed.Desired == nil || placed.Desired.UUID != "ours" ||
			placed.Observed != nil {
			t.Errorf("in the order %v the attempt that is placed is %+v", order, placed)
		}
		apart, ok := s.publish().Attempt(task, 0)
		if !ok || apart.Node != "n3" || !apart.ForeignStatus || apart.Observed != nil || apart.ObservedRev == 0 {
			t.Errorf("in the order %v the status of the other attempt is %+v", order, apart)
		}
	}
}

// A status and the outcome of another attempt with the same number give the same rows in both orders: a server that
// reads the whole store again sees the outcome first.
func TestNumberOfAnEndedAttempt(t *testing.T) {
	task := cluster.ServiceTask("c", "web", 1, 1)
	prefix := Prefix("")
	changes := []struct {
		key    string
		record any
	}{
		{prefix.Observed("n3", task), &cluster.Observed{Task: task, Attempt: 2, UUID: "theirs", Node: "n3"}},
		{prefix.Outcome(task, 2), &cluster.Outcome{Task: task, Attempt: 2, UUID: "ours", Node: "n2"}},
	}
	var got [2][]string
	for i, order := range [][]int{{0, 1}, {1, 0}} {
		s := newState(func(key string, err error) { t.Errorf("%s: %v", key, err) })
		for n, at := range order {
			value, err := Encode(changes[at].record)
			if err != nil {
				t.Fatal(err)
			}
			c := Change{Record: Record{Key: changes[at].key, Value: value, Modified: uint64(at + 1)}}
			s.apply(Batch{Changes: []Change{c}, Revision: uint64(n + 1)}, "")
		}
		got[i] = names(s.publish().AllAttempts())
	}
	want := []string{string(task) + "/0 on n3 0 1 0", string(task) + "/2 on n2 0 0 2"}
	for i := range got {
		if diff := cmp.Diff(want, got[i]); diff != "" {
			t.Errorf("order %d (-want +got):\n%s", i, diff)
		}
	}
}

func names(rows func(func(*AttemptRow) bool)) []string {
	out := []string{}
	for r := range rows {
		out = append(out, fmt.Sprintf("%s/%d on %s %d %d %d", r.Task, r.Number, r.Node, r.DesiredRev, r.ObservedRev,
			r.OutcomeRev))
	}
	return out
}

func agree(t *rapid.T, s *Snapshot) {
	t.Helper()
	all := slices.Collect(s.AllAttempts())
	if len(all) != s.AttemptCount() {
		t.Fatalf("attempts: counted %d, want %d", s.AttemptCount(), len(all))
	}
	if diff := cmp.Diff(names(slices.Values(all)),
		names(s.Attempts(cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "j"}))); diff != "" {
		t.Fatalf("of the job (-want +got):\n%s", diff)
	}
	for i, r := range all {
		if got, ok := s.Attempt(r.Task, r.Number); !ok || got != r {
			t.Fatalf("attempt %d of %s: got %+v, want %+v", r.Number, r.Task, got, r)
		}
		if i > 0 && (all[i-1].Task > r.Task || all[i-1].Task == r.Task && all[i-1].Number >= r.Number) {
			t.Fatalf("%s/%d comes before %s/%d", all[i-1].Task, all[i-1].Number, r.Task, r.Number)
		}
	}
	for _, node := range []string{"n0", "n1", "n2"} {
		want := slices.DeleteFunc(slices.Clone(all), func(r *AttemptRow) bool { return r.Node != node })
		if diff := cmp.Diff(names(slices.Values(want)), names(s.NodeAttempts(node))); diff != "" {
			t.Fatalf("on %s (-want +got):\n%s", node, diff)
		}
	}
	s.byNode.Ascend("", func(k string, _ struct{}) bool {
		if !slices.ContainsFunc(all, func(r *AttemptRow) bool { return k == r.Node+"/"+string(r.Task) }) {
			t.Fatalf("%s is kept of nothing", k)
		}
		return true
	})
}

// The next snapshot shares unchanged tables, and branches of both snapshots never change them.
func TestSnapshotsShareWhatDidNotChange(t *testing.T) {
	s := newState(func(key string, err error) { t.Errorf("%s: %v", key, err) })
	put := func(key string, record any) *Snapshot {
		value, err := Encode(record)
		if err != nil {
			t.Fatal(err)
		}
		s.apply(Batch{
			Changes:  []Change{{Record: Record{Key: key, Value: value, Modified: s.revision + 1}}},
			Revision: s.revision + 1,
		}, "")
		return s.publish()
	}
	for i := range 200 {
		put(fmt.Sprint("service/c/s", i), &cluster.Service{Cluster: "c", Name: fmt.Sprint("s", i)})
	}
	before, after := put("cluster/c", &cluster.Cluster{Name: "c"}), put("cluster/d", &cluster.Cluster{Name: "d"})
	if before.services != after.services || before.clusters == after.clusters {
		t.Errorf("shared: got services %v, clusters %v, want services alone", before.services == after.services,
			before.clusters == after.clusters)
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			b := NewBranch([]*Snapshot{before, after}[i%2], "", slog.New(slog.DiscardHandler))
			var u Unit
			for n := range 200 {
				name := fmt.Sprint("s", n)
				if err := u.Put(Prefix("").Service("c", name),
					&cluster.Service{Cluster: "c", Name: name, Count: i + 1}); err != nil {
					t.Error(err)
				}
			}
			if _, err := b.Commit(t.Context(), []Group{u.Group}); err != nil {
				t.Error(err)
			}
			for e := range b.Tables().Snapshot().Services("c") {
				if e.Value.Count != i+1 {
					t.Errorf("%s of branch %d: got count %d", e.Key, i, e.Value.Count)
				}
			}
		})
	}
	put("service/c/s7", &cluster.Service{Cluster: "c", Name: "s7", Count: 99})
	all.Wait()
	for _, snap := range []*Snapshot{before, after} {
		for e := range snap.Services("c") {
			if e.Value.Count != 0 {
				t.Errorf("%s of a snapshot that is shared: got count %d", e.Key, e.Value.Count)
			}
		}
	}
}
