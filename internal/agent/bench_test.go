package agent

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthd/berth/internal/agent/machine"
	"github.com/berthd/berth/internal/agent/task"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/transport"
)

// benchServer is a minimal server for many agents: it accepts every report immediately.
type benchServer struct {
	streams []chan transport.Message
	running atomic.Int64
	reports atomic.Int64
	want    int64
	full    chan struct{}
}

// benchSource is one agent's Source.
type benchSource struct {
	*benchServer
	n int
}

func (s benchSource) Register(context.Context, transport.Registration) (transport.Welcome, error) {
	return transport.Welcome{Session: 1, Heartbeat: cluster.Duration(5 * time.Second)}, nil
}

func (s benchSource) Assignments(context.Context, transport.AssignmentsRequest) (AssignmentStream, error) {
	return benchStream(s.streams[s.n]), nil
}

func (s benchSource) Report(_ context.Context, r transport.Report) (transport.ReportReply, error) {
	s.reports.Add(1)
	for i := range r.Tasks {
		if r.Tasks[i].State == cluster.StateRunning && s.running.Add(1) == s.want {
			close(s.full)
		}
	}
	return transport.ReportReply{}, nil
}

func (s benchSource) Stream(context.Context, string) (io.ReadWriteCloser, error) { return nil, io.EOF }

type benchStream chan transport.Message

func (s benchStream) Next(ctx context.Context) (transport.Message, error) {
	select {
	case <-ctx.Done():
		return transport.Message{}, ctx.Err()
	case m := <-s:
		return m, nil
	}
}

func (s benchStream) Close() error { return nil }

// BenchmarkAgents runs many agents in one process that move batch tasks from the assignment to running: b.N tasks each
// time, spread over them.
func BenchmarkAgents(b *testing.B) {
	for _, agents := range []int{1, 100, 1000} {
		for _, volatile := range []bool{true, false} {
			if !volatile && agents > 1 {
				continue
			}
			b.Run(fmt.Sprintf("agents=%d/volatile=%v", agents, volatile), func(b *testing.B) {
				benchmarkAgents(b, agents, volatile)
			})
		}
	}
}

func benchmarkAgents(b *testing.B, agents int, volatile bool) {
	h := &benchServer{want: int64(b.N), full: make(chan struct{})}
	dir := b.TempDir()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var all sync.WaitGroup
	for i := range agents {
		h.streams = append(h.streams, make(chan transport.Message, b.N/agents+16))
		name := fmt.Sprint("n", i)
		a, err := New(Config{
			Name: name, DataDir: filepath.Join(dir, name), Volatile: volatile, Source: benchSource{h, i},
			Executors: []executor.Executor{newTestExecutor()},
			Machine: machine.Config{Facts: func(string) (cluster.Facts, error) {
				return cluster.Facts{BootID: "b", Address: "127.0.0.1"}, nil
			}},
			Checks: task.CheckConfig{PortFree: func(context.Context, int) error { return nil }},
		})
		if err != nil {
			b.Fatal(err)
		}
		all.Go(func() {
			if err := a.Run(ctx); err != nil {
				b.Error(err)
			}
		})
	}
	def := &cluster.TaskDefinition{Name: "work", Version: 1, Containers: []cluster.Container{{Name: "app"}}}
	for _, s := range h.streams {
		s <- transport.Message{Definition: def}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		n := i % agents
		h.streams[n] <- transport.Message{Assignment: &transport.Assignment{Revision: 1, Desired: cluster.Desired{
			Task: cluster.JobTask("default", "work", 1, "main", i), Attempt: 1, UUID: fmt.Sprintf("attempt-%d", i),
			Node: fmt.Sprint("n", n), Owner: cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "default", Name: "work"},
			Definition: def.Ref(), Count: b.N,
		}}}
	}
	<-h.full
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
	b.ReportMetric(float64(h.reports.Load())/float64(b.N), "reports/task")
	b.ReportMetric(float64(runtime.NumGoroutine())/float64(b.N), "goroutines/task")
	cancel()
	all.Wait()
}

// timedExecutor signals the start of a program.
type timedExecutor struct {
	*testExecutor
	started chan struct{}
}

func (t timedExecutor) Start(ctx context.Context, id executor.ID) (executor.Process, error) {
	p, err := t.testExecutor.Start(ctx, id)
	t.started <- struct{}{}
	return p, err
}

// BenchmarkLatency is the time from the arrival of one assignment to the start of its program, with the state on disk;
// batch waits for its barrier in between.
func BenchmarkLatency(b *testing.B) {
	for _, kind := range []cluster.Kind{cluster.KindService, cluster.KindJob} {
		b.Run(string(kind), func(b *testing.B) {
			h := &benchServer{
				streams: []chan transport.Message{make(chan transport.Message, 16)}, full: make(chan struct{}),
			}
			started := make(chan struct{}, 1)
			a, err := New(Config{
				Name: "n0", DataDir: b.TempDir(), Source: benchSource{h, 0},
				Executors: []executor.Executor{timedExecutor{newTestExecutor(), started}},
			})
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(b.Context())
			var run sync.WaitGroup
			run.Go(func() {
				if err := a.Run(ctx); err != nil {
					b.Error(err)
				}
			})
			def := &cluster.TaskDefinition{Name: "work", Version: 1, Containers: []cluster.Container{{Name: "app"}}}
			h.streams[0] <- transport.Message{Definition: def}
			i := 0
			for b.Loop() {
				h.streams[0] <- transport.Message{
					Assignment: &transport.Assignment{Revision: 1, Desired: cluster.Desired{
						Task: cluster.JobTask("default", "work", 1, "main", i), Attempt: 1,
						UUID: fmt.Sprintf("attempt-%d", i),
						Node: "n0", Owner: cluster.OwnerRef{Kind: kind, Cluster: "default", Name: "work"},
						Definition: def.Ref(),
					}},
				}
				<-started
				i++
			}
			cancel()
			run.Wait()
		})
	}
}
