package store

import (
	"testing"

	"github.com/berthd/berth/internal/cluster"
)

// A record of packed tasks that cannot be read, or is under another key than its own, stays in the table as unreadable:
// its tasks must not run again. It is reported, and its deletion removes it.
func TestUnreadablePackedRecord(t *testing.T) {
	other := &cluster.PackedTasks{Cluster: "c", Job: "j", Generation: 1, Step: "s", Part: 3}
	value, err := Encode(other)
	if err != nil {
		t.Fatal(err)
	}
	owner := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "j"}
	for name, value := range map[string][]byte{"garbage": []byte("{"), "another part": value} {
		faults := 0
		s := newState(func(string, error) { faults++ })
		change := Change{Record: Record{Key: "packed/c.j.1.s.2", Value: value, Modified: 1}}
		s.apply(Batch{Changes: []Change{change}, Revision: 1}, "")
		found := 0
		for e := range s.publish().PackedTasks(owner) {
			if p := e.Value; !p.Unreadable || p.Part != 2 || p.Step != "s" || p.Generation != 1 || p.Has(1000) {
				t.Errorf("%s: %+v", name, p)
			}
			found++
		}
		if found != 1 || faults != 1 {
			t.Errorf("%s: %d records and %d faults, want one of each", name, found, faults)
		}
		if _, ok := s.publish().Attempt("c.j.1.s.1000", 1); ok {
			t.Errorf("%s: its task has an attempt", name)
		}
		change.Deleted = true
		s.apply(Batch{Changes: []Change{change}, Revision: 2}, "")
		for range s.publish().PackedTasks(owner) {
			t.Errorf("%s: it is there after its deletion", name)
		}
	}
}
