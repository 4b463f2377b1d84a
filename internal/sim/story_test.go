package sim

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/clause"
)

// TestStoryIsText writes stories and reads them again.
func TestStoryIsText(t *testing.T) {
	for seed := range uint64(50) {
		want := Generate(seed)
		got, err := ParseStory(strings.NewReader(want.String()))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d, written and read again (-want +got):\n%s", seed, diff)
		}
		if diff := cmp.Diff(want, Generate(seed)); diff != "" {
			t.Fatalf("seed %d makes two stories:\n%s", seed, diff)
		}
	}
}

func FuzzStory(f *testing.F) {
	f.Add(quietStory)
	f.Add("berth-sim-story-1 seed 1 servers 1 nodes 1 consul true\n1s lie n1 for 3s : gone\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseStory(strings.NewReader(text))
		if err != nil {
			return
		}
		again, err := ParseStory(strings.NewReader(s.String()))
		if err != nil {
			t.Fatalf("%v in\n%s", err, s)
		}
		if diff := cmp.Diff(s, again); diff != "" {
			t.Fatal(diff)
		}
	})
}

// TestShrink shortens stories in which two events matter.
func TestShrink(t *testing.T) {
	for seed := range uint64(20) {
		story := Generate(seed)
		first, second := story.Events[1], story.Events[len(story.Events)-2]
		tries := 0
		short := shrink(story, func(s *Story) bool {
			tries++
			return slices.Contains(s.Events, first) && slices.Contains(s.Events, second)
		})
		if len(short.Events) > 2 || !slices.Contains(short.Events, first) || !slices.Contains(short.Events, second) {
			t.Errorf("seed %d: got %v, want %v and %v", seed, short.Events, first, second)
		}
		if tries > maxRuns {
			t.Errorf("seed %d: %d stories were run, want at most %d", seed, tries, maxRuns)
		}
	}
}

// TestShrinkEndsWithTheSameBreach shortens a story that breaks an invariant because a clause is off. The result breaks
// the same invariant in another run, and has lost the events that do not matter.
func TestShrinkEndsWithTheSameBreach(t *testing.T) {
	options := Options{Without: clause.Absence, StopAtOnce: true}
	story := parse(t, `berth-sim-story-1 seed 1 servers 1 nodes 1 consul false
1s user web : scale 1
3s user n1 : cordon
4s user n1 : uncordon
10s foreign n1 : delete
`)
	breach := Violation{}
	for _, v := range Run(t, story, options).Violations {
		if v.Invariant == "stop-unasked" {
			breach = v
		}
	}
	if breach.Invariant == "" {
		t.Fatal("the story breaks nothing")
	}
	short := Shrink(t, story, breach, options)
	want := []Event{story.Events[0], story.Events[3]}
	if diff := cmp.Diff(want, short.Events); diff != "" {
		t.Errorf("what is left of the story (-want +got):\n%s\n%s", diff, short)
	}
	if found := Run(t, short, options).Violations; !slices.ContainsFunc(found, breach.same) {
		t.Errorf("the short story ends with %v, want %s\n%s", found, breach, short)
	}
}

// TestSameBreach distinguishes breaches of one invariant: a shortened story must show the original fault.
func TestSameBreach(t *testing.T) {
	breach := Violation{
		Invariant: "converges", At: "32m18s",
		Text: "not as users asked 30m0s after the last fault: left over: [c.nightly.1.work.0/1 on n1 " +
			"c.nightly.1.work.1/1 on n1]",
	}
	for text, want := range map[string]bool{
		"not as users asked 30m0s after the last fault: left over: [c.batch.2.work.3/2 on n4]":    true,
		"not as users asked 30m0s after the last fault: api has 1 healthy tasks, want 2":          false,
		"a user's write was not acknowledged within 5m without faults":                            false,
		"not as users asked 30m0s after the last fault: batch is failed: {State:failed Running:1": false,
	} {
		if got := breach.same(Violation{Invariant: "converges", At: "1s", Text: text}); got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
		if breach.same(Violation{Invariant: "reason", Text: breach.Text}) {
			t.Error("a breach of another invariant is the same")
		}
	}
}
