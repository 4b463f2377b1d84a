package reconciler

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// budget is how many healthy tasks a service may lose by stops that could as well wait (P5). The record of a stop is the
// permit: what the leader commits it has granted, and it stays charged without a time limit, until the attempt has its
// outcome, for a task is healthy only by an attempt that lives, is known to be well, and was not told to stop (P5.3,
// P5.4). A new leader finds all charges in the records.
type budget struct {
	healthy, least int
}

// newBudget counts the healthy tasks of all generations, each once. The least is what is wanted, or one less where old and
// new cannot live side by side.
func newBudget(spec *cluster.Service, all []*slot, definitions Definitions) budget {
	var b budget
	if spec == nil {
		return b
	}
	b.least = spec.Desired()
	if d := definitions(spec.Definition); d != nil && d.Pinned() {
		b.least = max(0, b.least-1)
	}
	for _, s := range all {
		if s.healthy() {
			b.healthy++
		}
	}
	return b
}

// grant reports whether a task may be given up. One that is not healthy has nothing to lose.
func (b *budget) grant(s *slot) bool {
	switch {
	case !s.healthy():
		return true
	case b.healthy > b.least:
		b.healthy--
		return true
	}
	return false
}

// granted picks those of the unwanted tasks that are given up now: of older generations first, of the newest the highest
// index. The others go on until enough are healthy without them.
func (b *budget) granted(unwanted []*slot) map[*slot]bool {
	order := slices.Clone(unwanted)
	slices.SortStableFunc(order, func(x, y *slot) int {
		return cmp.Or(cmp.Compare(x.parts.Generation, y.parts.Generation), -cmp.Compare(x.parts.Index, y.parts.Index))
	})
	granted := make(map[*slot]bool, len(order))
	for _, s := range order {
		granted[s] = b.grant(s)
	}
	return granted
}

// linger says how many unwanted tasks go on for now.
func linger(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; %s no longer wanted and %s stopped once enough others are healthy", tasksAre(n, "is", "are"), are(n))
}

func are(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}
