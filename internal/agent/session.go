package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/plain"
	"github.com/berthd/berth/internal/transport"
)

// Backoff between attempts to reach the server.
const (
	minDialBackoff = 200 * time.Millisecond
	maxDialBackoff = 10 * time.Second
	// failuresForMaxBackoff makes the next backoff the longest one.
	failuresForMaxBackoff = 20
)

// Backoff of an agent that repeatedly loses its session to another agent of the same name: two such agents would
// displace each other for ever. A session that lasted for displacedResetAge proves that the other agent is gone.
const (
	minDisplacedBackoff = 10 * time.Second
	maxDisplacedBackoff = 4 * time.Minute
	displacedResetAge   = 10 * time.Minute
)

// sessions registers and keeps a session, again and again, until ctx ends.
func (a *Agent) sessions(ctx context.Context) {
	p := a.newBackoff(minDialBackoff, maxDialBackoff)
	for ctx.Err() == nil {
		registration, versions := a.registration()
		welcome, err := a.Source.Register(ctx, registration)
		if err != nil {
			a.unregistered(ctx, err)
			if errors.Is(err, transport.ErrRefused) {
				p.failures = failuresForMaxBackoff
			}
			if !p.wait(ctx) {
				return
			}
			continue
		}
		a.Logger.Info("registered", "session", welcome.Session, "tasks", len(registration.Tasks))
		a.raiseMark(welcome.Token, welcome.Session)
		a.rememberServers(welcome.Servers)
		a.beginSession(welcome)
		a.machine.noteReported(registration.Stats, true)
		a.reports.registered(versions, welcome.Again)
		began := time.Now()
		err = a.runSession(ctx, welcome)
		if ctx.Err() != nil {
			return
		}
		a.unregistered(ctx, err)
		if time.Since(began) > maxDialBackoff {
			p.reset()
		}
		if !a.afterSession(err, welcome.Session, time.Since(began)).orElse(p).wait(ctx) {
			return
		}
	}
}

// afterSession returns the backoff after a session that another agent ended, or nil after any other end.
func (a *Agent) afterSession(err error, session uint64, lasted time.Duration) *backoff {
	if lasted > displacedResetAge {
		a.displaced = 0
	}
	var over *transport.SessionError
	if !errors.As(err, &over) || over.Newest <= session {
		return nil
	}
	a.displaced++
	if a.displaced < 2 {
		return nil // a lost reply to our own registration has the same effect, once
	}
	a.Logger.Error("another agent calls itself by this node's name and took the session away; each machine "+
		"needs a name of its own",
		"node", a.Name, "times", a.displaced)
	p := a.newBackoff(minDisplacedBackoff, maxDisplacedBackoff)
	p.failures = a.displaced - 2
	return p
}

// unregistered logs why the agent has no session.
func (a *Agent) unregistered(ctx context.Context, err error) {
	var over *transport.SessionError
	if errors.As(err, &over) && over.Newest != 0 {
		a.raiseMark(cluster.Token{}, over.Newest)
	}
	if ctx.Err() == nil {
		a.Logger.Warn("no session with the server", "error", plain.Text(err))
	}
}

// errUnreported ends a session: the next registration reports containers that were found late.
var errUnreported = errors.New(
	"containers without a record were found; the node registers again to report them")

// runSession runs the stream and the reports of one session until either says that the session is over. Work that
// begins in it, such as tasks, outlives it and ends with life.
func (a *Agent) runSession(life context.Context, welcome transport.Welcome) error {
	ctx, end := context.WithCancelCause(life)
	defer end(nil)
	var both sync.WaitGroup
	both.Go(func() { end(a.reports.send(ctx, welcome)) })
	both.Go(func() { end(a.listen(ctx, life, welcome.Session)) })
	if source, ok := a.Source.(addressSource); ok {
		both.Go(func() { end(a.services.poll(ctx, source, welcome.Session)) })
	}
	both.Go(func() {
		select {
		case <-ctx.Done():
		case <-a.orphans.unreported:
			end(errUnreported)
		}
	})
	both.Wait()
	return context.Cause(ctx)
}

// listen keeps an assignment stream open.
func (a *Agent) listen(ctx, life context.Context, session uint64) error {
	p := a.newBackoff(minDialBackoff, maxDialBackoff)
	for {
		err := a.stream(ctx, life, session, p)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, transport.ErrSession), errors.Is(err, transport.ErrElsewhere):
			return err
		}
		a.Logger.Info("the assignment stream ended", "error", err)
		if !p.wait(ctx) {
			return ctx.Err()
		}
	}
}

