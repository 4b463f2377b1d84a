package queue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
)

// Timers acts as a map from owners to times with a fast minimum.
func TestTimersAreAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, model := NewTimers(), map[cluster.OwnerRef]time.Time{}
		began := time.Unix(0, 0)
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			o := cluster.OwnerRef{Name: fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "owner"))}
			at := began.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "at")))
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				a.Set(o, time.Time{})
				delete(model, o)
			case 1:
				var want []cluster.OwnerRef
				for o, due := range model {
					if !due.After(at) {
						want = append(want, o)
						delete(model, o)
					}
				}
				got := a.TakeDue(at)
				if len(got) != len(want) || slices.ContainsFunc(want, func(o cluster.OwnerRef) bool {
					return !slices.Contains(got, o)
				}) {
					t.Fatalf("due: got %v, want %v", got, want)
				}
			default:
				a.Set(o, at)
				model[o] = at
			}
			least, some := time.Time{}, false
			for _, at := range model {
				if !some || at.Before(least) {
					least, some = at, true
				}
			}
			if got, ok := a.Next(); ok != some || !got.Equal(least) {
				t.Fatalf("next: got %v %v, want %v %v", got, ok, least, some)
			}
		}
	})
}
