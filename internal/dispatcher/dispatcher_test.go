package dispatcher_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/dispatcher"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/transport"
)

const p = store.Prefix(store.DefaultPrefix)

// fixture is a dispatcher over a memory engine, with a leader's writer for the records of a control plane.
type fixture struct {
	*dispatcher.Dispatcher
	t      *testing.T
	engine *memory.Engine
	tables *store.Tables
	leader *store.Writer
	plans  *store.PlanLog
	clock  func() time.Duration
	counts counts
	stop   func() // ends the dispatcher
}

func withFixture(t *testing.T, do func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		f := &fixture{t: t, engine: memory.New(memory.Options{}), clock: func() time.Duration {
			return time.Since(began)
		}}
		f.tables = store.NewTables(store.TablesConfig{Engine: f.engine, Logger: slog.New(slog.DiscardHandler)})
		f.Dispatcher = dispatcher.New(dispatcher.Config{
			Engine: f.engine,
			Tables: f.tables,
			Logger: slog.New(slog.DiscardHandler),
			Clock:  f.clock,

			Metrics: &f.counts,
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- f.tables.Run(ctx) }()
		runs, stop := context.WithCancel(ctx)
		f.stop = func() {
			stop()
			synctest.Wait()
		}
		go func() { ended <- f.Run(runs) }()
		defer func() {
			cancel()
			<-ended
			<-ended
		}()
		value, err := store.Encode(&cluster.Leader{Epoch: 3, Incarnation: 7})
		if err != nil {
			t.Fatal(err)
		}
		key := p.Leader(cluster.DefaultDomain)
		res, err := f.engine.Commit(ctx, []store.Group{{Ops: []store.Op{{Key: key, Value: value}}}})
		if err != nil {
			t.Fatal(err)
		}
		f.leader = store.NewWriter(f.engine, p,
			&store.Fence{Key: key, Modified: res.Revision, Incarnation: 7, Epoch: 3}, nil)
		f.now()
		f.plans = store.NewPlanLog(f.leader, f.tables, 0)
		do(t, f)
	})
}

func (f *fixture) now() *store.Snapshot {
	f.t.Helper()
	s, err := f.tables.Settled(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

func (f *fixture) put(key string, record any) {
	f.t.Helper()
	var u store.Unit
	if err := u.Put(key, record); err != nil {
		f.t.Fatal(err)
	}
	if ok, _, err := f.leader.Commit(f.t.Context(), []store.Unit{u}); err != nil || !ok[0] {
		f.t.Fatalf("put %s: %v %v", key, ok, err)
	}
	f.now()
}

func (f *fixture) remove(keys ...string) {
	f.t.Helper()
	var u store.Unit
	for _, k := range keys {
		u.Delete(k)
	}
	if ok, _, err := f.leader.Commit(f.t.Context(), []store.Unit{u}); err != nil || !ok[0] {
		f.t.Fatalf("delete: %v %v", ok, err)
	}
	f.now()
}

// register registers a node for the first time.
func (f *fixture) register(node string, tasks ...cluster.Observed) transport.Welcome {
	f.t.Helper()
	welcome, err := f.Register(f.t.Context(),
		transport.Registration{Wire: transport.WireVersion, Node: node, Tasks: tasks})
	if err != nil {
		f.t.Fatal(err)
	}
	return welcome
}

// claim writes a record of the node unless it has one, as the leader does for a registered node.
func (f *fixture) claim(node string) {
	f.t.Helper()
	if _, has := f.now().Node(node); has {
		return
	}
	f.put(p.Node(node), &cluster.Node{
		Name: node, Domain: cluster.DefaultDomain, Generation: 1, State: cluster.NodeReady,
	})
}

const task = cluster.TaskID("c.j.1.s.0")

// placeTask writes a plan record that places the job's task on a node, and returns the attempt's UUID.
func (f *fixture) placeTask(node string) string {
	f.t.Helper()
	f.claim(node)
	j := &cluster.Job{
		Cluster: "c", Name: "j", Lifespan: cluster.Lifespan{Generation: 1},
		Steps: []cluster.Step{{Name: "s", Definition: cluster.Ref{Name: "d", Version: 1}, Count: 1}},
	}
	f.put(p.Definition(j.Steps[0].Definition), &cluster.TaskDefinition{
		Name: "d", Version: 1, Containers: []cluster.Container{{Name: "main", Command: []string{"run"}}},
	})
	f.put(p.Job("c", "j"), j)
	e, _ := f.now().Job("c", "j")
	id := uuid.NewString()
	_, _, err := f.plans.Append(f.t.Context(), store.PlanBatch{Owners: []cluster.PlanOwner{{
		Owner: j.Owner(), Rev: e.Modified, Generation: 1, Step: "s", Definition: j.Steps[0].Definition, Count: 1,
		Tasks: []cluster.Placed{{Attempt: 1, UUID: id, Node: node}},
	}}})
	if err != nil {
		f.t.Fatal(err)
	}
	f.now()
	return id
}

// report sends one task's state as the session's next report.
func (f *fixture) report(node string, session, seq uint64, tasks ...cluster.Observed) (transport.ReportReply, error) {
	return f.Report(f.t.Context(), transport.Report{Node: node, Session: session, Seq: seq, Tasks: tasks})
}

func observed(id string, state cluster.State) cluster.Observed {
	return cluster.Observed{Task: task, Attempt: 1, UUID: id, State: state}
}

func TestSessionNumbersGrow(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		if got := f.register("n1"); got.Session != 1 || got.Token.Incarnation != 7 || got.Token.Epoch != 3 {
			t.Errorf("first registration: got %+v, want session 1 with the leader's token", got)
		}
		got, err := f.Register(t.Context(),
			transport.Registration{Wire: transport.WireVersion, Node: "n1", Previous: 1})
		if err != nil || got.Session != 2 {
			t.Errorf("second registration: got %+v %v, want session 2", got, err)
		}
		if _, err := f.report("n1", 1, 1); !errors.Is(err, transport.ErrSession) {
			t.Errorf("a report of the old session: got %v, want ErrSession", err)
		}
		if st, ok := f.now().NodeStatus("n1"); !ok || !st.Value.Synced || st.Value.Session != 2 {
			t.Errorf("status: got %+v, want session 2 synced", st.Value)
		}
	})
}

