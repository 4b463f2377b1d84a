package dispatcher_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/dispatcher"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/transport"
)

// lagging is an engine whose watch can be delayed, like that of a follower that is far behind.
type lagging struct {
	store.Engine
	mu   sync.Mutex
	gate chan struct{} // closed: the watch runs
}

func (l *lagging) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gate = make(chan struct{})
}

func (l *lagging) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.gate)
}

func (l *lagging) open() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gate
}

func (l *lagging) Watch(ctx context.Context, prefix string, after uint64) store.Watch {
	return &heldWatch{l.Engine.Watch(ctx, prefix, after), l}
}

type heldWatch struct {
	store.Watch
	of *lagging
}

func (w *heldWatch) Next(ctx context.Context) (store.Batch, error) {
	b, err := w.Watch.Next(ctx)
	if err != nil {
		return b, err
	}
	for {
		select {
		case <-w.of.open():
			return b, nil
		case <-ctx.Done():
			return b, ctx.Err()
		}
	}
}

// other is a second server of the fixture, with tables of its own.
type other struct {
	*dispatcher.Dispatcher
	tables *store.Tables
	engine *lagging
}

// second starts another server on the fixture's store. hooks, unless zero, are those of its engine.
func (f *fixture) second(hooks memory.Hooks) *other {
	f.t.Helper()
	o := &other{engine: &lagging{Engine: f.engine.Open(hooks), gate: make(chan struct{})}}
	o.engine.release()
	o.tables = store.NewTables(store.TablesConfig{Engine: o.engine, Logger: slog.New(slog.DiscardHandler)})
	o.Dispatcher = dispatcher.New(dispatcher.Config{
		Engine: o.engine, Tables: o.tables, Logger: slog.New(slog.DiscardHandler),
		Clock: f.clock,
	})
	ctx, cancel := context.WithCancel(f.t.Context())
	var runs sync.WaitGroup
	runs.Go(func() { _ = o.tables.Run(ctx) })
	runs.Go(func() { _ = o.Run(ctx) })
	f.t.Cleanup(func() {
		cancel()
		runs.Wait()
	})
	synctest.Wait()
	return o
}

// follow opens an assignment stream and returns its messages and its end.
func follow(ctx context.Context, d *dispatcher.Dispatcher, r transport.AssignmentsRequest) (*received, chan error) {
	h := &received{}
	ended := make(chan error, 1)
	go func() { ended <- d.Assign(ctx, r, h.take) }()
	synctest.Wait()
	return h, ended
}

// received holds the messages of a stream.
type received struct {
	mu       sync.Mutex
	messages []transport.Message
}

func (h *received) take(ms []transport.Message) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.messages = append(h.messages, ms...)
	return nil
}

// count returns how many assignments and forgets were sent.
func (h *received) count() (assigned, stopped, forgotten int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.messages {
		switch {
		case m.Assignment != nil && m.Assignment.Stop != nil:
			stopped++
		case m.Assignment != nil:
			assigned++
		case m.Forget != nil:
			forgotten++
		}
	}
	return assigned, stopped, forgotten
}

