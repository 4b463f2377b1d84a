package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/telemetry"
	"github.com/berthd/berth/internal/transport"
)

const (
	// pingEvery shows an agent that its assignment stream leads somewhere, should nothing else do so.
	pingEvery = 10 * time.Minute
	// maxBurst is how many messages are sent in one write, and mostKept for how many a stream at rest has room.
	maxBurst = 512
	mostKept = 4
)

// assignments is what one assignment stream has sent.
type assignments struct {
	d *Dispatcher
	s *session
	// newer is closed when the agent opened another stream: then this one leads nowhere.
	newer chan struct{}
	send  func([]transport.Message) error
	out   []transport.Message
	taken []store.AttemptKey
	// sent holds, by attempt, what the agent was told last.
	sent        map[store.AttemptKey]told
	definitions map[cluster.Ref]bool
	have        map[string]transport.Known
	// stamps are those of secrets that the agent was told, by the attempt's UUID; nil for none.
	stamps map[string]transport.SecretStamps
}

// told is the part of a desired record that can change once it was sent.
type told struct {
	uuid   string
	class  cluster.StopClass // of its stop
	stop   bool
	ended  bool
	permit string
	meter  cluster.Meter
}

// Assign sends what the node should run, then every change of it, until the session or the context ends. Nothing
// is sent that says what should not run: absence never stops a task (P6.6).
func (d *Dispatcher) Assign(ctx context.Context, r transport.AssignmentsRequest,
	send func([]transport.Message) error,
) error {
	s, err := d.session(r.Node, r.Session)
	if err != nil {
		return err
	}
	if err := d.reach.lost(); err != nil {
		return err
	}
	follow := d.config.Tables.FollowNode(r.Node)
	defer follow.Close()
	snap, err := d.config.Tables.WaitFor(ctx, s.began)
	if err != nil {
		return err
	}
	stream := d.takeStream(s)
	defer d.dropStream(s, stream)
	a := &assignments{
		d:           d,
		s:           s,
		newer:       stream,
		send:        send,
		sent:        map[store.AttemptKey]told{},
		definitions: map[cluster.Ref]bool{},
		have:        r.Have,
	}
	for _, ref := range r.Definitions {
		a.definitions[ref] = true
	}
	if err := a.begin(snap); err != nil {
		return err
	}
	return a.follow(ctx, follow)
}

// errNewerStream ends a stream in whose place the agent opened another.
var errNewerStream = errors.New("a newer assignment stream of the session was opened")

// begin sends all that stands, and tells the agent to forget what has no record any more. The tables hold the session's
// registration, and so all that any server told the agent before it: what has no record was removed. Where the store
// went back nothing follows from that, and what the agent has ended is kept for the operator's decision (P1.7).
func (a *assignments) begin(snap *store.Snapshot) error {
	standing := map[string]bool{}
	for row := range snap.NodeAttempts(a.s.node) {
		if row.Desired == nil {
			continue
		}
		standing[row.Desired.UUID] = true
		if err := errors.Join(a.tell(snap, row), a.tellSecrets(snap, row)); err != nil {
			return err
		}
	}
	for row := range snap.NodeAttempts(a.s.node) {
		if row.Observed != nil {
			standing[row.Observed.UUID] = true
		}
	}
	kept := a.s.wentBack || a.d.recoveryNeeded(snap)
	for uuid := range a.have { // order-free: each is told by itself
		if !standing[uuid] && !kept {
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

func (a *assignments) follow(ctx context.Context, follow *store.NodeFollower) error {
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	cut := a.d.reach.over()
	news := a.d.secretNews()
	if err := errors.Join(a.secretsChanged(), a.flush()); err != nil { // what came between the first look and this
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.s.over:
			return &transport.SessionError{
				Newest: a.d.newest(a.s.node),
				Detail: fmt.Sprintf("session %d has ended", a.s.number),
			}
		case <-a.newer:
			return errNewerStream
		case <-cut:
			return errCutOff
		case <-follow.Wake():
			a.taken = follow.TakeInto(a.taken[:0])
			err := a.changed(a.taken)
			clear(a.taken) // as the messages in flush
			if cap(a.taken) > mostKept {
				a.taken = nil
			}
			if err != nil {
				return err
			}
		case <-news:
			news = a.d.secretNews()
			if err := a.secretsChanged(); err != nil {
				return err
			}
		case open := <-a.s.opens:
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

// changed tells the agent of the attempts whose rows changed, where that matters to it.
func (a *assignments) changed(keys []store.AttemptKey) error {
	snap := a.d.config.Tables.Snapshot()
	for _, key := range keys {
		row, ok := snap.Attempt(key.Task, key.Number)
		switch {
		case ok && row.Desired != nil && row.Desired.Node == a.s.node:
			if err := errors.Join(a.tell(snap, row), a.tellSecrets(snap, row)); err != nil {
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

// tell sends an attempt's desired record unless the agent knows all of it.
func (a *assignments) tell(snap *store.Snapshot, row *store.AttemptRow) error {
	d := row.Desired
	now := told{uuid: d.UUID, stop: d.Stop != nil, ended: d.Ended()}
	if d.Stop != nil {
		now.class, now.permit = d.Stop.Class, d.Stop.Permit
	}
	if d.Meter != nil {
		now.meter = *d.Meter
	}
	key := store.AttemptKey{Task: row.Task, Number: row.Number}
	was, known := a.sent[key]
	if known && was == now {
		return nil
	}
	if _, has := a.have[d.UUID]; !has && !known && row.Observed == nil && d.Stop == nil &&
		a.d.held(snap, a.s, row) != "" {
		return nil
	}
	a.sent[key] = now
	if known && was.uuid != now.uuid {
		if err := a.add(transport.Message{Forget: &transport.Forget{Task: row.Task, UUID: was.uuid}}); err != nil {
			return err
		}
	}
	if o := row.Observed; o != nil && o.Gone && o.UUID == d.UUID {
		return nil // an agent that lost its memory must not begin it again
	}
	if _, has := a.have[d.UUID]; row.Outcome != nil && !d.Ended() && !known && !has {
		return nil // lost before the agent heard of it: what may go on there has not begun, and does not any more
	}
	rev := row.DesiredRev
	if rev == 0 {
		rev = row.PlanRev
	}
	assigned := transport.Assignment{Desired: *d, Revision: rev}
	if have, has := a.have[d.UUID]; has && have == assigned.Known() {
		return nil
	}
	if !a.definitions[d.Definition] {
		if def, ok := snap.Definition(d.Definition); ok {
			a.definitions[d.Definition] = true
			if err := a.add(transport.Message{Definition: def.Value}); err != nil {
				return err
			}
		}
	}
	if d.Stop == nil && row.Observed == nil {
		span := a.d.config.Tracer.Span("dispatcher.assign", d.Trace,
			telemetry.About{Task: d.Task, Attempt: d.Attempt, Node: d.Node})
		assigned.Trace = span.Parent(d.Trace)
		span.End(nil)
	}
	assigned.Token.Generation = a.d.token(snap, a.s.node).Generation
	return a.add(transport.Message{Assignment: &assigned})
}

func (a *assignments) add(m transport.Message) error {
	a.out = append(a.out, m)
	if len(a.out) < maxBurst {
		return nil
	}
	return a.flush()
}

func (a *assignments) flush() error {
	if len(a.out) == 0 {
		return nil
	}
	err := a.send(a.out)
	clear(a.out) // a stream is at rest for most of the time: it keeps nothing of what it sent
	if a.out = a.out[:0]; cap(a.out) > mostKept {
		a.out = nil
	}
	return err
}
