package store

import (
	"iter"
	"strconv"

	"github.com/berthd/berth/internal/cluster"
)

// planTables hold the plan records, by their number.
type planTables struct {
	plans *tree[uint64, Entry[cluster.PlanRecord]]
}

// Plans returns the plan records by their number.
func (p *planTables) Plans() iter.Seq[Entry[cluster.PlanRecord]] {
	return func(yield func(Entry[cluster.PlanRecord]) bool) {
		p.plans.Scan(func(_ uint64, e Entry[cluster.PlanRecord]) bool { return yield(e) })
	}
}

// LastPlan returns the number of the newest plan record, or 0.
func (p *planTables) LastPlan() uint64 {
	seq, _, _ := p.plans.Max()
	return seq
}

func (p *planTables) findPlan(rest string) (Record, any, bool) {
	seq, err := strconv.ParseUint(rest, 10, 64)
	if err != nil {
		return Record{}, nil, false
	}
	return found(p.plans.Get(seq))
}
