package dispatcher

import (
	"context"
	"errors"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/telemetry"
	"github.com/berthd/berth/internal/transport"
)

const (
	// pingInterval is the interval of the messages that show an agent that its assignment stream works.
	pingInterval = 10 * time.Minute
	// maxMessagesPerWrite limits the messages of one write. maxKeptMessages limits the capacity, in messages, that an
	// idle stream keeps.
	maxMessagesPerWrite = 512
	maxKeptMessages     = 4
	// maxSentDefinitions limits the definitions that a stream remembers to have sent.
	maxSentDefinitions = 1000
)

// assignments is the state of one assignment stream.
type assignments struct {
	d *Dispatcher
	s *session
	// superseded is closed when the agent opened another stream, which replaces this one.
	superseded  chan struct{}
	send        func([]transport.Message) error
	out         []transport.Message
	changedKeys []store.AttemptKey
	// sent holds, by attempt, the state that was sent last.
	sent map[store.AttemptKey]sentState
	// definitions are those that were sent, by the revision of their creation: a version that was deleted may be
	// written again with another content.
	definitions map[cluster.Ref]uint64
	have        map[string]transport.Known
	// stamps are the sent stamps of secrets, by the attempt's UUID; nil for none.
	stamps map[string]transport.SecretStamps
	// unclaimed says that assignments wait until the node has a record.
	unclaimed bool
}

// sentState is the part of a desired record that can change after it was sent.
type sentState struct {
	uuid           string
	class          cluster.StopClass // of its stop
	stop           bool
	ended          bool
	permit         string
	requestCounter cluster.RequestCounter
}

// Assign sends the node's desired attempts, then every change of them, until the session or the context ends. It never
// lists what should not run, since absence never stops a task (P6.6).
func (d *Dispatcher) Assign(ctx context.Context, r transport.AssignmentsRequest,
	send func([]transport.Message) error,
) error {
	s, err := d.sessions.find(r.Node, r.Session)
	if err != nil {
		return err
	}
	if err := d.reach.unreachableError(); err != nil {
		return err
	}
	follow := d.config.Tables.FollowNode(r.Node)
	defer follow.Close()
	snap, err := d.config.Tables.WaitFor(ctx, s.syncedRev)
	if err != nil {
		return err
	}
	stream := s.pulse.takeStream()
	defer s.pulse.dropStream(stream)
	defer d.countConnection()()
	a := &assignments{
		d:           d,
		s:           s,
		superseded:  stream,
		send:        send,
		sent:        map[store.AttemptKey]sentState{},
		definitions: map[cluster.Ref]uint64{},
		have:        r.Have,
	}
	if err := a.sendAll(snap); err != nil {
		return err
	}
	return a.follow(ctx, follow)
}

// countConnection counts an assignment stream. The returned function counts its end, unless the server ends.
func (d *Dispatcher) countConnection() (end func()) {
	m := d.config.Metrics
	if m == nil {
		return func() {}
	}
	m.Connected()
	return func() {
		select {
		case <-d.sessions.over:
		default:
			m.Interrupted()
		}
	}
}

// errNewerStream ends a stream that another one of the agent replaced.
var errNewerStream = errors.New("a newer assignment stream of the session was opened")

// sendAll sends all desired attempts, and orders the agent to forget attempts without a record. The tables hold the
// session's registration, and therefore everything that any server sent to the agent before. An attempt without a
// record was therefore removed. This does not apply where the store went back: the agent then keeps ended attempts for
// the operator's decision (P1.7).
func (a *assignments) sendAll(snap *store.Snapshot) error {
	if err := a.d.releasedError(snap, a.s.node); err != nil {
		return err
	}
	if err := a.sendAttempts(snap); err != nil {
		return err
	}
	present := map[string]bool{}
	for row := range snap.NodeAttempts(a.s.node) {
		if row.Desired != nil {
			present[row.Desired.UUID] = true
		}
		if row.Observed != nil {
			present[row.Observed.UUID] = true
		}
	}
	kept := a.s.wentBack || recoveryNeeded(snap, a.s.node)
	for uuid := range a.have { // order-free: attempts are independent
		if !present[uuid] && !kept {
			if err := a.add(transport.Message{Forget: &transport.Forget{UUID: uuid}}); err != nil {
				return err
			}
		}
	}
	if err := a.add(transport.Message{Synced: true}); err != nil {
		return err
	}
	return a.flush()
}

// sendAttempts sends the desired attempts of the node.
func (a *assignments) sendAttempts(snap *store.Snapshot) error {
	for row := range snap.NodeAttempts(a.s.node) {
		if row.Desired == nil {
			continue
		}
		if err := a.sendAttempt(snap, row); err != nil {
			return err
		}
	}
	return nil
}

func (a *assignments) follow(ctx context.Context, follow *store.NodeFollower) error {
	ping := time.NewTicker(pingInterval)
	defer ping.Stop()
	cut := a.d.reach.unreachable()
	secrets := a.d.secrets.change()
	if err := errors.Join(a.resendSecretStamps(), a.flush()); err != nil { // changes since sendAll
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.s.ended:
			return a.d.sessions.endedError(a.s)
		case <-a.superseded:
			return errNewerStream
		case <-cut:
			return errCutOff
		case <-follow.Wake():
			a.changedKeys = follow.TakeInto(a.changedKeys[:0])
			err := a.sendChanges(a.changedKeys)
			clear(a.changedKeys) // releases the strings
			if cap(a.changedKeys) > maxKeptMessages {
				a.changedKeys = nil
			}
			if err != nil {
				return err
			}
		case <-secrets:
			secrets = a.d.secrets.change()
			if err := a.resendSecretStamps(); err != nil {
				return err
			}
		case open := <-a.s.streamRequests:
			if err := a.add(transport.Message{Open: open}); err != nil {
				return err
			}
		case <-ping.C:
			if err := a.add(transport.Message{Ping: true}); err != nil {
				return err
			}
		}
		if err := a.flush(); err != nil {
			return err
		}
	}
}

