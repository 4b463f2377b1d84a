package cluster

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestPackedTasks packs outcomes in several batches. Each comes back as it was, in whole milliseconds, and no other
// one. A full record is much smaller than what Consul takes.
func TestPackedTasks(t *testing.T) {
	epoch := time.Date(2026, 11, 1, 2, 3, 4, 0, time.UTC)
	largest := 0
	rapid.Check(t, func(t *rapid.T) {
		p := &PackedTasks{
			Cluster: "c", Job: "j", Generation: 3, Step: "s", Part: 2, Definition: Ref{Name: "d", Version: 1},
		}
		want := map[int]*Outcome{}
		order := rapid.Permutation(make([]int, PackedPart)).Draw(t, "order")
		for i := range order {
			order[i] = 2*PackedPart + (i*7+3)%PackedPart
		}
		nodes := rapid.IntRange(1, 300).Draw(t, "nodes")
		for len(order) > 0 {
			n := rapid.IntRange(1, len(order)).Draw(t, "batch")
			var batch []*Outcome
			for _, index := range order[:n] {
				o := &Outcome{
					Task: JobTask("c", "j", 3, "s", index), Attempt: 1, Node: fmt.Sprint("node-", index%nodes),
					UUID:  fmt.Sprintf("%08x-0000-4000-8000-%012x", index, n),
					Owner: OwnerRef{KindJob, "c", "j"}, Definition: p.Definition, State: StateSucceeded,
					Started: true,
					Placed:  epoch.Add(time.Duration(rapid.IntRange(-90, 9e9).Draw(t, "placed")) * time.Millisecond),
				}
				o.Begun = o.Placed.Add(time.Duration(rapid.IntRange(-90, 9e5).Draw(t, "begun")) * time.Millisecond)
				o.Ended = o.Begun.Add(time.Duration(rapid.IntRange(-90, 9e9).Draw(t, "ended")) * time.Millisecond)
				o.Exit = &Exit{At: o.Ended}
				if !o.Packable() {
					t.Fatalf("%+v is not packable", o)
				}
				batch, want[index] = append(batch, o), o
			}
			before := p.Count()
			if p = p.With(batch); p.Count() != before+n || !p.Consistent() {
				t.Fatalf("%d tasks and %d make %d", before, n, p.Count())
			}
			order = order[n:]
			if rapid.Bool().Draw(t, "enough") {
				break
			}
		}
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		largest = max(largest, len(data))
		var read PackedTasks
		if err := json.Unmarshal(data, &read); err != nil {
			t.Fatal(err)
		}
		var last time.Time
		for index := 2*PackedPart - 1; index <= 3*PackedPart; index++ {
			if diff := cmp.Diff(want[index], read.Outcome(index)); diff != "" {
				t.Fatalf("task %d: %s", index, diff)
			}
			if o := want[index]; o != nil && o.Ended.After(last) {
				last = o.Ended
			}
		}
		if !read.LastEnded.Equal(last) {
			t.Fatalf("the last ended at %v, want %v", read.LastEnded, last)
		}
	})
	if largest > 64<<10 {
		t.Errorf("the largest record has %d bytes", largest)
	}
	t.Logf("the largest record has %d bytes", largest)
}

// Outcomes that say more than a record of packed tasks can hold stay as they are.
func TestNotPackable(t *testing.T) {
	at := time.Date(2026, 11, 1, 2, 3, 4, 0, time.UTC)
	for name, change := range map[string]func(*Outcome){
		"failed":       func(o *Outcome) { o.State = StateFailed },
		"again":        func(o *Outcome) { o.Attempt = 2 },
		"message":      func(o *Outcome) { o.Message = "renewed" },
		"other id":     func(o *Outcome) { o.UUID = "u-1" },
		"upper case":   func(o *Outcome) { o.UUID = "0000000A-0000-4000-8000-00000000000A" },
		"never began":  func(o *Outcome) { o.Begun = time.Time{} },
		"unknown exit": func(o *Outcome) { o.Exit.Unknown = true },
		"reason":       func(o *Outcome) { o.Reason = ReasonExit },
		"free":         func(o *Outcome) { o.Free = true },
	} {
		o := Outcome{
			Task: "c.j.1.s.0", Attempt: 1, UUID: "0000000a-0000-4000-8000-00000000000a", State: StateSucceeded,
			Placed: at, Begun: at, Ended: at, Exit: &Exit{At: at},
		}
		if !o.Packable() {
			t.Fatal("the outcome without a change is not packable")
		}
		if change(&o); o.Packable() {
			t.Errorf("%s: packable", name)
		}
	}
}
