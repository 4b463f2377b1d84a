package agent

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/berthd/berth/internal/agent/state"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// LocalTask is what an agent knows of one attempt on its node.
type LocalTask struct {
	Observed cluster.Observed
	// Definition is nil until the agent has it.
	Definition *cluster.TaskDefinition
}

// Ownership says who drives a node.
type Ownership struct {
	// Domain is empty before the first session, with servers of an earlier build, and while the node changes its
	// domain.
	Domain string
	// Servers are the addresses that a server named last.
	Servers []string
	// Token is the highest token that the agent has accepted.
	Token cluster.Token
	// Answered is when a server last answered the agent, zero before the first answer of this run.
	Answered time.Time
}

// Observation is what an agent knows of its node at one moment.
type Observation struct {
	// Tasks are the attempts on the node, ordered by UUID.
	Tasks []LocalTask
	// Counts are those of the tasks that are on the node, or were, by the key that CountsOf uses.
	Counts map[string]Counts
	Facts  cluster.Facts
	// Stats is the newest measurement, nil before the first. Callers do not change it.
	Stats     *cluster.NodeStats
	Ownership Ownership
}

// CountsOf returns the counts of a task, whatever the generation in its id, and false if it never had any.
func (o *Observation) CountsOf(id cluster.TaskID) (Counts, bool) {
	n, ok := o.Counts[state.CounterKey(id)]
	return n, ok
}

// Observe returns what the agent knows now. It may be called at any time, concurrently.
func (a *Agent) Observe() Observation {
	o := Observation{Facts: a.machine.Facts(), Stats: a.sessions.stats.Latest(), Ownership: a.ownership.current()}
	present := a.attempts.statuses()
	o.Counts = a.attempts.counts(present)
	for _, s := range present {
		t := LocalTask{Definition: s.Definition, Observed: cluster.Observed{
			Task: s.Task, Attempt: s.Attempt, UUID: s.UUID, State: cluster.StatePreparing,
		}}
		if s.View != nil {
			t.Observed = s.View.Record.Observed(s.Definition)
		}
		t.Observed.Node = a.node.Name
		if !t.Observed.Gone {
			o.Tasks = append(o.Tasks, t)
		}
	}
	return o
}

// Changed returns a channel that is closed once an attempt or the owner of the node changes. A caller first asks for
// the channel and then observes, so that it misses nothing.
func (a *Agent) Changed() <-chan struct{} { return a.ownership.changes.next() }

// WriteLogs writes the lines of an attempt's output as JSON, one line in each call of Write. It returns at the end of
// the output, with Follow at the end of the attempt, and once ctx ends. A slow writer delays no task: it loses rotated
// lines, and a line with their number is written in their place.
func (a *Agent) WriteLogs(ctx context.Context, r transport.StreamRequest, to io.Writer) error {
	return a.sessions.streams.WriteLogs(ctx, r, to)
}

// changes tells any number of waiters that something changed. Its methods may be called concurrently.
type changes struct {
	mu     sync.Mutex
	closed chan struct{}
}

// next returns the channel that the next call of note closes.
func (c *changes) next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed == nil {
		c.closed = make(chan struct{})
	}
	return c.closed
}

// note wakes all waiters.
func (c *changes) note() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil {
		close(c.closed)
		c.closed = nil
	}
}

// ownership remembers the owner of the node for readers on other goroutines.
type ownership struct {
	// changes are those of the owner and of the attempts.
	changes changes

	mu         sync.Mutex
	marks      *state.Marks // nil before the first run
	domain     string
	since      uint64 // generation of the node when the domain was learnt
	answeredAt time.Time
}

// begin prepares for a run of the agent.
func (o *ownership) begin(marks *state.Marks) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.marks, o.answeredAt = marks, time.Time{}
}

func (o *ownership) current() Ownership {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.marks == nil {
		return Ownership{}
	}
	mark := o.marks.Current()
	known := Ownership{Servers: mark.Servers, Token: mark.Token, Answered: o.answeredAt}
	// The leader gives a new node its first generation after the first registration.
	if g := mark.Token.Generation; o.since == g || o.since == 0 && g == 1 {
		known.Domain = o.domain
	}
	return known
}

// registered notes that a session began.
func (o *ownership) registered(w *transport.Welcome) {
	o.mu.Lock()
	o.domain, o.since, o.answeredAt = w.Domain, w.Token.Generation, time.Now()
	o.mu.Unlock()
	o.changes.note()
}

// answered notes that a server answered now.
func (o *ownership) answered() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answeredAt = time.Now()
}
