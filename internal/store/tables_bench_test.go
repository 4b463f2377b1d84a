package store

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
)

// benchNodes and benchTasks are the size of the store that the benchmarks change: twenty jobs of a thousand tasks each.
const (
	benchNodes = 5000
	benchTasks = 20_000
)

// tablesBench is tables under load: each node has a follower, as its agent's stream has, and the parts of a server
// follow too.
type tablesBench struct {
	*testing.B
	state    *state
	tables   *Tables
	all      []*Follower
	nodes    []*NodeFollower
	taken    []AttemptKey
	revision uint64
}

func newTablesBench(b *testing.B) *tablesBench {
	b.Helper()
	w := &tablesBench{
		B: b, tables: NewTables(TablesConfig{}),
		state: newState(func(key string, err error) { b.Fatal(key, err) }),
	}
	for i := range benchNodes {
		w.nodes = append(w.nodes, w.tables.FollowNode(node(i)))
	}
	w.all = append(w.all, w.tables.Follow())
	return w
}

func node(i int) string { return fmt.Sprintf("node-%05d", i) }

func task(i int) cluster.TaskID {
	return cluster.JobTask("default", fmt.Sprintf("job-%02d", i/1000), 1, "work", i%1000)
}

// change returns the change of a write of a record.
func (w *tablesBench) change(key string, record any) Change {
	w.revision++
	c := Change{Record: Record{Key: DefaultPrefix + key, Created: w.revision, Modified: w.revision}}
	if record == nil {
		c.Deleted = true
		return c
	}
	value, err := Encode(record)
	if err != nil {
		w.Fatal(err)
	}
	c.Value = value
	return c
}

// apply does the work of Tables.Run for one batch, and then the work of the followers.
func (w *tablesBench) apply(changes []Change) {
	w.state.apply(Batch{Changes: changes, Revision: w.revision}, DefaultPrefix)
	w.tables.publish(w.state)
	for _, f := range w.all {
		f.Take()
	}
	for _, f := range w.nodes {
		select {
		case <-f.Wake():
			w.taken = f.TakeInto(w.taken[:0])
		default:
		}
	}
}

// begin starts the measurement, and report ends it with the CPU time of the process for each record.
func (w *tablesBench) begin() time.Duration {
	runtime.GC()
	w.ReportAllocs()
	w.ResetTimer()
	return w.spent()
}

func (w *tablesBench) report(began time.Duration, records int) {
	w.ReportMetric(float64(w.spent()-began)/float64(w.N*records), "cpu-ns/record")
}

// spent returns the CPU time of the process.
func (w *tablesBench) spent() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		w.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// plan places tasks of the job of the number.
func (w *tablesBench) plan(seq uint64, tasks int) *cluster.PlanRecord {
	p := &cluster.PlanRecord{
		Seq: seq, Token: cluster.Token{Incarnation: 7, Epoch: 3},
		At: time.Unix(1e9, 123456789).UTC(),
	}
	for left := tasks; left > 0; left -= 1000 {
		job := (int(seq)*tasks/1000 + left/1000) % (benchTasks / 1000)
		o := cluster.PlanOwner{
			Owner: cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "default", Name: fmt.Sprintf("job-%02d", job)},
			Rev:   12345, Generation: 1,
			Step: "work", Definition: cluster.Ref{Name: "bench", Version: 1}, Count: 1000, Priority: 500,
			Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		}
		for i := range min(left, 1000) {
			o.Tasks = append(o.Tasks, cluster.Placed{
				Index: i, Attempt: 1, UUID: fmt.Sprintf("01890a5d-ac96-774b-bcce-%04d%08d", job, i),
				Node: node((job*1000 + i*7) % benchNodes),
			})
		}
		p.Owners = append(p.Owners, o)
	}
	return p
}

func (w *tablesBench) observed(i, attempt int, s cluster.State) *cluster.Observed {
	at := time.Unix(1e9+int64(w.revision), 123456789).UTC()
	return &cluster.Observed{
		Task: task(i), Attempt: attempt, UUID: fmt.Sprintf("01890a5d-ac96-774b-bcce-%012d", i),
		Node: node(i * 7 % benchNodes), Session: 4,
		Seq: w.revision, Definition: cluster.Ref{Name: "bench", Version: 1}, Count: 1000, Plan: 12, State: s,
		Started: at, Since: at,
		Containers: []cluster.ContainerStatus{
			{Name: "main", State: cluster.ContainerRunning, Pid: 4711, PidStart: 998877, Started: at},
		},
	}
}

func (w *tablesBench) events(n int) (string, *cluster.EventBatch) {
	e := &cluster.EventBatch{
		ID: fmt.Sprintf("01890a5d-ac96-774b-bcce-%012d", w.revision), Incarnation: 7,
		At: time.Unix(1e9, 5).UTC(),
	}
	for i := range n {
		e.Events = append(e.Events, cluster.Event{
			Type: "task.running", Cluster: "default",
			Owner: &cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "default", Name: "job-01"},
			Task:  task(i), Attempt: 1, Node: node(i), Message: "runs since its container was started",
		})
	}
	return "event/" + e.ID, e
}

