package dispatcher_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthd/berth/internal/boottime"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/dispatcher"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/internal/transport"
)

// BenchmarkAddresses measures a server's cost to send agents the addresses of a service while its tasks are replaced.
// Changes come one after the other, each a while after all agents know the last, or 20 a second, as in a rollout. An
// operation is a change: a task ends, and its replacement is healthy elsewhere. The agents are goroutines that call the
// server's handler without a network, and read only the necessary parts of the answers. So cpu-ms/change is nearly all
// of the server, without TLS and HTTP/2. Delays are measured from before the change is written until the handler has
// written the answer.
func BenchmarkAddresses(b *testing.B) {
	for _, agents := range []int{1000, 5000} {
		for _, tasks := range []int{100, 1000} {
			for _, pace := range []time.Duration{0, 50 * time.Millisecond} {
				name := "quiet"
				if pace > 0 {
					name = "rollout"
				}
				b.Run(fmt.Sprintf("%s/agents=%d/tasks=%d", name, agents, tasks), func(b *testing.B) {
					followAddresses(b, agents, tasks, pace)
				})
			}
		}
	}
}

// addressBench is a server with a service, and agents that follow it.
type addressBench struct {
	b       *testing.B
	handler http.Handler
	writer  *store.Writer
	tasks   int

	stamps  sync.Map // stamp → the number of the newest change in its list
	bytes   atomic.Int64
	answers atomic.Int64

	mu      sync.Mutex
	written []time.Time // by change
	delays  []time.Duration
	knows   []int // by agent: the newest change that it has
	behind  int   // agents without the newest change
	all     chan struct{}
}

func followAddresses(b *testing.B, agents, tasks int, pace time.Duration) {
	ctx, cancel := context.WithCancel(b.Context())
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	f := newAddressBench(ctx, b, &parts, agents, tasks)
	before := inUse()
	for n := range agents {
		parts.Go(func() { f.follow(ctx, n) })
	}
	f.change(0)
	f.wait()
	testkit.Pause(ctx, 100*time.Millisecond) // the last agents repeat their requests
	held := inUse() - before
	f.reset()
	cpu := cpuTime(b)
	b.ResetTimer()
	began := time.Now()
	for i := range b.N {
		f.change(1 + i)
		if pace == 0 {
			f.wait()
			testkit.Pause(ctx, 2500*time.Millisecond) // all have rested
		} else {
			testkit.Pause(ctx, time.Until(began.Add(time.Duration(i+1)*pace)))
		}
	}
	f.wait()
	b.StopTimer()
	changes := float64(b.N)
	b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/1000/changes, "cpu-ms/change")
	b.ReportMetric(float64(f.bytes.Load())/changes/float64(agents), "bytes/change/agent")
	b.ReportMetric(float64(f.answers.Load())/changes/float64(agents), "answers/change/agent")
	b.ReportMetric(float64(held)/1024/float64(agents), "KiB/agent")
	slices.Sort(f.delays)
	for _, share := range []int{50, 99} {
		b.ReportMetric(float64(f.delays[len(f.delays)*share/100].Microseconds())/1000, fmt.Sprintf("p%d-ms", share))
	}
}

// inUse returns the memory in use, in bytes.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

func newAddressBench(ctx context.Context, b *testing.B, parts *sync.WaitGroup, agents, tasks int) *addressBench {
	b.Helper()
	log := slog.New(slog.DiscardHandler)
	engine := memory.New(memory.Options{})
	tables := store.NewTables(store.TablesConfig{Engine: engine, Logger: log})
	d := dispatcher.New(dispatcher.Config{
		Engine: engine, Tables: tables, Logger: log,
		Clock: boottime.Now,
	})
	parts.Go(func() { _ = tables.Run(ctx) })
	parts.Go(func() { _ = d.Run(ctx) })
	f := &addressBench{
		b: b, handler: transport.Handler(d), writer: store.NewWriter(engine, p, nil, nil), tasks: tasks,
		knows: make([]int, agents), behind: agents, all: make(chan struct{}), written: []time.Time{{}},
	}
	for n := range agents {
		name := "node-" + strconv.Itoa(n)
		f.commit(func(u *store.Unit) error {
			return u.Put(p.Node(name),
				&cluster.Node{Name: name, State: cluster.NodeReady, Domain: cluster.DefaultDomain})
		})
		facts := machine
		facts.Address = fmt.Sprintf("10.%d.%d.%d", n>>16, n>>8&255, n&255)
		if _, err := d.Register(ctx,
			transport.Registration{Wire: transport.WireVersion, Node: name, Facts: facts}); err != nil {
			b.Fatal(err)
		}
	}
	f.commit(func(u *store.Unit) error {
		return u.Put(p.Service("c", "web"), &cluster.Service{
			Cluster: "c", Name: "web", Lifespan: cluster.Lifespan{Generation: 1},
			Definition: cluster.Ref{Name: "d", Version: 1},
		})
	})
	for i := range tasks {
		f.commit(func(u *store.Unit) error { return f.put(u, -tasks+i) })
	}
	if _, err := tables.Settled(ctx); err != nil {
		b.Fatal(err)
	}
	return f
}

func (f *addressBench) commit(write func(u *store.Unit) error) {
	var u store.Unit
	if err := write(&u); err != nil {
		f.b.Fatal(err)
	}
	if ok, _, err := f.writer.Commit(f.b.Context(), []store.Unit{u}); err != nil || !ok[0] {
		f.b.Fatal(ok, err)
	}
}

