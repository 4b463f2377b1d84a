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

// watchedChecks identifies the running checks: those of a round, before or after the end of its startup checks.
type watchedChecks struct {
	round   int
	through bool
}

// check starts the checks that the record wants and stops all others.
func (t *task) check(ctx context.Context) {
	def := t.currentDefinition()
	which := t.rec.Checks(def).Watched()
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
				r.Checks(def).Report(attempt.CheckReport{
					Round: round, Check: i, State: state, Complaint: t.maskText(complaint),
				})
			})
		},
	}
	for i := range t.rec.Looks {
		c.States = append(c.States, t.rec.Looks[i].CheckState)
	}
	t.agent.work.Go(func() { checks.Run(ctx, c) })
}

// maxAnswerDelay is how long a server may take for an answer and still count as reachable. After a longer delay,
// updates of ttl checks may have been lost.
const maxAnswerDelay = 3 * time.Second

// openTTLWindow records that updates of ttl checks can arrive from now on: the assignment stream is open, and the
// server sends them on it.
func (a *Agent) openTTLWindow() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ttlWindow = lifecycle.TTLWindow{Since: a.Boot()}
	for _, t := range a.tasks { // order-free: each task recomputes when its ttl checks expire
		t.wakeUp()
	}
}

// extendTTLWindow records that a server answered now a request that was first sent at asked (Boot). After a late answer
// the window begins anew, and with it the time of all ttl checks: no update could arrive meanwhile.
func (a *Agent) extendTTLWindow(asked time.Duration) {
	now := a.Boot()
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.ttlWindow.Since == 0:
	case now-asked > maxAnswerDelay:
		a.ttlWindow = lifecycle.TTLWindow{Since: now}
	default:
		a.ttlWindow.Until = max(a.ttlWindow.Until, asked)
	}
}

// closeTTLWindow records that no update can arrive.
func (a *Agent) closeTTLWindow() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ttlWindow = lifecycle.TTLWindow{}
}

// currentTTLWindow returns when updates could have arrived.
func (a *Agent) currentTTLWindow() lifecycle.TTLWindow {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ttlWindow
}

// ttlUpdateTimeout limits how long an update waits for its attempt, or for the disk.
const ttlUpdateTimeout = 10 * time.Second

// serveTTLUpdate passes an update to its ttl check and answers once the update is stored.
func (a *Agent) serveTTLUpdate(ctx context.Context, r transport.StreamRequest, stream io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, ttlUpdateTimeout)
	defer cancel()
	var end transport.ExecEnd
	if err := a.applyTTLUpdate(ctx, r); err != nil {
		end.Error = err.Error()
	}
	return transport.NewFrameWriter(stream).End(end)
}

// errUnknownAttempt rejects an update for an attempt that the node does not have.
var errUnknownAttempt = errors.New("the node does not have the task any more")

// applyTTLUpdate applies an update to its ttl check. An update that changes the check's state is durable when the
// function returns, so that a restart of the agent does not bring the older state back.
func (a *Agent) applyTTLUpdate(ctx context.Context, r transport.StreamRequest) error {
	t := a.task(r.Task, r.UUID)
	if t == nil {
		return errUnknownAttempt
	}
	if r.Word == nil || !r.Word.Word.Known() {
		return errors.New("the word is not one that this agent knows")
	}
	type applied struct {
		durable <-chan error // nil if nothing needs to be durable
		err     error
	}
	answer := make(chan applied, 1)
	if !t.post(func(rec *attempt.Record) {
		message := t.maskText(r.Word.Message)
		changed, err := rec.Checks(t.currentDefinition()).Update(r.Word.Check, r.Word.Word, message, a.now())
		var durable <-chan error
		if changed {
			durable = a.store.CommitAttempt(rec)
		}
		answer <- applied{durable, err}
	}) {
		return errUnknownAttempt
	}
	timeout := errors.New("the node takes too long to take the word in: say it again")
	var result applied
	select {
	case result = <-answer:
	case <-ctx.Done():
		return timeout
	}
	if result.err != nil || result.durable == nil {
		return result.err
	}
	select {
	case err := <-result.durable:
		if err != nil {
			return fmt.Errorf("the word counts, but would be lost if the agent were started anew: %w: %w", errNoState,
				err)
		}
		return nil
	case <-ctx.Done():
		return timeout
	}
}
