package store_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/testkit"
)

// contents returns the content of a snapshot as text, by key.
func contents(s *store.Snapshot) map[string]string {
	out := map[string]string{}
	for e := range s.Services("") {
		out[e.Key] = fmt.Sprint(e.Created, e.Modified, e.Value.Count)
	}
	for e := range s.NodeStatuses() {
		out[e.Key] = fmt.Sprint(e.Created, e.Modified, e.Value.Session)
	}
	for row := range s.AllAttempts() {
		text := fmt.Sprint(row.Node, " ", row.DesiredRev, row.ObservedRev, row.OutcomeRev, " ", row.Desired != nil,
			row.Observed != nil, row.Outcome != nil)
		if row.Observed != nil {
			text += string(row.Observed.State)
		}
		out[fmt.Sprint(row.Task, "/", row.Number)] = text
	}
	for row := range s.NodeAttempts("n1") {
		out["on n1: "+string(row.Task)] = fmt.Sprint(row.Number)
	}
	return out
}

// drawGroup draws a group of a commit: it creates, changes and deletes records of services, nodes and attempts, with
// compares that hold or fail.
func drawGroup(t *testing.T, random *rand.Rand, revisions map[string]uint64) store.Group {
	t.Helper()
	index := random.IntN(3)
	node := fmt.Sprintf("n%d", index) // the attempts of one task stay on one node, one at a time (P3.6)
	task, attempt := cluster.ServiceTask("default", "web", 1, index), 1+random.IntN(2)
	owner := cluster.OwnerRef{Kind: cluster.KindService, Cluster: "default", Name: "web"}
	uuid := fmt.Sprintf("%s-%d", task, attempt)
	p := store.Prefix(store.DefaultPrefix)
	all := []struct {
		key    string
		record any
	}{
		{p.Service("default", "web"), &cluster.Service{Cluster: "default", Name: "web", Count: random.IntN(9)}},
		{p.NodeStatus(node), &cluster.NodeStatus{Name: node, Session: 1 + uint64(random.IntN(9))}},
		{p.Desired(node, task), &cluster.Desired{Task: task, Attempt: attempt, UUID: uuid, Node: node, Owner: owner}},
		{p.Observed(node, task), &cluster.Observed{
			Task: task, Attempt: attempt, UUID: uuid, Node: node,
			State: []cluster.State{cluster.StateRunning, cluster.StateFailed}[random.IntN(2)],
		}},
		{
			p.Outcome(task, attempt),
			&cluster.Outcome{
				Task: task, Attempt: attempt, UUID: uuid, Node: node, Owner: owner,
				State: cluster.StateFailed,
			},
		},
		{p.Scheduled(task), nil},
	}
	x := all[random.IntN(len(all))]
	op := store.Op{Key: x.key, Value: []byte("true")}
	var err error
	if x.record != nil {
		op.Value, err = store.Encode(x.record)
	}
	if err != nil {
		t.Fatal(err)
	}
	op.Delete = random.IntN(4) == 0
	g := store.Group{Ops: []store.Op{op}}
	switch random.IntN(4) {
	case 0:
		g.Compares = []store.Compare{{Key: x.key, Modified: revisions[x.key]}} // the present revision, or 0 for none
	case 1:
		g.Compares = []store.Compare{{Key: x.key, Modified: store.AnyModified}}
	case 2:
		g.Compares = []store.Compare{{Key: x.key, Modified: revisions[x.key] + 1}}
	}
	return g
}