// T12: an agent moves to a server that lags behind the first one. Nothing is stopped or forgotten: the server sends
// nothing before its tables hold the registration.
func TestMoveToALaggingServer(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		two := f.second(memory.Hooks{})
		f.register("n1")
		two.engine.hold() // the second server receives neither the placement nor the report
		id := f.placeTask("n1")
		if _, err := f.report("n1", 1, 1, observed(id, cluster.StateStarting)); err != nil {
			t.Fatal(err)
		}
		registered := make(chan error, 1)
		go func() {
			_, err := two.Register(t.Context(), transport.Registration{
				Wire: transport.WireVersion,
				Node: "n1", Previous: 1, Token: cluster.Token{Incarnation: 7, Epoch: 3},
				Tasks: []cluster.Observed{observed(id, cluster.StateRunning)},
			})
			registered <- err
		}()
		synctest.Wait()
		time.Sleep(5 * time.Second) // in-bubble: inWorld makes one
		if len(registered) != 0 {
			t.Fatalf("the lagging server answered: %v", <-registered)
		}
		two.engine.release()
		if err := <-registered; err != nil {
			t.Fatal(err)
		}
		h, _ := follow(t.Context(), two.Dispatcher,
			transport.AssignmentsRequest{Node: "n1", Session: 2, Have: map[string]transport.Known{id: {Revision: 1}}})
		if assigned, stopped, forgotten := h.count(); assigned != 1 || stopped+forgotten != 0 {
			t.Errorf("the second server sent %d assignments, %d stops and %d forgets; want the assignment alone",
				assigned, stopped, forgotten)
		}
		row, _ := f.now().Attempt(task, 1)
		if row.Observed == nil || row.Observed.State != cluster.StateRunning || row.Observed.Session != 2 {
			t.Errorf("status: got %+v, want it running in session 2", row.Observed)
		}
	})
}

// A node reports to a lagging server an attempt that the server does not know and that belongs to another node. The
// report is refused.
func TestReportOfAnUnknownAttemptToALaggingServer(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		two := f.second(memory.Hooks{})
		f.register("n1")
		if _, err := two.Register(t.Context(),
			transport.Registration{Wire: transport.WireVersion, Node: "n2"}); err != nil {
			t.Fatal(err)
		}
		two.engine.hold() // the second server does not receive the placement
		id := f.placeTask("n1")
		time.AfterFunc(2*time.Second, two.engine.release)
		reply, err := two.Report(t.Context(),
			transport.Report{
				Node: "n2", Session: 1, Seq: 1,
				Tasks: []cluster.Observed{observed(id, cluster.StateFailed)},
			})
		if err != nil || reply.Refused[id].Reason != cluster.ReasonReplaced {
			t.Errorf("got %+v %v, want the report refused", reply, err)
		}
		if row, _ := f.now().Attempt(task, 1); row.Observed != nil || row.Node != "n1" {
			t.Errorf("the attempt is on %s and %+v, want it on n1 and not reported", row.Node, row.Observed)
		}
	})
}

// A registration that is ahead of the tables is checked against the store.
func TestRegistrationAheadOfTheTables(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		two := f.second(memory.Hooks{})
		two.engine.hold()
		f.register("n1")
		time.AfterFunc(2*time.Second, two.engine.release)
		got, err := two.Register(t.Context(),
			transport.Registration{Wire: transport.WireVersion, Node: "n1", Previous: 1})
		if err != nil || got.Session != 2 {
			t.Errorf("got %+v %v, want session 2", got, err)
		}
	})
}

// An agent that has seen a newer leader than a lagging server's tables show is no sign of a store that went back.
func TestTokenAheadOfTheTables(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		two := f.second(memory.Hooks{})
		two.engine.hold()
		value, err := store.Encode(&cluster.Leader{Epoch: 4, Incarnation: 7})
		if err != nil {
			t.Fatal(err)
		}
		group := store.Group{Ops: []store.Op{{Key: p.Leader(cluster.DefaultDomain), Value: value}}}
		if _, err := f.engine.Commit(t.Context(), []store.Group{group}); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(2*time.Second, two.engine.release)
		seen := cluster.Token{Generation: 1, Incarnation: 7, Epoch: 4}
		got, err := two.Register(t.Context(),
			transport.Registration{Wire: transport.WireVersion, Node: "n1", Token: seen})
		if err != nil {
			t.Fatal(err)
		}
		h, _ := follow(t.Context(), two.Dispatcher, transport.AssignmentsRequest{
			Node: "n1", Session: got.Session, Have: map[string]transport.Known{"u8": {Revision: 99}},
		})
		if _, _, forgotten := h.count(); forgotten != 1 {
			t.Errorf("%d attempts were forgotten, want the one that is gone", forgotten)
		}
	})
}

