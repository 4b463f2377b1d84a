package store_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

func TestTablesShowEachNoun(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.put(p.Cluster("c"), &cluster.Cluster{Name: "c"})
		w.put(p.Definition(cluster.Ref{Name: "d", Version: 2}), &cluster.TaskDefinition{Name: "d", Version: 2})
		w.put(p.Definition(cluster.Ref{Name: "d", Version: 10}), &cluster.TaskDefinition{Name: "d", Version: 10})
		w.put(p.NewestDefinition("d"), &store.Newest{Name: "d", Version: 10})
		w.put(p.Service("c", "web"), &cluster.Service{Cluster: "c", Name: "web", Count: 3})
		w.put(p.Service("c2", "web"), &cluster.Service{Cluster: "c2", Name: "web", Count: 1})
		w.put(p.Host("n1"), &cluster.Host{Name: "n1", Cordon: true})
		w.put(p.NodeStatus("n1"), &cluster.NodeStatus{Name: "n1", Session: 4})
		s := w.put(p.Node("n1"), &cluster.Node{Name: "n1", State: cluster.NodeReady})

		if _, ok := s.Cluster("c"); !ok {
			t.Error("the cluster is missing")
		}
		var versions []int
		for e := range s.Definitions("d") {
			versions = append(versions, e.Value.Version)
		}
		if diff := cmp.Diff([]int{2, 10}, versions); diff != "" {
			t.Errorf("versions in their order (-want +got):\n%s", diff)
		}
		if ref, _, ok := s.NewestDefinition("d"); !ok || ref.Version != 10 {
			t.Errorf("newest: got %v %v, want d@10", ref, ok)
		}
		var services []string
		for e := range s.Services("c") {
			services = append(services, e.Value.Owner().String())
		}
		if diff := cmp.Diff([]string{"c/service/web"}, services); diff != "" {
			t.Errorf("services of c (-want +got):\n%s", diff)
		}
		if h, ok := s.Host("n1"); !ok || !h.Value.Cordon {
			t.Errorf("host: got %v %v", h, ok)
		}
		if st, ok := s.NodeStatus("n1"); !ok || st.Value.Session != 4 {
			t.Errorf("status: got %v %v", st, ok)
		}
		if n, ok := s.Node("n1"); !ok || n.Value.State != cluster.NodeReady {
			t.Errorf("node: got %v %v", n, ok)
		}

		var u store.Unit
		u.Delete(p.Service("c", "web"))
		after := w.commit([]bool{true}, u)
		if _, ok := after.Service("c", "web"); ok {
			t.Error("a deleted service is in the tables")
		}
		if _, ok := s.Service("c", "web"); !ok {
			t.Error("an older snapshot changed")
		}
	})
}

// A snapshot does not change while thousands of records of the tables do.
func TestSnapshotsNeverChange(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var held *store.Snapshot
		for round := range 5 {
			units := make([]store.Unit, 200)
			for i := range units {
				name := fmt.Sprintf("s%d", i)
				if err := units[i].Put(p.Service("c", name),
					&cluster.Service{Cluster: "c", Name: name, Count: round}); err != nil {
					t.Fatal(err)
				}
			}
			if _, rev, err := w.writer.Commit(t.Context(), units); err != nil {
				t.Fatal(err)
			} else if s := w.at(rev); round == 2 {
				held = s
			}
		}
		n := 0
		for e := range held.Services("") {
			n++
			if e.Value.Count != 2 {
				t.Fatalf("%s in the held snapshot: got count %d, want 2", e.Key, e.Value.Count)
			}
		}
		if n != 200 {
			t.Errorf("services in the held snapshot: got %d, want 200", n)
		}
	})
}

