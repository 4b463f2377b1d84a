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

// world is a dispatcher over a memory engine, with the hand of a leader to write what a control plane would.
type world struct {
	*dispatcher.Dispatcher
	t      *testing.T
	engine *memory.Engine
	tables *store.Tables
	leader *store.Writer
	plans  *store.PlanLog
	clock  func() time.Duration
	stop   func() // ends the dispatcher
}

func inWorld(t *testing.T, do func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		w := &world{t: t, engine: memory.New(memory.Options{}), clock: func() time.Duration {
			return time.Since(began)
		}}
		w.tables = store.NewTables(store.TablesConfig{Engine: w.engine, Logger: slog.New(slog.DiscardHandler)})
		w.Dispatcher = dispatcher.New(dispatcher.Config{
			Engine: w.engine,
			Tables: w.tables,
			Domain: cluster.DefaultDomain,
			Logger: slog.New(slog.DiscardHandler),
			Clock:  w.clock,
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- w.tables.Run(ctx) }()
		runs, stop := context.WithCancel(ctx)
		w.stop = func() {
			stop()
			synctest.Wait()
		}
		go func() { ended <- w.Run(runs) }()
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
		res, err := w.engine.Commit(ctx, []store.Group{{Ops: []store.Op{{Key: key, Value: value}}}})
		if err != nil {
			t.Fatal(err)
		}
		w.leader = store.NewWriter(w.engine, p,
			&store.Fence{Key: key, Modified: res.Revision, Incarnation: 7, Epoch: 3}, nil)
		w.now()
		w.plans = store.NewPlanLog(w.leader, w.tables)
		do(t, w)
	})
}

func (w *world) now() *store.Snapshot {
	w.t.Helper()
	s, err := w.tables.Settled(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) put(key string, record any) {
	w.t.Helper()
	var u store.Unit
	if err := u.Put(key, record); err != nil {
		w.t.Fatal(err)
	}
	if ok, _, err := w.leader.Commit(w.t.Context(), []store.Unit{u}); err != nil || !ok[0] {
		w.t.Fatalf("put %s: %v %v", key, ok, err)
	}
	w.now()
}

func (w *world) remove(keys ...string) {
	w.t.Helper()
	var u store.Unit
	for _, k := range keys {
		u.Delete(k)
	}
	if ok, _, err := w.leader.Commit(w.t.Context(), []store.Unit{u}); err != nil || !ok[0] {
		w.t.Fatalf("delete: %v %v", ok, err)
	}
	w.now()
}

// register registers a node for the first time.
func (w *world) register(node string, tasks ...cluster.Observed) transport.Welcome {
	w.t.Helper()
	welcome, err := w.Register(w.t.Context(), transport.Registration{Node: node, Tasks: tasks})
	if err != nil {
		w.t.Fatal(err)
	}
	return welcome
}

const task = cluster.TaskID("c.j.1.s.0")

// place writes a plan record that places the job's task on a node, and returns the attempt's UUID.
func (w *world) place(node string) string {
	w.t.Helper()
	j := &cluster.Job{
		Cluster: "c", Name: "j", Lifespan: cluster.Lifespan{Generation: 1},
		Steps: []cluster.Step{{Name: "s", Definition: cluster.Ref{Name: "d", Version: 1}, Count: 1}},
	}
	w.put(p.Definition(j.Steps[0].Definition), &cluster.TaskDefinition{
		Name: "d", Version: 1, Containers: []cluster.Container{{Name: "main", Command: []string{"run"}}},
	})
	w.put(p.Job("c", "j"), j)
	e, _ := w.now().Job("c", "j")
	id := uuid.NewString()
	_, err := w.plans.Append(w.t.Context(), store.Proposal{Owners: []cluster.PlanOwner{{
		Owner: j.Owner(), Rev: e.Modified, Generation: 1, Step: "s", Definition: j.Steps[0].Definition, Count: 1,
		Tasks: []cluster.Placed{{Attempt: 1, UUID: id, Node: node}},
	}}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.now()
	return id
}

// report sends one task's state as the session's next report.
func (w *world) report(node string, session, seq uint64, tasks ...cluster.Observed) (transport.ReportReply, error) {
	return w.Report(w.t.Context(), transport.Report{Node: node, Session: session, Seq: seq, Tasks: tasks})
}

func observed(id string, state cluster.State) cluster.Observed {
	return cluster.Observed{Task: task, Attempt: 1, UUID: id, State: state}
}

func TestSessionNumbersGrow(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		if got := w.register("n1"); got.Session != 1 || got.Token.Incarnation != 7 || got.Token.Epoch != 3 {
			t.Errorf("first registration: got %+v, want session 1 with the leader's token", got)
		}
		got, err := w.Register(t.Context(), transport.Registration{Node: "n1", Previous: 1})
		if err != nil || got.Session != 2 {
			t.Errorf("second registration: got %+v %v, want session 2", got, err)
		}
		if _, err := w.report("n1", 1, 1); !errors.Is(err, transport.ErrSession) {
			t.Errorf("a report of the old session: got %v, want ErrSession", err)
		}
		if st, ok := w.now().NodeStatus("n1"); !ok || !st.Value.Synced || st.Value.Session != 2 {
			t.Errorf("status: got %+v, want session 2 synced", st.Value)
		}
	})
}

// T13: a delayed registration displaces no session; its error has the newest number.
func TestDelayedRegistrationDisplacesNobody(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.register("n1")
		_, err := w.Register(t.Context(), transport.Registration{Node: "n1"})
		var over *transport.SessionError
		if !errors.As(err, &over) || over.Newest != 1 {
			t.Fatalf("delayed registration: got %v, want a session error that names 1", err)
		}
		if _, err := w.report("n1", 1, 1); err != nil {
			t.Errorf("the live session: %v", err)
		}
	})
}

