package rendition

import (
	"sync"
	"time"
)

// Bounds of what views cost.
const (
	// changeShare is the part of a core that all views together take at most, to compute what changed and to send it.
	changeShare = 0.012
	// wholeShare is the part of a core that they take besides to compute lists anew, for what changes without a
	// revision.
	wholeShare = 0.005
	// leastPause and mostPause bound the pause of a view after a change: the shares hold within them.
	leastPause = 250 * time.Millisecond
	mostPause  = 10 * time.Second
	// leastWhole and mostWhole are the same for computing a list anew.
	leastWhole = 10 * time.Second
	mostWhole  = time.Minute
	// sendCost is what it costs to send a change to one reader, about: a copy and a call of the system.
	sendCost = 25 * time.Microsecond
)

// Pace is the pause that all views keep between two computations, so that together they stay within a share of a core.
// Each tells what one of its computations costs; the pause is the sum of these costs by the share. It is safe for
// concurrent use.
type Pace struct {
	// Share is the part of a core. Least and Most bound the pause.
	Share       float64
	Least, Most time.Duration

	mu  sync.Mutex
	sum time.Duration
}

// Account is the part of one view in a pace.
type Account struct {
	pace *Pace
	cost time.Duration
}

// Open returns an account that costs nothing yet. Its methods are for one goroutine.
func (p *Pace) Open() *Account { return &Account{pace: p} }

// Spend tells what a computation cost. What the account cost before fades within a few computations.
func (a *Account) Spend(cost time.Duration) { a.set((a.cost + cost) / 2) }

// Close takes the account out of the pace.
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
