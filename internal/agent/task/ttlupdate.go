package task

import (
	"context"
	"errors"
	"fmt"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/transport"
)

// ErrUnknownAttempt rejects an update for an attempt that the node does not have.
var ErrUnknownAttempt = errors.New("the node does not have the task any more")

// UpdateTTL applies an update to its ttl check. An update that changes the check's state is durable when the
// function returns, so that a restart of the agent does not bring the older state back.
func (t *Task) UpdateTTL(ctx context.Context, r *transport.WordRequest) error {
	type applied struct {
		durable <-chan error // nil if nothing needs to be durable
		err     error
	}
	answer := make(chan applied, 1)
	if !t.events.put(func(rec *attempt.Record) {
		message := t.secrets.MaskText(r.Message)
		changed, err := rec.Checks(t.Definition()).Update(r.Check, r.Word, message, t.parts.Now())
		var durable <-chan error
		if changed {
			durable = t.parts.Store.CommitAttempt(rec)
		}
		answer <- applied{durable, err}
	}) {
		return ErrUnknownAttempt
	}
	timeout := errors.New("the node did not store the update in time: retry")
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
			return fmt.Errorf("the update counts, but a restart of the agent would lose it: %w: %w", errNoState,
				err)
		}
		return nil
	case <-ctx.Done():
		return timeout
	}
}
