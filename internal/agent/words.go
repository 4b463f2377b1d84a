package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/checks"
	"github.com/berthd/berth/internal/logic/lifecycle"
	"github.com/berthd/berth/internal/transport"
)

// watchedChecks names the checks that are looked at: those of a round, before or after its start is through.
type watchedChecks struct {
	round   int
	through bool
}

// check has those checks looked at that the record wants, and ends the looks at others.
func (t *task) check(ctx context.Context) {
	def := t.currentDefinition()
	which := t.rec.Watched(def)
	wanted := watchedChecks{t.rec.Round, t.rec.Through != 0}
	if t.checking != nil && (len(which) == 0 || t.checked != wanted) {
		t.checking()
		t.checking = nil
	}
	if t.checking != nil || len(which) == 0 {
		return
	}
	ctx, t.checking = context.WithCancel(ctx)
	t.checked = wanted
	round := t.rec.Round
	c := checks.Config{
		Checks: def.Checks,
		Which:  which,
		Up:     t.agent.Boot() - t.rec.Up,
		Probe:  t.prober(),
		Random: t.agent.Random,
		Changed: func(i int, state lifecycle.CheckState, complaint string) {
			t.post(func(r *attempt.Record) {
				r.Looked(def, attempt.Look{Round: round, Check: i, State: state, Complaint: t.maskText(complaint)})
			})
		},
	}
	for i := range t.rec.Looks {
		c.States = append(c.States, t.rec.Looks[i].CheckState)
	}
	t.agent.work.Go(func() { checks.Run(ctx, c) })
}

// deafAfter is how long a server may take for an answer without being thought to have been away meanwhile, and words
// with it.
const deafAfter = 3 * time.Second

// listens notes that words can come: the assignment stream is open, on which the server tells of them.
func (a *Agent) listens() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hearing = lifecycle.Hearing{Since: a.Boot()}
	for _, t := range a.tasks { // order-free: each looks by itself when its words expire
		t.again()
	}
}

// hears notes that a server answered now what was first sent at asked (Boot). Where that took long nobody could be
// heard meanwhile, and the time of all words begins anew.
func (a *Agent) hears(asked time.Duration) {
	now := a.Boot()
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.hearing.Since == 0:
	case now-asked > deafAfter:
		a.hearing = lifecycle.Hearing{Since: now}
	default:
		a.hearing.Until = max(a.hearing.Until, asked)
	}
}

// hearsNothing notes that no word can come.
func (a *Agent) hearsNothing() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hearing = lifecycle.Hearing{}
}

// heard returns when words could have come.
func (a *Agent) heard() lifecycle.Hearing {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.hearing
}

// wordTimeout bounds how long a word waits for its attempt, or for the disk.
const wordTimeout = 10 * time.Second

// serveWord hands a word to the check that it is for, and answers once it is kept.
func (a *Agent) serveWord(ctx context.Context, r transport.StreamRequest, stream io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, wordTimeout)
	defer cancel()
	var end transport.ExecEnd
	if err := a.hear(ctx, r); err != nil {
		end.Error = err.Error()
	}
	return transport.NewFrameWriter(stream).End(end)
}

// errNotHere says that a word is for an attempt that the node does not have.
var errNotHere = errors.New("the node does not have the task any more")

// hear takes a word in. A word that changes what the check shows is durable when it returns, so that no later life of
// the agent goes back to what was said before.
func (a *Agent) hear(ctx context.Context, r transport.StreamRequest) error {
	t := a.task(r.Task, r.UUID)
	if t == nil {
		return errNotHere
	}
	if r.Word == nil || !r.Word.Word.Known() {
		return errors.New("the word is not one that this agent knows")
	}
	type taken struct {
		durable <-chan error // nil where nothing has to be
		err     error
	}
	answer := make(chan taken, 1)
	if !t.post(func(rec *attempt.Record) {
		changed, err := rec.Said(t.currentDefinition(), r.Word.Check, r.Word.Word, t.maskText(r.Word.Message), a.now())
		var durable <-chan error
		if changed {
			durable = a.store.CommitAttempt(rec)
		}
		answer <- taken{durable, err}
	}) {
		return errNotHere
	}
	late := errors.New("the node takes too long to take the word in: say it again")
	var got taken
	select {
	case got = <-answer:
	case <-ctx.Done():
		return late
	}
	if got.err != nil || got.durable == nil {
		return got.err
	}
	select {
	case err := <-got.durable:
		if err != nil {
			return fmt.Errorf("the word counts, but would be lost if the agent were started anew: %w: %w", errNoState,
				err)
		}
		return nil
	case <-ctx.Done():
		return late
	}
}