// fill places all tasks, writes their statuses, and fills the event log.
func (w *tablesBench) fill() {
	var changes []Change
	for seq := range uint64(benchTasks / 1000) {
		changes = append(changes, w.change(fmt.Sprintf("plan/%020d", seq+1), w.plan(seq+1, 1000)))
	}
	for i := range benchTasks {
		o := w.observed(i, 1, cluster.StateStarting)
		changes = append(changes, w.change("status/"+o.Node+"/"+string(o.Task), o))
	}
	for range 5000 {
		changes = append(changes, w.change(w.events(1)))
	}
	w.apply(changes)
}

// Statuses of many tasks arrive in batches, with their events.
func BenchmarkTablesStatuses(b *testing.B) {
	for _, size := range []int{20, 1000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			w := newTablesBench(b)
			w.fill()
			const different = 10
			var batches [][]Change
			for n := range different {
				var changes []Change
				for i := range size {
					o := w.observed((n*size+i)*61%benchTasks, 1, cluster.StateRunning)
					changes = append(changes, w.change("status/"+o.Node+"/"+string(o.Task), o))
				}
				batches = append(batches, append(changes, w.change(w.events(min(size, 128)))))
			}
			began := w.begin()
			for n := range b.N {
				changes := batches[n%different]
				for i := range changes {
					w.revision++
					changes[i].Modified = w.revision
				}
				w.apply(changes)
			}
			w.report(began, size)
		})
	}
}

// A plan record creates a row for each of its tasks, and its deletion deletes the rows.
func BenchmarkTablesPlan(b *testing.B) {
	for _, size := range []int{1000, 4000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			w := newTablesBench(b)
			var changes []Change
			for seq := range uint64(benchTasks / size) {
				key := fmt.Sprintf("plan/%020d", seq+1)
				changes = append(changes, w.change(key, w.plan(seq+1, size)), w.change(key, nil))
			}
			began := w.begin()
			for n := range b.N {
				at := n * 2 % len(changes)
				for i := range 2 { // creates and deletes it
					w.revision++
					changes[at+i].Modified = w.revision
					w.apply(changes[at+i : at+i+1])
				}
			}
			w.report(began, size)
		})
	}
}

// Desired records come behind the plan.
func BenchmarkTablesDesired(b *testing.B) {
	w := newTablesBench(b)
	w.fill()
	const size = 1000
	p := w.plan(1, size)
	var changes []Change
	w.state.eachPlaced(p, func(o *cluster.PlanOwner, t *cluster.Placed) {
		d := p.Desired(o, t)
		changes = append(changes, w.change("state/"+d.Node+"/"+string(d.Task), d))
	})
	began := w.begin()
	for range b.N {
		for i := range changes {
			w.revision++
			changes[i].Modified = w.revision
		}
		w.apply(changes)
	}
	w.report(began, size)
}

// Thousands of goroutines wait for later revisions while small batches arrive.
func BenchmarkTablesWaiters(b *testing.B) {
	w := newTablesBench(b)
	const waiters = 5000
	ctx, cancel := context.WithCancel(b.Context())
	var all sync.WaitGroup
	for range waiters {
		all.Go(func() { _, _ = w.tables.WaitFor(ctx, 1<<62) })
	}
	testkit.Eventually(b, 10*time.Second, func() error {
		w.tables.mu.Lock()
		defer w.tables.mu.Unlock()
		if at, ok := w.tables.waiters.revisions.Get(1 << 62); !ok || at.count < waiters {
			return errors.New("not all wait yet")
		}
		return nil
	})
	began := w.begin()
	for range b.N {
		w.revision++
		w.state.apply(Batch{Revision: w.revision}, DefaultPrefix)
		w.tables.publish(w.state)
		if _, err := w.tables.WaitFor(ctx, w.revision); err != nil {
			b.Fatal(err)
		}
	}
	w.report(began, 1)
	b.StopTimer()
	cancel()
	all.Wait()
}

func BenchmarkRead(b *testing.B) {
	w := newTablesBench(b)
	w.fill()
	snap := w.tables.Snapshot()
	ids := make([]cluster.TaskID, 1009)
	for i := range ids {
		ids[i] = task(i * 17)
	}
	b.Run("attempt", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			if _, ok := snap.Attempt(ids[i%len(ids)], 1); !ok {
				b.Fatal("no such attempt")
			}
		}
	})
	b.Run("node", func(b *testing.B) {
		b.ReportAllocs()
		rows := 0
		for i := range b.N {
			for range snap.NodeAttempts(w.nodes[i%benchNodes].node) {
				rows++
			}
		}
		b.ReportMetric(float64(rows)/float64(b.N), "rows/op")
	})
}

func BenchmarkCodec(b *testing.B) {
	w := newTablesBench(b)
	o := w.observed(1, 1, cluster.StateRunning)
	value, err := Encode(o)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if _, err := Encode(o); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if _, err := Decode[cluster.Observed](value); err != nil {
				b.Fatal(err)
			}
		}
	})
}