// T13: a delayed registration displaces no session; its error has the newest number.
func TestDelayedRegistrationDisplacesNoSession(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		_, err := f.Register(t.Context(), transport.Registration{Wire: transport.WireVersion, Node: "n1"})
		var over *transport.SessionError
		if !errors.As(err, &over) || over.Newest != 1 {
			t.Fatalf("delayed registration: got %v, want a session error that names 1", err)
		}
		if _, err := f.report("n1", 1, 1); err != nil {
			t.Errorf("the live session: %v", err)
		}
	})
}

// A barrier before the projection passes by the plan record, and writes nothing but the status (P4.3).
func TestBarrierPassesByThePlan(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		id := f.placeTask("n1")
		reply, err := f.report("n1", 1, 1, observed(id, cluster.StateStarting))
		if err != nil || len(reply.Refused) != 0 {
			t.Fatalf("barrier: got %+v %v, want it taken", reply, err)
		}
		row, ok := f.now().Attempt(task, 1)
		if !ok || row.DesiredRev != 0 || row.Observed == nil || row.Observed.State != cluster.StateStarting {
			t.Errorf("row: got %+v, want it starting, and not projected", row)
		}
	})
}

// T1: once the leader wrote that an attempt is lost, no barrier of it passes (P4.2, P4.3), whatever the state of the
// plan.
func TestBarrierIsRefusedAfterTheOutcome(t *testing.T) {
	stop := &cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonEnded, Ended: true}
	for name, write := range map[string]func(f *fixture, id string){
		"outcome and stop": func(f *fixture, id string) {
			row, _ := f.now().Attempt(task, 1)
			d := *row.Desired
			d.Stop = stop
			f.put(p.Desired("n1", task), &d)
			f.put(p.Outcome(task, 1), &cluster.Outcome{Task: task, Attempt: 1, UUID: id, State: cluster.StateLost})
		},
		"outcome alone": func(f *fixture, id string) {
			f.put(p.Outcome(task, 1), &cluster.Outcome{Task: task, Attempt: 1, UUID: id, State: cluster.StateLost})
		},
		"stop alone": func(f *fixture, _ string) {
			row, _ := f.now().Attempt(task, 1)
			d := *row.Desired
			d.Stop = &cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonCancelled}
			f.put(p.Desired("n1", task), &d)
		},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(t *testing.T, f *fixture) {
				f.register("n1")
				id := f.placeTask("n1")
				write(f, id)
				reply, err := f.report("n1", 1, 1, observed(id, cluster.StateStarting))
				if err != nil {
					t.Fatal(err)
				}
				if why, ok := reply.Refused[id]; !ok || why.Retry || why.Reason != cluster.ReasonBarrier {
					t.Errorf("barrier: got %+v, want a final refusal", reply)
				}
			})
		})
	}
}