// stream reads one assignment stream to its end.
func (a *Agent) stream(ctx, life context.Context, session uint64, p *backoff) error {
	stream, err := a.Source.Assignments(ctx, a.resumption(session))
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	a.openTTLWindow()
	defer a.closeTTLWindow()
	for {
		m, err := stream.Next(ctx)
		if err != nil {
			return err
		}
		p.reset()
		a.handleMessage(life, m)
	}
}

// resumption describes what the agent has, so that the server sends the rest. The agent forgets definitions here that
// no attempt needs, because the request tells the server about it.
func (a *Agent) resumption(session uint64) transport.AssignmentsRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := transport.AssignmentsRequest{Node: a.Name, Session: session, Have: map[string]transport.Known{}}
	needed := map[cluster.Ref]bool{}
	for uuid, t := range a.tasks {
		needed[t.definition] = true
		if t.hasDefinition() {
			r.Have[uuid] = *t.acted.Load()
		}
	}
	for ref := range a.definitions {
		if !needed[ref] {
			delete(a.definitions, ref)
			a.store.ForgetDefinition(ref)
			continue
		}
		r.Definitions = append(r.Definitions, ref)
	}
	return r
}

// handleMessage handles one message without waiting for any task. Work that begins here ends with ctx.
func (a *Agent) handleMessage(ctx context.Context, m transport.Message) {
	switch {
	case m.Definition != nil:
		a.define(m.Definition)
	case m.Assignment != nil:
		a.assign(ctx, m.Assignment)
	case m.Forget != nil:
		if t := a.task(m.Forget.Task, m.Forget.UUID); t != nil {
			t.forget()
		}
	case m.Secrets != nil:
		if t := a.task(m.Secrets.Task, m.Secrets.UUID); t != nil {
			t.setStamps(ctx, m.Secrets.Stamps)
		}
	case m.Open != nil:
		a.openStream(ctx, *m.Open)
	}
}

// define stores a definition. Versions are immutable, so a definition that is already stored stays.
func (a *Agent) define(d *cluster.TaskDefinition) {
	a.mu.Lock()
	_, known := a.definitions[d.Ref()]
	if !known {
		a.definitions[d.Ref()] = d
		a.store.QueueDefinition(d)
	}
	var waiting []*task
	for _, t := range a.tasks {
		if t.definition == d.Ref() && !t.hasDefinition() {
			waiting = append(waiting, t)
		}
	}
	a.mu.Unlock()
	for _, t := range waiting {
		t.defined(d)
	}
}

// assign passes an assignment to its attempt, or begins the attempt. The agent refuses assignments older than its
// current ones (P1.6, P6.6).
func (a *Agent) assign(ctx context.Context, as *transport.Assignment) {
	if t := a.task(as.Task, as.UUID); as.UUID != "" && t != nil && t.assigned(as) {
		a.raiseMark(as.Token, 0)
		return
	}
	if why := a.refusalReason(as); why != "" {
		a.Logger.Warn("an assignment was refused", "task", as.Task, "attempt", as.Attempt, "reason", why)
		return
	}
	a.raiseMark(as.Token, 0)
	a.beginAttempt(ctx, as)
}

// refusalReason returns the reason not to begin an unknown attempt, or "".
func (a *Agent) refusalReason(as *transport.Assignment) string {
	seen := a.currentMark().Token
	switch {
	case !validUUID(as.UUID):
		return "its UUID is not one"
	case as.Node != a.Name:
		return "it is for the node " + as.Node
	case as.Stop != nil:
		return ""
	case as.Token.Generation < seen.Generation:
		return "it comes from an earlier owner of the node"
	case as.Token.Generation == seen.Generation && as.Token.Incarnation != 0 &&
		as.Token.Incarnation < seen.Incarnation && !a.orphans.has(as.UUID):
		// the control plane counts the attempt as lost (P1.7)
		return "it was placed before the store went back, and may have ended here since"
	}
	if t := a.task(as.Task, ""); t != nil && t.attempt > as.Attempt {
		return "a later attempt of the task is here"
	}
	return ""
}

// validUUID reports whether an attempt's id is safe as part of a file name and of an executor's id.
func validUUID(s string) bool {
	if s == "" || len(s) > 60 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && (c != '-' || i == 0) {
			return false
		}
	}
	return true
}