// P1.7: an agent that has seen a later store is accepted, and its token is written for the leader. Its attempts are
// neither stopped nor forgotten.
func TestStoreThatWentBack(t *testing.T) {
	for name, seen := range map[string]cluster.Token{
		"a later epoch":       {Generation: 1, Incarnation: 7, Epoch: 9},
		"a later incarnation": {Generation: 1, Incarnation: 8, Epoch: 1},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(t *testing.T, f *fixture) {
				unknown := cluster.Observed{Task: "c.j.1.s.7", Attempt: 1, UUID: "u7", State: cluster.StateRunning}
				got, err := f.Register(t.Context(), transport.Registration{
					Wire: transport.WireVersion,
					Node: "n1", Previous: 41, Token: seen, Tasks: []cluster.Observed{unknown},
				})
				if err != nil || got.Session != 42 {
					t.Fatalf("got %+v %v, want session 42, above what the agent knows", got, err)
				}
				snap := f.now()
				if e, _ := snap.NodeStatus("n1"); e.Value.Token != seen || !e.Value.Synced {
					t.Errorf("status: got %+v, want the token that was shown", e.Value)
				}
				if row, ok := snap.Attempt(unknown.Task, 1); !ok || row.Observed == nil ||
					row.Observed.State != cluster.StateRunning {
					t.Error("the task that the store does not know is not published")
				}
				h, _ := follow(t.Context(), f.Dispatcher, transport.AssignmentsRequest{
					Node: "n1", Session: 42, Have: map[string]transport.Known{
						"u7": {Revision: 99},
						"u8": {Revision: 99},
					},
				})
				if assigned, stopped, forgotten := h.count(); assigned+stopped+forgotten != 0 {
					t.Errorf("the agent was sent %d assignments, %d stops and %d forgets", assigned, stopped, forgotten)
				}
			})
		})
	}
}

// An ordinary session forgets attempts that the store does not have.
func TestRemovedAttemptsAreForgotten(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		r := transport.AssignmentsRequest{
			Node: "n1", Session: 1,
			Have: map[string]transport.Known{"u8": {Revision: 99}},
		}
		h, _ := follow(t.Context(), f.Dispatcher, r)
		if _, _, forgotten := h.count(); forgotten != 1 {
			t.Errorf("%d attempts were forgotten, want 1", forgotten)
		}
		f.put(p.Recovery(cluster.DefaultDomain), &cluster.Recovery{State: cluster.RecoveryNeeded})
		h, _ = follow(t.Context(), f.Dispatcher, r)
		if _, _, forgotten := h.count(); forgotten != 0 {
			t.Errorf("%d attempts were forgotten before the operator decided", forgotten)
		}
	})
}

// A delayed report of a session that another server took over changes nothing, and its server learns that the session
// is over without being asked.
func TestOldServerEndsItsSessions(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		two := f.second(memory.Hooks{})
		f.register("n1")
		id := f.placeTask("n1")
		if _, err := f.report("n1", 1, 1, observed(id, cluster.StateStarting)); err != nil {
			t.Fatal(err)
		}
		_, ended := follow(t.Context(), f.Dispatcher, transport.AssignmentsRequest{Node: "n1", Session: 1})
		if !f.Holds("n1") || two.Holds("n1") {
			t.Errorf("held by the first server: %v, by the second: %v", f.Holds("n1"), two.Holds("n1"))
		}
		if _, err := two.Register(t.Context(), transport.Registration{
			Wire: transport.WireVersion,
			Node: "n1", Previous: 1, Tasks: []cluster.Observed{observed(id, cluster.StateRunning)},
		}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		var over *transport.SessionError
		select {
		case err := <-ended:
			if !errors.As(err, &over) || over.Newest != 2 {
				t.Errorf("the old stream ended with %v, want the newest session", err)
			}
		default:
			t.Error("the old stream continues")
		}
		if f.Holds("n1") || !two.Holds("n1") {
			t.Errorf("held by the first server: %v, by the second: %v", f.Holds("n1"), two.Holds("n1"))
		}
		if _, err := f.report("n1", 1, 2, observed(id, cluster.StateFailed)); !errors.As(err, &over) ||
			over.Newest != 2 {
			t.Errorf("a late report: got %v, want that the session is over", err)
		}
		row, _ := f.now().Attempt(task, 1)
		if row.Observed.State != cluster.StateRunning || row.Observed.Session != 2 {
			t.Errorf("status: got %+v, want the status of the new session", row.Observed)
		}
	})
}