// TestBranchAgreesWithEngine makes the same commits to an engine and to branches of its store from different
// revisions. The applied groups, the revision and the tables are equal. The snapshot that a branch began with does not
// change.
func TestBranchAgreesWithEngine(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(t.Context())
	engine := memory.New(memory.Options{})
	tables := store.NewTables(store.TablesConfig{Engine: engine, Logger: log})
	done := make(chan error, 1)
	go func() { done <- tables.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	<-tables.Synced()
	random := rand.New(rand.NewPCG(7, 7))
	var branch *store.Branch
	var origin *store.Snapshot
	var first map[string]string
	revisions, applied, refused := map[string]uint64{}, 0, 0
	for i := range 2000 {
		if i%40 == 0 {
			if origin != nil {
				if diff := cmp.Diff(first, contents(origin)); diff != "" {
					t.Fatalf("commit %d: what a branch began from changed:\n%s", i, diff)
				}
			}
			origin = tables.Snapshot()
			first = contents(origin)
			branch = store.NewBranch(origin, store.DefaultPrefix, log)
			for key, at := range revisions { // order-free: each by itself
				if _, err := branch.Read(ctx, key); (err == nil) != (at != 0) && !isMark(key) {
					t.Fatalf("commit %d: read %s: %v, and the engine has it at %d", i, key, err, at)
				}
			}
		}
		g := drawGroup(t, random, revisions)
		if isMark(g.Ops[0].Key) {
			g.Compares = nil // a branch does not know the marks of its snapshot
		}
		want, err := engine.Commit(ctx, []store.Group{g})
		if err != nil {
			t.Fatal(err)
		}
		got, err := branch.Commit(ctx, []store.Group{g})
		if err != nil {
			t.Fatal(err)
		}
		if got.Applied[0] != want.Applied[0] {
			t.Fatalf("commit %d of %+v: applied is %v on the branch and %v on the engine", i, g, got.Applied,
				want.Applied)
		}
		if got.Applied[0] {
			applied++
		} else {
			refused++
		}
		record, err := engine.Read(ctx, g.Ops[0].Key)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
		revisions[g.Ops[0].Key] = record.Modified
		snap, err := tables.WaitFor(ctx, want.Revision)
		if err != nil {
			t.Fatal(err)
		}
		if isMark(g.Ops[0].Key) { // the deletion of a mark that the branch does not know is no change there
			branch = store.NewBranch(snap, store.DefaultPrefix, log)
			continue
		}
		if diff := cmp.Diff(contents(snap), contents(branch.Tables().Snapshot())); diff != "" ||
			got.Revision != want.Revision {
			t.Fatalf("commit %d of %+v: the branch is at %d and the engine at %d:\n%s", i, g, got.Revision,
				want.Revision, diff)
		}
	}
	if applied < 600 || refused < 300 {
		t.Errorf("%d commits were applied and %d refused: too few for a conclusion", applied, refused)
	}
}

func isMark(key string) bool {
	p := store.Prefix(store.DefaultPrefix)
	for i := range 3 {
		if key == p.Scheduled(cluster.ServiceTask("default", "web", 1, i)) {
			return true
		}
	}
	return false
}

// TestLoadedBranchHasTheRecords loads the records of an engine and compares the tables.
func TestLoadedBranchHasTheRecords(t *testing.T) {
	engine := memory.New(memory.Options{})
	random := rand.New(rand.NewPCG(3, 3))
	for range 200 {
		g := drawGroup(t, random, map[string]uint64{})
		g.Compares = nil
		if _, err := engine.Commit(t.Context(), []store.Group{g}); err != nil {
			t.Fatal(err)
		}
	}
	l, err := engine.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	branch, err := store.LoadBranch(l.Records, l.Revision, store.DefaultPrefix, log)
	if err != nil {
		t.Fatal(err)
	}
	tables := store.NewTables(store.TablesConfig{Engine: engine, Logger: log})
	ctx, cancel := testkit.WithLimit(t.Context(), 10*time.Second)
	done := make(chan error, 1)
	go func() { done <- tables.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	snap, err := tables.WaitFor(ctx, l.Revision)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(contents(snap), contents(branch.Tables().Snapshot())); diff != "" || len(contents(snap)) < 10 {
		t.Errorf("the branch (+) is not what the tables hold (-):\n%s", diff)
	}
	newer := []store.Record{{Key: "berth/node/n1", Value: []byte(`{"v":9,"name":"n1"}`), Created: 1, Modified: 1}}
	if _, err := store.LoadBranch(newer, 1, store.DefaultPrefix, log); !errors.As(err, new(*store.NewerError)) {
		t.Errorf("records of a newer build: got %v, want a NewerError", err)
	}
}
