package preemption

import (
	"cmp"
)

// price is what a set of victims costs.
type price struct {
	highest int // among the victims
	sum     int // of the victims
	count   int
}

func (a price) compare(b price) int {
	return cmp.Or(cmp.Compare(a.highest, b.highest), cmp.Compare(a.sum, b.sum), cmp.Compare(a.count, b.count))
}

func (a price) add(b price) price {
	return price{max(a.highest, b.highest), a.sum + b.sum, a.count + b.count}
}
