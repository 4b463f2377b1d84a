// Package scheduling is where the leader of a domain meets a scheduler outside of Berth: the state of the domain, which
// the scheduler reads (Feed), and the proposals that it sends (Mailbox).
package scheduling

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// maxWaiting is the number of proposals that wait for the leader's loop.
const maxWaiting = 64

// Errors of Submit. FencedError is another one.
var (
	// ErrNotLeading says that this server does not lead the domain any more.
	ErrNotLeading = errors.New("this server does not lead the domain")
	// ErrBusy says that too many proposals wait.
	ErrBusy = errors.New("too many proposals wait for the leader: send fewer at a time")
	// ErrUnknown says that placements of the proposal may have been written or not. The state shows them if they were.
	ErrUnknown = errors.New("the result of the proposal is unknown: the state shows what was written")
)

// FencedError refuses a proposal as a whole: its scheduler does not hold the domain.
type FencedError struct {
	Domain string
	// Holder is the name of the scheduler that places the domain's tasks now, and Claim the last claim, nil for none.
	Holder string
	Claim  *cluster.SchedulerClaim
	// Revision is the revision of the domain's record.
	Revision uint64
}

// Error returns a sentence for people.
func (e *FencedError) Error() string {
	text := fmt.Sprintf("the domain %s is placed by the scheduler %s", e.Domain, e.Holder)
	if c := e.Claim; c != nil {
		if c.Instance != "" {
			text += " (" + c.Instance + ")"
		}
		text += " since " + c.Since.Format(time.RFC3339)
		if c.Reason != "" {
			text += ": " + c.Reason
		}
	}
	return fmt.Sprintf("%s. The record of the domain has the revision %d: claim the domain again, and read its state",
		text, e.Revision)
}

// Request is a proposal on its way to the leader's loop.
type Request struct {
	Proposal *cluster.Proposal
	// DryRun only checks the proposal. It needs no claim.
	DryRun bool

	answered chan struct{}
	answer   cluster.ProposalAnswer
	err      error
}

// Answer answers the request.
func (r *Request) Answer(answer cluster.ProposalAnswer, err error) {
	answer.DryRun = r.DryRun
	for i := range answer.Results {
		if answer.Results[i].Accepted {
			answer.Accepted++
		} else {
			answer.Refused++
		}
	}
	r.answer, r.err = answer, err
	close(r.answered)
}

// Mailbox brings proposals to the loop of a leader, in the order of their arrival. It lives as long as its control
// plane and is safe for concurrent use.
type Mailbox struct {
	wake chan struct{}

	mu      sync.Mutex
	waiting []*Request
	open    bool
	feed    *Feed
}

// NewMailbox returns a mailbox, closed as on a server that does not lead.
func NewMailbox() *Mailbox { return &Mailbox{wake: make(chan struct{}, 1)} }

// Wake receives once there is something to take.
func (m *Mailbox) Wake() <-chan struct{} { return m.wake }

// Feed returns the state of the domain for schedulers, nil on a server that does not lead.
func (m *Mailbox) Feed() *Feed {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.feed
}

// Submit has the leader's loop answer a proposal, and waits for the answer. If the context ends before, the proposal is
// withdrawn. One that the loop has taken by then may be carried out.
func (m *Mailbox) Submit(ctx context.Context, r *Request) (cluster.ProposalAnswer, error) {
	r.answered = make(chan struct{})
	m.mu.Lock()
	switch {
	case !m.open:
		m.mu.Unlock()
		return cluster.ProposalAnswer{}, ErrNotLeading
	case len(m.waiting) >= maxWaiting:
		m.mu.Unlock()
		return cluster.ProposalAnswer{}, ErrBusy
	}
	m.waiting = append(m.waiting, r)
	m.mu.Unlock()
	m.Signal()
	select {
	case <-r.answered:
		return r.answer, r.err
	case <-ctx.Done():
		m.withdraw(r)
		return cluster.ProposalAnswer{}, ctx.Err()
	}
}

// withdraw takes a proposal back that the leader's loop has not taken.
func (m *Mailbox) withdraw(r *Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting = slices.DeleteFunc(m.waiting, func(other *Request) bool { return other == r })
}

// Signal has Wake receive, once.
func (m *Mailbox) Signal() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Start opens the mailbox for a term with a feed.
func (m *Mailbox) Start(f *Feed) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open, m.feed = true, f
}

// End closes the mailbox and refuses what waits.
func (m *Mailbox) End() {
	m.mu.Lock()
	waiting, feed := m.waiting, m.feed
	m.open, m.waiting, m.feed = false, nil, nil
	m.mu.Unlock()
	if feed != nil {
		feed.End()
	}
	for _, r := range waiting {
		r.Answer(cluster.ProposalAnswer{}, ErrNotLeading)
	}
}

// IsEmpty reports whether no proposal waits.
func (m *Mailbox) IsEmpty() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.waiting) == 0
}

// Take returns all proposals that wait.
func (m *Mailbox) Take() []*Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.waiting
	m.waiting = nil
	return all
}
