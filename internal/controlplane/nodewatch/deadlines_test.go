package nodewatch

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The nodes that are due are the same as by a walk over all of them. However often nodes are postponed, each is in the
// queue about once.
func TestDeadlines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, model := newDeadlines(), map[string]time.Duration{}
		when := func(node string) time.Duration { return model[node] }
		now := time.Duration(0)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			node := fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "node"))
			if rapid.Bool().Draw(t, "word") {
				model[node] = now + time.Duration(rapid.IntRange(-1, 20).Draw(t, "at"))
				if rapid.IntRange(0, 5).Draw(t, "never") == 0 {
					model[node] = 0
				}
				d.set(node, model[node])
				continue
			}
			now += time.Duration(rapid.IntRange(0, 9).Draw(t, "time"))
			var got, want []string
			d.yieldDue(now, when, func(node string) { got = append(got, node) })
			for node, at := range model {
				if at != 0 && at <= now {
					want = append(want, node)
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("at %v: due are %v, want %v of %v", now, got, want, model)
			}
		}
	})
	d := newDeadlines()
	for at := time.Duration(1); at <= 1000; at++ {
		d.set("n", at)
	}
	if len(d.queue) != 1 {
		t.Errorf("a node that was put off a thousand times is in the queue %d times", len(d.queue))
	}
}