// The same, when the leader's write comes between the dispatcher's read of its tables and its own write.
func TestBarrierLosesTheRaceToTheOutcome(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		id := f.placeTask("n1")
		raced := false
		slow := f.engine.Open(memory.Hooks{Before: func(ctx context.Context, groups []store.Group) error {
			for _, g := range groups {
				for _, op := range g.Ops {
					if op.Key == p.Observed("n1", task) && !raced {
						raced = true
						f.put(p.Outcome(task, 1),
							&cluster.Outcome{Task: task, Attempt: 1, UUID: id, State: cluster.StateLost})
					}
				}
			}
			return nil
		}})
		d := dispatcher.New(dispatcher.Config{
			Engine: slow, Tables: f.tables, Logger: slog.New(slog.DiscardHandler),
			Clock: func() time.Duration { return time.Second },
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		defer func() { cancel(); <-ended }()
		if _, err := d.Register(ctx, transport.Registration{Wire: transport.WireVersion, Node: "n1"}); err != nil {
			t.Fatal(err)
		}
		reply, err := d.Report(ctx,
			transport.Report{
				Node: "n1", Session: 1, Seq: 1,
				Tasks: []cluster.Observed{observed(id, cluster.StateStarting)},
			})
		if err != nil {
			t.Fatal(err)
		}
		if _, refused := reply.Refused[id]; !raced || !refused {
			t.Errorf("barrier after the race (%v): got %+v, want it refused", raced, reply)
		}
	})
}

func TestReportIsWrittenOnce(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		id := f.placeTask("n1")
		for range 2 {
			if _, err := f.report("n1", 1, 1, observed(id, cluster.StateStarting)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := f.report("n1", 1, 2, observed(id, cluster.StateRunning)); err != nil {
			t.Fatal(err)
		}
		before := f.now().Revision()
		if _, err := f.report("n1", 1, 3, observed(id, cluster.StateRunning)); err != nil {
			t.Fatal(err)
		}
		if after := f.now().Revision(); after != before {
			t.Errorf("a report that says nothing new was written (revision %d to %d)", before, after)
		}
		if _, err := f.report("n1", 1, 2, observed(id, cluster.StateStarting)); err == nil {
			t.Error("a report that came late was taken")
		}
		running := 0
		for b := range f.now().EventBatches() {
			for _, e := range b.Value.Events {
				if e.Type == "task.running" {
					running++
				}
			}
		}
		if running != 1 {
			t.Errorf("task.running was published %d times, want once", running)
		}
	})
}

// The attempts missing in a full report show that an agent lost its memory.
func TestForgottenTasksAreLost(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		id := f.placeTask("n1")
		if _, err := f.report("n1", 1, 1, observed(id, cluster.StateStarting)); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Register(t.Context(),
			transport.Registration{Wire: transport.WireVersion, Node: "n1", Previous: 1}); err != nil {
			t.Fatal(err)
		}
		row, _ := f.now().Attempt(task, 1)
		if row.Observed.State != cluster.StateLost || !row.Observed.Gone ||
			row.Observed.Reason != cluster.ReasonUnknownExit {
			t.Errorf("observed: got %+v, want lost and gone", row.Observed)
		}
	})
}

// A full disk is a temporary fault for the agent, and the same report is accepted later.
func TestReportWaitsOutAFullDisk(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		id := f.placeTask("n1")
		f.engine.Fill(true)
		if _, err := f.report("n1", 1, 1, observed(id, cluster.StateStarting)); !errors.Is(err, store.ErrNoSpace) {
			t.Fatalf("report on a full disk: got %v, want ErrNoSpace", err)
		}
		f.engine.Fill(false)
		if reply, err := f.report("n1", 1, 1, observed(id, cluster.StateStarting)); err != nil ||
			len(reply.Refused) != 0 {
			t.Errorf("the same report later: got %+v %v, want it taken", reply, err)
		}
	})
}

// A report whose acknowledgement was lost is sent again and written once.
func TestReportWithALostAcknowledgement(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		id := f.placeTask("n1")
		lose := false
		lossy := f.engine.Open(memory.Hooks{After: func(context.Context, []store.Group, store.Result) error {
			if lose {
				lose = false
				return store.ErrUnknown
			}
			return nil
		}})
		d := dispatcher.New(dispatcher.Config{
			Engine: lossy, Tables: f.tables, Logger: slog.New(slog.DiscardHandler),
			Clock: func() time.Duration { return time.Second },
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		defer func() { cancel(); <-ended }()
		if _, err := d.Register(ctx, transport.Registration{Wire: transport.WireVersion, Node: "n1"}); err != nil {
			t.Fatal(err)
		}
		lose = true
		r := transport.Report{
			Node: "n1", Session: 1, Seq: 1,
			Tasks: []cluster.Observed{observed(id, cluster.StateStarting)},
		}
		if _, err := d.Report(ctx, r); !errors.Is(err, store.ErrUnknown) {
			t.Fatalf("got %v, want ErrUnknown", err)
		}
		reply, err := d.Report(ctx, r)
		if err != nil || len(reply.Refused) != 0 {
			t.Errorf("again: got %+v %v, want the barrier passed once", reply, err)
		}
	})
}
