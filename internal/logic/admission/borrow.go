package admission

import "github.com/berthd/berth/internal/cluster"

// pool is what the clusters with quotas leave unused of each resource, less what they hold above their quotas. A
// negative amount is possible: a quota may be lowered, and a cluster may take back what it lent while others still hold
// it. A draft makes its pool when a task first may borrow.
type pool struct {
	left         map[resource]int64
	quotaChanges int // Ledger.quotaChanges when the pool was made
}

// isMade reports whether the pool is that of the present quotas.
func (o *pool) isMade(d *Draft) bool { return o.left != nil && o.quotaChanges == d.ledger.quotaChanges }

// count adds what a cluster leaves or exceeds with a sign of 1, and takes it away with -1.
func (o *pool) count(d *Draft, name string, sign int64) {
	if q := d.ledger.quotas[name]; q != nil && o.isMade(d) {
		eachLimit(q, func(r resource, limit int64) { o.left[r] += sign * part(q, limit, d.used(name, r)) })
	}
}

// part returns what a cluster with a limit adds to the pool: what it leaves and lends, or what it exceeds as a negative
// amount.
func part(q *cluster.Quota, limit, used int64) int64 {
	if used < limit && !q.Lends() {
		return 0
	}
	return limit - used
}

// used returns how much of a resource a cluster holds.
func (d *Draft) used(name string, r resource) (n int64) {
	if u := d.ledger.uses[name]; u != nil {
		n = r.heldBy(u)
	}
	if u := d.added.uses[name]; u != nil {
		n += r.heldBy(u)
	}
	if r.kind == tasks {
		n -= int64(d.replaced[name])
	}
	return n
}

// unusedByOthers returns how much of a resource the other clusters lend, less what they hold above their quotas.
func (d *Draft) unusedByOthers(name string, r resource) int64 {
	if !d.pool.isMade(d) {
		d.pool = pool{map[resource]int64{}, d.ledger.quotaChanges}
		for other := range d.ledger.quotas { // order-free: sums
			d.pool.count(d, other, 1)
		}
	}
	q := d.ledger.quotas[name]
	limit, _ := r.limitOf(q)
	return d.pool.left[r] - part(q, limit, d.used(name, r))
}

// borrowed returns what a cluster holds above its quota of the limits that it may exceed, or nil.
func (l *Ledger) borrowed(name string, u *use) *cluster.Borrowed {
	var b cluster.Borrowed
	found := false
	l.eachLoan(name, u, func(r resource, n int64) {
		found = true
		switch r.kind {
		case cpu:
			b.CPU = cluster.MilliCPU(n)
		case memory:
			b.Memory = cluster.Bytes(n)
		case disk:
			b.Disk = cluster.Bytes(n)
		case device:
			if b.Devices == nil {
				b.Devices = map[string]float64{}
			}
			b.Devices[r.of] = float64(n) / cluster.WholeDevice
		case tasks:
			b.Tasks = int(n)
		case jobs: // are not borrowed
		}
	})
	if !found {
		return nil
	}
	return &b
}

// eachLoan yields what a cluster holds above each limit that it may exceed, in no order.
func (l *Ledger) eachLoan(name string, u *use, yield func(r resource, n int64)) {
	q := l.quotas[name]
	if q == nil || q.Borrow == nil {
		return
	}
	eachLimit(q, func(r resource, limit int64) {
		if n := r.heldBy(u) - limit; n > 0 && r.borrowOf(q) > 0 {
			yield(r, n)
		}
	})
}

// Loans is what clusters borrowed, and how much of it is left as attempts end. Reclaim asks it which attempts may end
// for a task that stays within the quota of its own cluster. It is for one goroutine.
type Loans struct {
	quotas map[string]*cluster.Quota
	left   map[string]map[resource]int64 // by cluster; each amount may become negative
}

// Loans returns what the clusters of the ledger borrowed.
func (l *Ledger) Loans() Loans {
	o := Loans{quotas: l.quotas}
	for name, q := range l.quotas { // order-free: each by itself
		if u := l.uses[name]; u != nil && q.Borrow != nil {
			l.eachLoan(name, u, func(r resource, n int64) {
				if o.left == nil {
					o.left = map[string]map[resource]int64{}
				}
				if o.left[name] == nil {
					o.left[name] = map[resource]int64{}
				}
				o.left[name][r] = n
			})
		}
	}
	return o
}

// IsEmpty reports whether no cluster borrowed anything.
func (o *Loans) IsEmpty() bool { return len(o.left) == 0 }

// Has reports whether a cluster borrowed something.
func (o *Loans) Has(name string) bool { return o.left[name] != nil }

// End takes an attempt that ends from the loans of its cluster with a sign of 1, and adds it again with -1.
func (o *Loans) End(h *Holding, sign int64) {
	left := o.left[h.Cluster]
	for r := range left { // order-free: each by itself
		left[r] -= sign * r.in(h.Demand, h.Devices)
	}
}

// Claims reports whether a task may take the room of all of some attempts, as loans: the task stays within the quota of
// its cluster, as the caller has to know. Each attempt is of a job of a cluster that holds more than its quota of a
// resource which the task needs and its own cluster has a limit of. The ends of all of them leave that cluster its
// quota. With beyond, the last of them may take from it: each attempt alone, after the others, still ends a loan.
//
// If attempts may end, so may any part of them.
func (o *Loans) Claims(p *cluster.Pending, attempts []*Holding, beyond bool) bool {
	q := o.quotas[p.Owner.Cluster]
	if q == nil {
		return false
	}
	for i, h := range attempts {
		first := true
		for _, earlier := range attempts[:i] {
			first = first && earlier.Cluster != h.Cluster
		}
		if first && !o.claimsOf(h.Cluster, p, q, attempts, beyond) {
			return false
		}
	}
	return true
}

// claimsOf is Claims for the attempts of one cluster. q is the quota of the task's cluster.
func (o *Loans) claimsOf(name string, p *cluster.Pending, q *cluster.Quota, attempts []*Holding, beyond bool) bool {
	for r, left := range o.left[name] { // order-free: any of them suffices
		if _, limited := r.limitOf(q); !limited || r.in(p.Demand, p.Devices) == 0 || left <= 0 ||
			o.left[p.Owner.Cluster][r] > 0 {
			continue
		}
		var sum, least int64
		for _, h := range attempts {
			if h.Cluster != name {
				continue
			}
			n := r.in(h.Demand, h.Devices)
			if h.Job == "" {
				n = 0
			}
			if sum == 0 || n < least {
				least = n
			}
			if sum += n; n == 0 {
				break
			}
		}
		if least > 0 && (sum <= left || beyond && sum-least < left) {
			return true
		}
	}
	return false
}