// A barrier before the projection passes by the plan record, and writes nothing but the status (P4.3).
func TestBarrierPassesByThePlan(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.register("n1")
		id := w.place("n1")
		reply, err := w.report("n1", 1, 1, observed(id, cluster.StateStarting))
		if err != nil || len(reply.Refused) != 0 {
			t.Fatalf("barrier: got %+v %v, want it taken", reply, err)
		}
		row, ok := w.now().Attempt(task, 1)
		if !ok || row.DesiredRev != 0 || row.Observed == nil || row.Observed.State != cluster.StateStarting {
			t.Errorf("row: got %+v, want it starting, and not projected", row)
		}
	})
}

// T1: once the leader wrote that an attempt is lost, no barrier of it passes (P4.2, P4.3), wherever the plan stands.
func TestBarrierIsRefusedAfterTheOutcome(t *testing.T) {
	stop := &cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonEnded, Ended: true}
	for name, write := range map[string]func(w *world, id string){
		"outcome and stop": func(w *world, id string) {
			row, _ := w.now().Attempt(task, 1)
			d := *row.Desired
			d.Stop = stop
			w.put(p.Desired("n1", task), &d)
			w.put(p.Outcome(task, 1), &cluster.Outcome{Task: task, Attempt: 1, UUID: id, State: cluster.StateLost})
		},
		"outcome alone": func(w *world, id string) {
			w.put(p.Outcome(task, 1), &cluster.Outcome{Task: task, Attempt: 1, UUID: id, State: cluster.StateLost})
		},
		"stop alone": func(w *world, _ string) {
			row, _ := w.now().Attempt(task, 1)
			d := *row.Desired
			d.Stop = &cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonCancelled}
			w.put(p.Desired("n1", task), &d)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.register("n1")
				id := w.place("n1")
				write(w, id)
				reply, err := w.report("n1", 1, 1, observed(id, cluster.StateStarting))
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
	inWorld(t, func(t *testing.T, w *world) {
		id := w.place("n1")
		raced := false
		slow := w.engine.Open(memory.Hooks{Before: func(ctx context.Context, groups []store.Group) error {
			for _, g := range groups {
				for _, op := range g.Ops {
					if op.Key == p.Observed("n1", task) && !raced {
						raced = true
						w.put(p.Outcome(task, 1),
							&cluster.Outcome{Task: task, Attempt: 1, UUID: id, State: cluster.StateLost})
					}
				}
			}
			return nil
		}})
		d := dispatcher.New(dispatcher.Config{
			Engine: slow, Tables: w.tables, Domain: cluster.DefaultDomain, Logger: slog.New(slog.DiscardHandler),
			Clock: func() time.Duration { return time.Second },
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		defer func() { cancel(); <-ended }()
		if _, err := d.Register(ctx, transport.Registration{Node: "n1"}); err != nil {
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
	inWorld(t, func(t *testing.T, w *world) {
		w.register("n1")
		id := w.place("n1")
		for range 2 {
			if _, err := w.report("n1", 1, 1, observed(id, cluster.StateStarting)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.report("n1", 1, 2, observed(id, cluster.StateRunning)); err != nil {
			t.Fatal(err)
		}
		before := w.now().Revision()
		if _, err := w.report("n1", 1, 3, observed(id, cluster.StateRunning)); err != nil {
			t.Fatal(err)
		}
		if after := w.now().Revision(); after != before {
			t.Errorf("a report that says nothing new was written (revision %d to %d)", before, after)
		}
		if _, err := w.report("n1", 1, 2, observed(id, cluster.StateStarting)); err == nil {
			t.Error("a report that came late was taken")
		}
		running := 0
		for b := range w.now().EventBatches() {
			for _, e := range b.Value.Events {
				if e.Type == "task.running" {
					running++
				}
			}
		}
		if running != 1 {
			t.Errorf("task.running was told %d times, want once", running)
		}
	})
}

// The attempts missing in a full report show that an agent lost its memory.
func TestForgottenTasksAreLost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.register("n1")
		id := w.place("n1")
		if _, err := w.report("n1", 1, 1, observed(id, cluster.StateStarting)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Register(t.Context(), transport.Registration{Node: "n1", Previous: 1}); err != nil {
			t.Fatal(err)
		}
		row, _ := w.now().Attempt(task, 1)
		if row.Observed.State != cluster.StateLost || !row.Observed.Gone ||
			row.Observed.Reason != cluster.ReasonUnknownExit {
			t.Errorf("observed: got %+v, want lost and gone", row.Observed)
		}
	})
}

// A full disk is a temporary fault for the agent, and the same report is accepted later.
func TestReportWaitsOutAFullDisk(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.register("n1")
		id := w.place("n1")
		w.engine.Fill(true)
		if _, err := w.report("n1", 1, 1, observed(id, cluster.StateStarting)); !errors.Is(err, store.ErrNoSpace) {
			t.Fatalf("report on a full disk: got %v, want ErrNoSpace", err)
		}
		w.engine.Fill(false)
		if reply, err := w.report("n1", 1, 1, observed(id, cluster.StateStarting)); err != nil ||
			len(reply.Refused) != 0 {
			t.Errorf("the same report later: got %+v %v, want it taken", reply, err)
		}
	})
}

// A report whose acknowledgement was lost is sent again and written once.
func TestReportWithALostAcknowledgement(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		id := w.place("n1")
		lose := false
		lossy := w.engine.Open(memory.Hooks{After: func(context.Context, []store.Group, store.Result) error {
			if lose {
				lose = false
				return store.ErrUnknown
			}
			return nil
		}})
		d := dispatcher.New(dispatcher.Config{
			Engine: lossy, Tables: w.tables, Domain: cluster.DefaultDomain, Logger: slog.New(slog.DiscardHandler),
			Clock: func() time.Duration { return time.Second },
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		defer func() { cancel(); <-ended }()
		if _, err := d.Register(ctx, transport.Registration{Node: "n1"}); err != nil {
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
