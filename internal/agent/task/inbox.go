package task

import (
	"sync"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/node"
)

// inbox holds the events of one attempt that its goroutine has not handled yet. All methods may be called concurrently;
// one goroutine takes the events.
type inbox struct {
	wake chan struct{} // capacity 1

	mu     sync.Mutex
	events []func(*attempt.Record) // oldest first
	closed bool                    // the goroutine takes no more events: the attempt is forgotten
}

// put adds an event. It returns false if the inbox is closed; then the event is lost. It never blocks.
func (i *inbox) put(happened func(*attempt.Record)) bool {
	i.mu.Lock()
	closed := i.closed
	if !closed {
		i.events = append(i.events, happened)
	}
	i.mu.Unlock()
	i.nudge()
	return !closed
}

// close makes put reject events, unless an event already waits.
func (i *inbox) close() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = len(i.events) == 0
	return i.closed
}

// take returns the waiting events, oldest first.
func (i *inbox) take() []func(*attempt.Record) {
	i.mu.Lock()
	defer i.mu.Unlock()
	happened := i.events
	i.events = nil
	return happened
}

// nudge makes the goroutine run once more.
func (i *inbox) nudge() { node.Nudge(i.wake) }