// place returns the task that a change makes, and its node; the first are those before change 0. The number of its port
// identifies the change.
func (f *addressBench) place(change int) (id cluster.TaskID, node string) {
	n := change + f.tasks
	return cluster.ServiceTask("c", "web", uint64(1+n/f.tasks), n%f.tasks), "node-" + strconv.Itoa(n*7%len(f.knows))
}

func (f *addressBench) put(u *store.Unit, change int) error {
	id, node := f.place(change)
	d := cluster.Desired{
		Task: id, Attempt: 1, UUID: "u-" +
			string(id), Node: node, Owner: cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "web"},
		Definition: cluster.Ref{Name: "d", Version: 1}, Ports: map[string]int{"http": portOf + max(change, -1)},
	}
	if err := u.Put(p.Desired(node, id), &d); err != nil {
		return err
	}
	return u.Put(p.Observed(node, id), &cluster.Observed{
		Task: id, Attempt: 1, UUID: d.UUID, Node: node, State: cluster.StateRunning, Health: cluster.HealthHealthy,
	})
}

// portOf is the port of the task of change 0.
const portOf = 100_000

// change replaces a task.
func (f *addressBench) change(number int) {
	f.mu.Lock()
	f.written = append(f.written[:number], time.Now())
	f.behind, f.all = len(f.knows), make(chan struct{})
	f.mu.Unlock()
	f.commit(func(u *store.Unit) error {
		id, node := f.place(number - f.tasks)
		u.Delete(p.Desired(node, id))
		u.Delete(p.Observed(node, id))
		return f.put(u, number)
	})
}

// wait waits until all agents have the newest change.
func (f *addressBench) wait() {
	f.mu.Lock()
	all := f.all
	f.mu.Unlock()
	select {
	case <-all:
	case <-time.After(5 * time.Minute):
		f.b.Error("not all agents got the change")
	}
}

func (f *addressBench) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delays = nil
	f.bytes.Store(0)
	f.answers.Store(0)
}

// noteReceived records the newest change that an agent has.
func (f *addressBench) noteReceived(agent, change int) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := max(0, f.knows[agent]+1); c <= change; c++ {
		f.delays = append(f.delays, now.Sub(f.written[c]))
	}
	if f.knows[agent] < change || change == 0 {
		f.knows[agent] = change
		if change == len(f.written)-1 {
			if f.behind--; f.behind == 0 {
				close(f.all)
			}
		}
	}
}

// follow is an agent.
func (f *addressBench) follow(ctx context.Context, number int) {
	f.mu.Lock()
	f.knows[number] = -1
	f.mu.Unlock()
	asked := transport.AddressesRequest{
		Node: "node-" + strconv.Itoa(number), Session: 1,
		Services: []transport.ServiceRequest{{Cluster: "c", Service: "web"}}, Differences: true,
	}
	for ctx.Err() == nil {
		text, _ := json.Marshal(asked)
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, transport.PathAddresses, bytes.NewReader(text))
		if err != nil {
			f.b.Error(err)
			return
		}
		w := &reader{fair: f, header: http.Header{}}
		f.handler.ServeHTTP(w, r)
		if ctx.Err() != nil {
			return
		}
		f.bytes.Add(int64(w.size))
		if stamp, change, ok := w.read(); ok {
			f.answers.Add(1)
			asked.Services[0].Stamp = stamp
			f.noteReceived(number, change)
		}
		testkit.Pause(ctx, 25*time.Millisecond)
	}
}

// reader reads the stamp of an answer, and the rest where no agent has read it before.
type reader struct {
	fair   *addressBench
	header http.Header
	status int
	size   int
	text   []byte // the beginning, or all
	known  bool
}

func (w *reader) Header() http.Header              { return w.header }
func (w *reader) WriteHeader(status int)           { w.status = status }
func (w *reader) SetWriteDeadline(time.Time) error { return nil }
func (w *reader) Write(text []byte) (int, error) {
	w.size += len(text)
	if w.known {
		return len(text), nil
	}
	if head := append(slices.Clone(w.text), text[:min(len(text), 512)]...); len(w.text) < 512 {
		if stamp := stampOf(head); stamp != "" {
			if _, w.known = w.fair.stamps.Load(stamp); w.known {
				w.text = head
				return len(text), nil
			}
		}
	}
	w.text = append(w.text, text...)
	return len(text), nil
}

func stampOf(text []byte) string {
	_, rest, ok := bytes.Cut(text, []byte(`"stamp":"`))
	stamp, _, whole := bytes.Cut(rest, []byte(`"`))
	if !ok || !whole {
		return ""
	}
	return string(stamp)
}

// read returns the stamp of an answer, and the newest change in its list.
func (w *reader) read() (stamp string, change int, ok bool) {
	if stamp = stampOf(w.text); stamp == "" {
		if w.status >= 400 {
			w.fair.b.Errorf("an agent was answered %d: %s", w.status, w.text)
		}
		return "", 0, false
	}
	if n, found := w.fair.stamps.Load(stamp); found {
		return stamp, n.(int), true
	}
	var reply transport.AddressesReply
	if err := json.NewDecoder(io.LimitReader(bytes.NewReader(w.text), 1<<30)).Decode(&reply); err != nil {
		w.fair.b.Errorf("an answer cannot be read: %v", err)
		return "", 0, false
	}
	newest := -1
	for _, a := range reply.Services[0].Addresses {
		newest = max(newest, a.Ports["http"]-portOf)
	}
	w.fair.stamps.Store(stamp, newest)
	return stamp, newest, true
}