// After compaction and after a restore the tables converge to the engine's content, deletions included.
func TestTablesConvergeAfterResync(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.put(p.Service("c", "kept"), &cluster.Service{Cluster: "c", Name: "kept", Count: 1})
		var backup strings.Builder
		if err := w.engine.Snapshot(t.Context(), "", &backup); err != nil {
			t.Fatal(err)
		}
		w.put(p.Service("c", "kept"), &cluster.Service{Cluster: "c", Name: "kept", Count: 2})
		w.put(p.Service("c", "new"), &cluster.Service{Cluster: "c", Name: "new"})
		if err := w.engine.Restore(strings.NewReader(backup.String())); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s := w.tables.Snapshot()
		if _, ok := s.Service("c", "new"); ok {
			t.Error("a service that the restored store does not have is in the tables")
		}
		if e, ok := s.Service("c", "kept"); !ok || e.Value.Count != 1 {
			t.Errorf("kept: got %+v %v, want count 1", e.Value, ok)
		}
	})
}

func TestFollowersMissNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		f := w.tables.Follow()
		defer f.Close()
		if c := f.Take(); !c.Resync {
			t.Error("the first Take does not say resync")
		}
		j, rev := w.job("j")
		l := store.NewPlanLog(w.writer, w.tables, 0)
		at, _, err := l.Append(t.Context(), store.PlanBatch{Owners: []cluster.PlanOwner{placed(j, rev, 1, "n1", "n2")}})
		if err != nil {
			t.Fatal(err)
		}
		w.at(at)
		synctest.Wait()
		c := f.Take()
		if !c.Owners[j.Owner()] || !c.Plans {
			t.Errorf("changes: got %+v, want the job and plans", c)
		}
		for i := range 2 {
			if !c.Attempts[store.AttemptKey{Task: cluster.JobTask("c", "j", 1, "s", i), Number: 1}] {
				t.Errorf("attempt of task %d is not among the changes %v", i, c.Attempts)
			}
		}
		if c := f.Take(); len(c.Owners) != 0 || len(c.Attempts) != 0 {
			t.Errorf("a second Take: got %+v, want nothing", c)
		}
	})
}

// An unreadable record pins its task to the node, and its revision is known, until it is replaced.
func TestUnreadableDesiredPinsItsTask(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		task := cluster.JobTask("c", "j", 1, "s", 0)
		key := p.Desired("n1", task)
		res, err := w.engine.Commit(t.Context(), []store.Group{{Ops: []store.Op{{Key: key, Value: []byte("junk")}}}})
		if err != nil {
			t.Fatal(err)
		}
		s := w.at(res.Revision)
		row, ok := s.Attempt(task, 0)
		if !ok || !row.IsUnreadable() || row.Node != "n1" || row.DesiredRev != res.Revision {
			t.Fatalf("row: got %+v %v, want an unreadable one on n1 of revision %d", row, ok, res.Revision)
		}
		s = w.put(key, &cluster.Desired{Task: task, Attempt: 2, UUID: "u", Node: "n1"})
		if _, ok := s.Attempt(task, 0); ok {
			t.Error("the unreadable row is still there")
		}
		if row, ok := s.Attempt(task, 2); !ok || row.IsUnreadable() || row.Desired.UUID != "u" {
			t.Errorf("row: got %+v %v, want attempt 2", row, ok)
		}
	})
}

// A record of an attempt without a seal is foreign, also in a store that no server has led yet (P3.9).
func TestRecordWithoutASealIsForeign(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		task := cluster.JobTask("c", "j", 1, "s", 0)
		sealed, err := store.Encode(&cluster.Desired{Task: task, Attempt: 1, UUID: "u", Node: "n1"})
		if err != nil {
			t.Fatal(err)
		}
		value, _, _ := bytes.Cut(sealed, []byte(`,"seal":`))
		res, err := w.engine.Commit(t.Context(),
			[]store.Group{{Ops: []store.Op{{Key: p.Desired("n1", task), Value: append(value, '}')}}}})
		if err != nil {
			t.Fatal(err)
		}
		if row, ok := w.at(res.Revision).Attempt(task, 0); !ok || !row.IsUnreadable() || row.Desired != nil {
			t.Errorf("row: got %+v %v, want an unreadable one", row, ok)
		}
	})
}