// sendChanges sends the changes of attempts that matter to the agent.
func (a *assignments) sendChanges(keys []store.AttemptKey) error {
	snap := a.d.config.Tables.Snapshot()
	if err := a.d.releasedError(snap, a.s.node); err != nil {
		return err
	}
	if _, claimed := snap.Node(a.s.node); claimed && a.unclaimed {
		a.unclaimed = false
		if err := a.sendAttempts(snap); err != nil {
			return err
		}
	}
	for _, key := range keys {
		row, ok := snap.Attempt(key.Task, key.Number)
		switch {
		case ok && row.Desired != nil && row.Desired.Node == a.s.node:
			if err := a.sendAttempt(snap, row); err != nil {
				return err
			}
		case !ok || row.Observed == nil || row.Node != a.s.node:
			if t, was := a.sent[key]; was {
				delete(a.sent, key)
				if err := a.add(transport.Message{
					Forget: &transport.Forget{Task: key.Task, UUID: t.uuid},
				}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// sendAttempt sends an attempt's desired record and the stamps of its secrets. It sends nothing to a node without a
// record, which was forgotten and registered again: its assignments have no generation yet, and the agent refuses a
// stop with a lower token than that of the assignment before.
func (a *assignments) sendAttempt(snap *store.Snapshot, row *store.AttemptRow) error {
	if _, claimed := snap.Node(a.s.node); !claimed {
		a.unclaimed = true
		return nil
	}
	return errors.Join(a.sendAssignment(snap, row), a.sendSecretStamps(snap, row))
}

// sendAssignment sends an attempt's desired record unless the agent knows all of it.
func (a *assignments) sendAssignment(snap *store.Snapshot, row *store.AttemptRow) error {
	d := row.Desired
	now := sentState{uuid: d.UUID, stop: d.Stop != nil, ended: d.Ended()}
	if d.Stop != nil {
		now.class, now.permit = d.Stop.Class, d.Stop.Permit
	}
	if d.RequestCounter != nil {
		now.requestCounter = *d.RequestCounter
	}
	key := store.AttemptKey{Task: row.Task, Number: row.Number}
	was, known := a.sent[key]
	if known && was == now {
		return nil
	}
	parts, _ := d.Task.Parts()
	parameters, current := snap.ParametersOf(parts) // the control plane is about to stop a task that is not current
	if _, has := a.have[d.UUID]; !has && !known && d.Stop == nil &&
		(row.Observed == nil && a.d.statuses.heldReason(snap, a.s, row) != "" || !current) {
		return nil
	}
	a.sent[key] = now
	if known && was.uuid != now.uuid {
		if err := a.add(transport.Message{Forget: &transport.Forget{Task: row.Task, UUID: was.uuid}}); err != nil {
			return err
		}
	}
	if o := row.Observed; o != nil && o.Gone && o.UUID == d.UUID {
		return nil // an agent that lost its memory must not start it again
	}
	unknown := !d.Ended() || row.DesiredRev == 0 && row.ObservedRev == 0
	if _, has := a.have[d.UUID]; row.Outcome != nil && unknown && !known && !has {
		return nil // lost before the agent received it: it has not begun, and will not. Or nothing is left of it
	}
	rev := row.DesiredRev
	switch {
	case rev == 0 && d.Ended():
		rev = row.OutcomeRev // it is later than the plan record, which is what the agent knows
	case rev == 0:
		rev = row.PlanRev
	}
	assigned := transport.Assignment{Desired: *d, Revision: rev}
	assigned.Token = sentToken(snap, a.s.node, d.Token)
	assigned.Parameters = parameters
	if have, has := a.have[d.UUID]; has && have == assigned.Known() {
		return nil
	}
	if def, ok := snap.Definition(d.Definition); ok && a.definitions[d.Definition] != def.Created {
		if len(a.definitions) >= maxSentDefinitions {
			clear(a.definitions) // they are sent again
		}
		a.definitions[d.Definition] = def.Created
		if err := a.add(transport.Message{Definition: def.Value}); err != nil {
			return err
		}
	}
	if d.Stop == nil && row.Observed == nil {
		span := a.d.config.Tracer.Span("dispatcher.assign", d.Trace,
			telemetry.About{Task: d.Task, Attempt: d.Attempt, Node: d.Node})
		assigned.Trace = span.Parent(d.Trace)
		span.End(nil)
	}
	return a.add(transport.Message{Assignment: &assigned})
}

func (a *assignments) add(m transport.Message) error {
	a.out = append(a.out, m)
	if len(a.out) < maxMessagesPerWrite {
		return nil
	}
	return a.flush()
}

func (a *assignments) flush() error {
	if len(a.out) == 0 {
		return nil
	}
	err := a.send(a.out)
	clear(a.out) // releases the messages, since a stream is idle most of the time
	if a.out = a.out[:0]; cap(a.out) > maxKeptMessages {
		a.out = nil
	}
	return err
}
