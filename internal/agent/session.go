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

// Pauses between tries to reach the server.
const (
	dialFirst = 200 * time.Millisecond
	dialMost  = 10 * time.Second
	// refusedFailures makes the next pause the longest one.
	refusedFailures = 20
)

// Pauses of an agent whose session was taken away by another, again and again: two agents of one name would chase each
// other for ever. A session that lasted for peace shows that the other one is gone.
const (
	displacedFirst = 10 * time.Second
	displacedMost  = 4 * time.Minute
	displacedPeace = 10 * time.Minute
)

// sessions registers and keeps the session, again and again, until ctx ends.
func (a *Agent) sessions(ctx context.Context) {
	p := a.pause(dialFirst, dialMost)
	for ctx.Err() == nil {
		registration, versions := a.registration()
		welcome, err := a.Source.Register(ctx, registration)
		if err != nil {
			a.unregistered(ctx, err)
			if errors.Is(err, transport.ErrRefused) {
				p.failures = refusedFailures
			}
			if !p.wait(ctx) {
				return
			}
			continue
		}
		a.Logger.Info("registered", "session", welcome.Session, "tasks", len(registration.Tasks))
		a.saw(welcome.Token, welcome.Session)
		a.learned(welcome.Servers)
		a.inSession(welcome)
		a.machine.toldUse(registration.Stats, true)
		a.reports.registered(versions, welcome.Again)
		began := time.Now()
		err = a.session(ctx, welcome)
		if ctx.Err() != nil {
			return
		}
		a.unregistered(ctx, err)
		if time.Since(began) > dialMost {
			p.reset()
		}
		if !a.afterSession(err, welcome.Session, time.Since(began)).or(p).wait(ctx) {
			return
		}
	}
}

// afterSession returns the pause after a session that another agent ended, or nil where nothing of that kind happened.
func (a *Agent) afterSession(err error, session uint64, lasted time.Duration) *pause {
	if lasted > displacedPeace {
		a.displaced = 0
	}
	var over *transport.SessionError
	if !errors.As(err, &over) || over.Newest <= session {
		return nil
	}
	a.displaced++
	if a.displaced < 2 {
		return nil // a registration of our own whose answer was lost does the same, once
	}
	a.Logger.Error("another agent calls itself by this node's name and took the session away; each machine "+
		"needs a name of its own",
		"node", a.Name, "times", a.displaced)
	p := a.pause(displacedFirst, displacedMost)
	p.failures = a.displaced - 2
	return p
}

// unregistered notes why there is no session.
func (a *Agent) unregistered(ctx context.Context, err error) {
	var over *transport.SessionError
	if errors.As(err, &over) && over.Newest != 0 {
		a.saw(cluster.Token{}, over.Newest)
	}
	if ctx.Err() == nil {
		a.Logger.Warn("no session with the server", "error", plain.Text(err))
	}
}

// errStrays ends a session: the next registration tells what was found late.
var errStrays = errors.New(
	"programs were found of which the agent has no record; the node registers again to tell of them")

// session keeps the stream and the reports of one session going until either says that it is over. What is begun
// in it, such as tasks, outlives it and ends with life.
func (a *Agent) session(life context.Context, welcome transport.Welcome) error {
	ctx, end := context.WithCancelCause(life)
	defer end(nil)
	var both sync.WaitGroup
	both.Go(func() { end(a.reports.send(ctx, welcome)) })
	both.Go(func() { end(a.listen(ctx, life, welcome.Session)) })
	if source, ok := a.Source.(addressSource); ok {
		both.Go(func() { end(a.book.ask(ctx, source, welcome.Session)) })
	}
	both.Go(func() {
		select {
		case <-ctx.Done():
		case <-a.found.news:
			end(errStrays)
		}
	})
	both.Wait()
	return context.Cause(ctx)
}

// listen keeps an assignment stream open.
func (a *Agent) listen(ctx, life context.Context, session uint64) error {
	p := a.pause(dialFirst, dialMost)
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
func (a *Agent) stream(ctx, life context.Context, session uint64, p *pause) error {
	stream, err := a.Source.Assignments(ctx, a.resumption(session))
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	a.listens()
	defer a.hearsNothing()
	for {
		m, err := stream.Next(ctx)
		if err != nil {
			return err
		}
		p.reset()
		a.take(life, m)
	}
}

// resumption says what the agent has, so that the server sends the rest. Definitions that no attempt needs
// are forgotten here, where the server learns of it.
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

// take acts on one message. It never waits for a task. What it begins ends with ctx.
func (a *Agent) take(ctx context.Context, m transport.Message) {
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
			t.toldStamps(ctx, m.Secrets.Stamps)
		}
	case m.Open != nil:
		a.open(ctx, *m.Open)
	}
}

// define keeps a definition. A version never changes, so one that is there already stays.
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

// assign hands an assignment to the task's attempt, or begins the attempt. What is older than what the
// agent acts on is refused (P1.6, P6.6).
func (a *Agent) assign(ctx context.Context, as *transport.Assignment) {
	if t := a.task(as.Task, as.UUID); as.UUID != "" && t != nil && t.assigned(as) {
		a.saw(as.Token, 0)
		return
	}
	if why := a.refuse(as); why != "" {
		a.Logger.Warn("an assignment was refused", "task", as.Task, "attempt", as.Attempt, "reason", why)
		return
	}
	a.saw(as.Token, 0)
	a.begin(ctx, as)
}

// refuse says why an attempt that the agent does not know is not begun, or nothing.
func (a *Agent) refuse(as *transport.Assignment) string {
	seen := a.marked().Token
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
		as.Token.Incarnation < seen.Incarnation && !a.found.has(as.UUID):
		// the plane takes it for lost (P1.7)
		return "it was placed before the store went back, and may have ended here since"
	}
	if t := a.task(as.Task, ""); t != nil && t.attempt > as.Attempt {
		return "a later attempt of the task is here"
	}
	return ""
}

// validUUID reports whether an attempt's id can be part of a file name and of an executor's id.
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