// The tables keep the last record that they could read, so that it can be written back (P3.9).
func TestForeignWriteKeepsWhatWasKnown(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		task := cluster.JobTask("c", "j", 1, "s", 0)
		key := p.Desired("n1", task)
		w.put(key, &cluster.Desired{Task: task, Attempt: 1, UUID: "u", Node: "n1"})
		res, err := w.engine.Commit(t.Context(),
			[]store.Group{{Ops: []store.Op{{Key: key, Value: []byte(`{"v":1,"task":"other"}`)}}}})
		if err != nil {
			t.Fatal(err)
		}
		row, ok := w.at(res.Revision).Attempt(task, 1)
		if !ok || !row.IsUnreadable() || row.Desired == nil || row.Desired.UUID != "u" ||
			row.DesiredRev != res.Revision {
			t.Errorf("row: got %+v %v", row, ok)
		}
	})
}

func TestWriterRefusesOnlyStaleUnits(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.put(p.Service("c", "taken"), &cluster.Service{Cluster: "c", Name: "taken"})
		units := make([]store.Unit, 300)
		want := make([]bool, len(units))
		for i := range units {
			name := fmt.Sprintf("s%d", i)
			if i%100 == 50 {
				name = "taken"
			} else {
				want[i] = true
			}
			units[i].Compare(p.Service("c", name), 0)
			if err := units[i].Put(p.Service("c", fmt.Sprintf("s%d", i)),
				&cluster.Service{Cluster: "c", Name: name}); err != nil {
				t.Fatal(err)
			}
			units[i].Event(cluster.Event{Type: "service.created", Cluster: "c", Message: name})
		}
		s := w.commit(want, units...)
		n := 0
		for range s.Services("c") {
			n++
		}
		if n != 298 {
			t.Errorf("services: got %d, want 298 (297 written, one there before)", n)
		}
		counts := map[string]int{}
		for e := range s.EventBatches() {
			if e.Value.Incarnation != 7 {
				t.Errorf("incarnation of a batch: got %d, want 7", e.Value.Incarnation)
			}
			for _, ev := range e.Value.Events {
				counts[ev.Message]++
			}
		}
		if counts["taken"] != 0 || len(counts) != 297 || counts["s0"] != 1 {
			t.Errorf("the log has events of %d services, of refused ones %d times; want 297 and 0", len(counts),
				counts["taken"])
		}
	})
}

func TestWriterOfAnOldEpochWritesNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		old := w.writer
		w.lead(2)
		var u store.Unit
		if err := u.Put(p.Service("c", "late"), &cluster.Service{Cluster: "c", Name: "late"}); err != nil {
			t.Fatal(err)
		}
		applied, _, err := old.Commit(t.Context(), []store.Unit{u})
		if err != nil || applied[0] {
			t.Errorf("a write of epoch 1 in epoch 2: got %v %v, want it refused (P1.4)", applied, err)
		}
	})
}

func TestCodec(t *testing.T) {
	b, err := store.Encode(&cluster.Cluster{Name: "c"})
	if err != nil || string(b) != `{"v":5,"name":"c"}` {
		t.Errorf("encode: got %s %v", b, err)
	}
	for name, in := range map[string]string{
		"first":  `{"v":1,"name":"c"}`,
		"last":   `{"name":"c","v":1}`,
		"spaced": ` { "v" : 1 , "name":"c"}`,
	} {
		if c, err := store.Decode[cluster.Cluster]([]byte(in)); err != nil || c.Name != "c" {
			t.Errorf("%s: got %v %v", name, c, err)
		}
	}
	for name, in := range map[string]string{
		"newer": `{"v":12,"name":"c"}`, "none": `{"name":"c"}`, "junk": `junk`, "true": `true`, "empty": ``,
		"torn": `{"v":1,"name":`,
	} {
		if c, err := store.Decode[cluster.Cluster]([]byte(in)); err == nil {
			t.Errorf("%s: got %v, want an error", name, c)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"v":1,"task":"c.s.1.0","attempt":1,"uuid":"u","node":"n"}`))
	f.Add([]byte(`{"v":1,"seq":3,"owners":[{"owner":{"kind":"Job"},"tasks":[{"i":1}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, err := store.Decode[cluster.Desired](b); err == nil {
			again, err := store.Encode(d)
			if err != nil {
				t.Fatalf("encode what was decoded: %v", err)
			}
			if _, err := store.Decode[cluster.Desired](again); err != nil {
				t.Fatalf("decode what was encoded: %v", err)
			}
		}
		_, _ = store.Decode[cluster.PlanRecord](b) // must not panic
		_, _ = store.Decode[cluster.Observed](b)
	})
}

// After WaitFor a follower has all changes up to the revision. Otherwise a leader would place tasks twice.
func TestWaitForComesAfterTheFollowers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for range 20_000 {
			defer w.tables.Follow().Close()
		}
		f := w.tables.Follow()
		defer f.Close()
		f.Take()
		for i := range 20 {
			name := fmt.Sprint("j", i)
			j := &cluster.Job{Cluster: "c", Name: name}
			w.put(p.Job("c", name), j)
			if !f.Take().Owners[j.Owner()] {
				t.Fatal("the follower did not receive a change that the tables showed")
			}
		}
	})
}