// The same with lagging tables of the old server. Its write compares the session number, which keeps the late report
// out (P6.1), whether or not the new session reported the task.
func TestLateReportAtAServerThatLags(t *testing.T) {
	for name, reported := range map[string]bool{"reported by the new session": true, "not reported": false} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(t *testing.T, f *fixture) {
				two := f.second(memory.Hooks{})
				if _, err := two.Register(t.Context(),
					transport.Registration{Wire: transport.WireVersion, Node: "n1"}); err != nil {
					t.Fatal(err)
				}
				id := f.placeTask("n1")
				synctest.Wait()
				two.engine.hold()
				r := transport.Registration{Wire: transport.WireVersion, Node: "n1", Previous: 1}
				if reported {
					r.Tasks = []cluster.Observed{observed(id, cluster.StateRunning)}
				}
				if _, err := f.Register(t.Context(), r); err != nil {
					t.Fatal(err)
				}
				late := make(chan error, 1)
				go func() {
					_, err := two.Report(t.Context(), transport.Report{
						Node: "n1", Session: 1, Seq: 1, Tasks: []cluster.Observed{observed(id, cluster.StatePreparing)},
					})
					late <- err
				}()
				synctest.Wait()
				two.engine.release()
				if err := <-late; !errors.Is(err, transport.ErrSession) {
					t.Errorf("the late report: got %v, want that the session is over", err)
				}
				row, _ := f.now().Attempt(task, 1)
				if reported && row.Observed.State != cluster.StateRunning || !reported && row.Observed != nil {
					t.Errorf("status: got %+v, want the status of the new session", row.Observed)
				}
			})
		})
	}
}

// A server is killed after it committed a report and before it answered. The agent repeats the report to another
// server. The barrier is passed once, with one event.
func TestServerKilledBetweenCommitAndAnswer(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		killed := make(chan struct{})
		two := f.second(memory.Hooks{After: func(ctx context.Context, groups []store.Group, _ store.Result) error {
			for _, g := range groups {
				for _, op := range g.Ops {
					if op.Key == p.Observed("n1", task) {
						close(killed)
						<-ctx.Done() // it gets no answer to its own commit
						return ctx.Err()
					}
				}
			}
			return nil
		}})
		id := f.placeTask("n1")
		if _, err := two.Register(t.Context(),
			transport.Registration{Wire: transport.WireVersion, Node: "n1"}); err != nil {
			t.Fatal(err)
		}
		starting := observed(id, cluster.StateStarting)
		lost, cancel := context.WithCancel(t.Context())
		unanswered := make(chan error, 1)
		go func() {
			_, err := two.Report(lost,
				transport.Report{Node: "n1", Session: 1, Seq: 1, Tasks: []cluster.Observed{starting}})
			unanswered <- err
		}()
		<-killed
		cancel() // the connection breaks
		if err := <-unanswered; err == nil {
			t.Fatal("the report was answered")
		}
		welcome, err := f.Register(t.Context(),
			transport.Registration{
				Wire: transport.WireVersion, Node: "n1", Previous: 1, Tasks: []cluster.Observed{starting},
			})
		if err != nil {
			t.Fatal(err)
		}
		reply, err := f.report("n1", welcome.Session, 1, starting)
		if err != nil || len(reply.Refused) != 0 {
			t.Fatalf("the barrier, requested again: got %+v %v, want it passed", reply, err)
		}
		if _, err := f.report("n1", welcome.Session, 2, observed(id, cluster.StateRunning)); err != nil {
			t.Fatal(err)
		}
		if n := f.countEvents("task.running"); n != 1 {
			t.Errorf("the start was published %d times, want once", n)
		}
	})
}

