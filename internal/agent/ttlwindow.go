package agent

import (
	"sync"
	"time"

	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/logic/lifecycle"
)

// ttlWindow is when updates of ttl checks can arrive. Its methods may be called concurrently.
//
// The agent owns all checks, and updates pass through its session without the store. So an update needs no quorum and
// no leader, and a restart of the agent or of a server neither loses nor invents a result. Silence counts only where an
// update could have arrived: the TTL runs from the latest of the newest update, the start of the check, and the start
// of this window. An agent that loses its servers more often than once in a TTL never lets that TTL expire; the event
// node.suspect shows it. Updates in the store would cost a write each and fail without quorum. Updates in the memory of
// servers would be lost with a server.
type ttlWindow struct {
	node *node.Node
	// opened makes the attempts recompute when their ttl checks expire.
	opened func()

	mu  sync.Mutex
	now lifecycle.TTLWindow
}

// maxAnswerDelay is how long a server may take for an answer and still count as reachable. After a longer delay,
// updates of ttl checks may have been lost.
const maxAnswerDelay = 3 * time.Second

// open records that updates of ttl checks can arrive from now on: the assignment stream is open, and the server sends
// them on it.
func (w *ttlWindow) open() {
	w.mu.Lock()
	w.now = lifecycle.TTLWindow{Since: w.node.Boot()}
	w.mu.Unlock()
	w.opened()
}

// extend records that a server answered now a request that was first sent at asked (Boot). After a late answer the
// window begins again, and with it the time of all ttl checks: no update could arrive in between.
func (w *ttlWindow) extend(asked time.Duration) {
	now := w.node.Boot()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.now.Since == 0:
	case now-asked > maxAnswerDelay:
		w.now = lifecycle.TTLWindow{Since: now}
	default:
		w.now.Until = max(w.now.Until, asked)
	}
}

// close records that no update can arrive.
func (w *ttlWindow) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = lifecycle.TTLWindow{}
}

// current returns when updates could have arrived.
func (w *ttlWindow) current() lifecycle.TTLWindow {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}