// delayedEngine is an engine whose watches deliver each batch a second late.
type delayedEngine struct{ store.Engine }

type delayedWatch struct{ store.Watch }

func (e delayedEngine) Watch(ctx context.Context, prefix string, after uint64) store.Watch {
	return delayedWatch{e.Engine.Watch(ctx, prefix, after)}
}

func (w delayedWatch) Next(ctx context.Context) (store.Batch, error) {
	batch, err := w.Watch.Next(ctx)
	if err == nil {
		err = pause.For(ctx, time.Second) // in-bubble: only TestSettledHoldsWritesOfOtherServers uses the engine
	}
	return batch, err
}

// Settled waits for writes of other servers, wherever under the prefix they are (P2.3). Consul's index of a prefix
// counts only changes under it, so the index of a smaller prefix would not do.
func TestSettledHoldsWritesOfOtherServers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		tables := store.NewTables(store.TablesConfig{
			Engine: delayedEngine{w.engine.Open(memory.Hooks{})}, Logger: slog.New(slog.DiscardHandler),
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = tables.Run(ctx) })
		defer running.Wait()
		defer cancel()
		<-tables.Synced()
		for i := range 3 {
			name := fmt.Sprint("j", i)
			w.job(name)
			snap, err := tables.Settled(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := snap.Job("c", name); !ok {
				t.Errorf("the settled tables lack the job %s, which another server wrote before", name)
			}
		}
	})
}

// A resync reports only changes to followers. On an engine whose every batch is a resync, each change would otherwise
// cause a full decision.
func TestResyncReportsChanges(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, name := range []string{"a", "b", "c"} {
			w.job(name)
		}
		f := w.tables.Follow()
		defer f.Close()
		f.Take()
		j, _ := w.job("b")
		if c := f.Take(); c.Resync || len(c.Owners) != 1 || !c.Owners[j.Owner()] {
			t.Errorf("changes: got %+v, want the one job", c)
		}
	})
}

// A foreign record under a status key leaves the last status in place, with the revision that the next write compares.
func TestForeignStatusKeepsTheLastStatus(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		task := cluster.JobTask("c", "j", 1, "s", 0)
		o := &cluster.Observed{Task: task, Attempt: 2, UUID: "u", Node: "n1", State: cluster.StateRunning}
		w.put(p.Observed("n1", task), o)
		w.put(p.Observed("n1", task), &store.Newest{})
		r, err := w.engine.Read(t.Context(), p.Observed("n1", task))
		if err != nil {
			t.Fatal(err)
		}
		if row, ok := w.now().Attempt(task, 2); !ok || row.Observed == nil || row.ObservedRev != r.Modified {
			t.Errorf("row: got %+v, want what was known under revision %d", row, r.Modified)
		}
		w.put(p.Observed("n2", task), &store.Newest{})
		if row, ok := w.now().Attempt(task, 0); !ok || row.Node != "n2" || row.Observed != nil || row.ObservedRev == 0 {
			t.Errorf("row of an unknown status: got %+v %v", row, ok)
		}
		var u store.Unit
		u.Delete(p.Observed("n2", task))
		if _, ok := w.commit([]bool{true}, u).Attempt(task, 0); ok {
			t.Error("the row stays after its record is gone")
		}
	})
}