// countEvents returns the number of events of a type.
func (f *fixture) countEvents(kind string) (n int) {
	for b := range f.now().EventBatches() {
		for _, e := range b.Value.Events {
			if e.Type == kind {
				n++
			}
		}
	}
	return n
}

// An event reports two agents of one name once they notice each other.
func TestContestedName(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		for session := range uint64(6) {
			r := transport.Registration{
				Wire: transport.WireVersion, Node: "n1", Previous: session, Displaced: int(session) / 2,
			}
			if _, err := f.Register(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		if n := f.countEvents("node.contested"); n != 2 {
			t.Errorf("%d events, want 2: a single displacement is none", n)
		}
	})
}

// servers writes the records of servers.
func (f *fixture) servers(api ...string) {
	for i, a := range api {
		id := string(rune('a' + i))
		f.put(p.Server(id), &cluster.Server{ID: id, API: a})
	}
	synctest.Wait()
}

// Agents receive all servers when they register, and again when the list changed.
func TestAgentsLearnTheServers(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		if got := f.register("n1"); len(got.Servers) != 0 {
			t.Errorf("a single server lists %q", got.Servers)
		}
		f.servers("https://b:1", "", "https://a:1")
		got, err := f.Register(t.Context(),
			transport.Registration{Node: "n1", Previous: 1, Wire: transport.WireVersion})
		if err != nil || len(got.Servers) != 2 || got.Servers[0] != "https://a:1" || got.Wire != transport.WireVersion {
			t.Errorf("registered: got %+v %v, want two servers, sorted", got, err)
		}
		reply, err := f.report("n1", 2, 1)
		if err != nil || reply.Servers != nil {
			t.Errorf("report: got %q %v, want no change", reply.Servers, err)
		}
		f.servers("https://b:1", "https://c:1")
		if reply, err = f.report("n1", 2, 2); err != nil || len(reply.Servers) != 3 {
			t.Errorf("report: got %q %v, want the new list", reply.Servers, err)
		}
	})
}

// A server that no longer reaches the store sends its agents away, because it can pass on neither reports nor pulses. A
// single server keeps its agents.
func TestServerCutOffFromTheStore(t *testing.T) {
	for name, alone := range map[string]bool{"one of two": false, "alone": true} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(t *testing.T, f *fixture) {
				if !alone {
					f.servers("https://a:1", "https://b:1")
				}
				f.register("n1")
				id := f.placeTask("n1")
				_, ended := follow(t.Context(), f.Dispatcher, transport.AssignmentsRequest{Node: "n1", Session: 1})
				f.engine.Crash()
				waiting := make(chan error, 1)
				go func() {
					_, err := f.report("n1", 1, 1, observed(id, cluster.StatePreparing))
					waiting <- err
				}()
				time.Sleep(20 * time.Second) // in-bubble: inWorld makes one
				if away := len(ended) == 1 && len(waiting) == 1; away == alone {
					t.Fatalf("streams that ended: %d, reports: %d", len(ended), len(waiting))
				}
				if alone {
					f.engine.Restart()
					if err := <-waiting; err != nil {
						t.Error(err)
					}
					return
				}
				for what, err := range map[string]error{"stream": <-ended, "report": <-waiting} {
					if !errors.Is(err, transport.ErrElsewhere) {
						t.Errorf("the %s ended with %v, want ErrElsewhere", what, err)
					}
				}
				if _, err := f.Register(t.Context(),
					transport.Registration{Wire: transport.WireVersion, Node: "n2"}); !errors.Is(err,
					transport.ErrElsewhere) {
					t.Errorf("a registration: got %v, want ErrElsewhere", err)
				}
				f.engine.Restart()
				time.Sleep(10 * time.Second) // in-bubble: inWorld makes one
				if _, err := f.Register(t.Context(),
					transport.Registration{Wire: transport.WireVersion, Node: "n2"}); err != nil {
					t.Errorf("a registration once the store is back: %v", err)
				}
			})
		})
	}
}
