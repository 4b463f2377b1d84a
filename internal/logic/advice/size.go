package advice

import (
	"cmp"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// rankOf returns the rank of a kind of changes, 0 for the smallest.
func rankOf(k cluster.ChangeKind) int { return slices.Index(k.Values(), k) }

// amount is the size of changes of equal kinds.
type amount struct {
	share int64 // thousandths of the task's demand, rounded up, summed over CPU, memory and disk
	tasks int   // number of tasks that end
	bound int   // sum of the new bounds
	short cluster.Demand
}

func (a amount) compare(b amount) int {
	return cmp.Or(cmp.Compare(a.share, b.share), cmp.Compare(a.tasks, b.tasks), cmp.Compare(a.bound, b.bound),
		cmp.Compare(a.short.CPU, b.short.CPU), cmp.Compare(a.short.Memory, b.short.Memory),
		cmp.Compare(a.short.Disk, b.short.Disk))
}

// amountOf returns the amount of missing room for a task with a demand.
func amountOf(short, asked cluster.Demand) amount {
	share := func(short, asked int64) int64 {
		const most = 1 << 40 // keeps products within 64 bits
		if short <= 0 || asked <= 0 {
			return 0
		}
		for asked > most {
			short, asked = short>>10, asked>>10
		}
		return (min(short, most)*1000 + asked - 1) / asked
	}
	return amount{
		short: short,
		share: share(int64(short.CPU), int64(asked.CPU)) + share(int64(short.Memory), int64(asked.Memory)) +
			share(int64(short.Disk), int64(asked.Disk)),
	}
}

// sizeOf returns the total amount of changes.
func sizeOf(changes []cluster.Remedy, p *cluster.Pending) (a amount) {
	for i := range changes {
		c := &changes[i]
		if c.Kind == cluster.ChangeFree || c.Kind == cluster.ChangeLower {
			more := amountOf(c.Demand, p.Demand)
			a.share += more.share
			a.short = a.short.Add(more.short)
		}
		if c.Kind == cluster.ChangeEnd {
			a.tasks += len(c.Attempts)
		}
		a.bound += c.Limit
	}
	return a
}

// weightOf returns the rank of a change. To lower a demand to less than half, and to free what several tasks hold,
// ranks like ending tasks.
func weightOf(c *cluster.Remedy, share int64) int {
	const half, several = 500, 3
	if c.Kind == cluster.ChangeLower && share > half || c.Kind == cluster.ChangeFree && len(c.Attempts) > several {
		return rankOf(cluster.ChangeEnd)
	}
	return rankOf(c.Kind)
}

// compareSize compares two suggestions with equal numbers of changes.
func compareSize(a, b *found) int {
	weight := func(f *found) (most, sum int) {
		for i := range f.changes {
			rank := weightOf(&f.changes[i], f.amount.share)
			most, sum = max(most, rank), sum+rank
		}
		return most, sum
	}
	maxA, sumA := weight(a)
	maxB, sumB := weight(b)
	return cmp.Or(cmp.Compare(maxA, maxB), cmp.Compare(sumA, sumB), a.amount.compare(b.amount))
}
