package rendition

import (
	"sync"
	"time"
)

// Bounds of the cost of views.
const (
	// changeShare is the part of a core that all views together may use to compute and send changes.
	changeShare = 0.012
	// wholeShare is the additional part of a core for computing whole lists, which shows changes without a revision.
	wholeShare = 0.005
	// minPause and maxPause bound the pause of a view after a change. The shares hold within these bounds.
	minPause = 250 * time.Millisecond
	maxPause = 10 * time.Second
	// minWholePause and maxWholePause bound the pause between computations of the whole list.
	minWholePause = 10 * time.Second
	maxWholePause = time.Minute
	// sendCost is about the cost of sending a change to one reader: a copy and a system call.
	sendCost = 25 * time.Microsecond
)

// Pace computes the pause between two computations, so that all views together stay within a share of a core. Each view
// reports the cost of its computations. The pause is the sum of these costs divided by the share. It is safe for
// concurrent use.
type Pace struct {
	// Share is the part of a core. Least and Most bound the pause.
	Share       float64
	Least, Most time.Duration

	mu  sync.Mutex
	sum time.Duration
}

// Account is the cost of one view in a pace.
type Account struct {
	pace *Pace
	cost time.Duration
}

// Open returns an account without cost. Its methods are for one goroutine.
func (p *Pace) Open() *Account { return &Account{pace: p} }

// Spend reports the cost of a computation. The account's cost is a moving average of the last few.
func (a *Account) Spend(cost time.Duration) { a.set((a.cost + cost) / 2) }

// Close removes the account from the pace.
func (a *Account) Close() { a.set(0) }

func (a *Account) set(cost time.Duration) {
	a.pace.mu.Lock()
	defer a.pace.mu.Unlock()
	a.pace.sum += cost - a.cost
	a.cost = cost
}

// Pause returns how long to wait until the next computation.
func (p *Pace) Pause() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return min(max(time.Duration(float64(p.sum)/p.Share), p.Least), p.Most)
}
