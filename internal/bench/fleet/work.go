package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/transport"
)

// tally is what agents did since their process began, but Connected, which is how many have a session.
type tally struct {
	Connected, Registered, Reports, Refused, Moved, Failed int64
}

func (t tally) plus(u tally) tally {
	return tally{
		t.Connected + u.Connected, t.Registered + u.Registered, t.Reports + u.Reports,
		t.Refused + u.Refused, t.Moved + u.Moved, t.Failed + u.Failed,
	}
}

// worker is a process with some of the agents.
type worker struct {
	options   options
	authority *pki.Authority

	connected, registered, reports, refused, moved, failed atomic.Int64
	trouble                                                atomic.Pointer[string]
}

// work is a process with some of the agents: it prints a tally each second until the context ends.
func work(ctx context.Context, o options, stdout io.Writer) error {
	a, err := pki.OpenAuthority(o.authority)
	if err != nil {
		return err
	}
	w := &worker{options: o, authority: a}
	var agents sync.WaitGroup
	for i := range o.agents {
		agents.Go(func() { w.live(ctx, o.first+i) })
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	out := json.NewEncoder(stdout)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		t := tally{
			w.connected.Load(), w.registered.Load(), w.reports.Load(), w.refused.Load(), w.moved.Load(),
			w.failed.Load(),
		}
		if err := out.Encode(t); err != nil {
			return err
		}
	}
	agents.Wait()
	if why := w.trouble.Load(); why != nil {
		return fmt.Errorf("the last trouble of an agent: %s", *why)
	}
	return nil
}

// live runs one agent. It starts within the first seconds, and with churn ends and restarts.
func (w *worker) live(ctx context.Context, number int) {
	name := fmt.Sprintf("n%d", number)
	config, err := certified(w.authority, pki.Subject{Role: cluster.RoleNode, Name: name})
	if err != nil {
		w.note(err)
		return
	}
	session := uint64(0)
	// twenty a second
	_ = pause.For(ctx, time.Duration(rand.Float64()*float64(w.options.agents)/20*float64(time.Second)))
	for ctx.Err() == nil {
		client, err := transport.NewClient(transport.ClientConfig{Addresses: list(w.options.addresses), TLS: config})
		if err != nil {
			w.note(err)
			return
		}
		life, end := context.WithCancel(ctx)
		if w.options.churn > 0 {
			mean := float64(w.options.agents) / w.options.churn * float64(time.Minute)
			life, end = context.WithTimeout(ctx, time.Duration(rand.ExpFloat64()*mean))
		}
		(&node{w: w, name: name, client: client, session: &session}).run(life)
		end()
		client.Close()
		_ = pause.For(ctx, time.Duration(rand.Float64()*float64(2*time.Second)))
	}
}

func (w *worker) note(err error) {
	w.failed.Add(1)
	text := err.Error()
	w.trouble.Store(&text)
}

// node is one process of an agent.
type node struct {
	w        *worker
	name     string
	client   *transport.Client
	session  *uint64 // the newest one received
	reported *cluster.NodeStats
}

// facts are what every node is.
var facts = cluster.Facts{
	OS: "linux", Arch: "amd64", Version: "fleet", Address: "10.0.0.1",
	CPU: 4000, Memory: 16 * cluster.GiB, Disk: cluster.TiB, Executors: []cluster.ExecutorFact{{Name: "process"}},
}

func (n *node) run(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		n.reported = n.stats()
		welcome, err := n.client.Register(ctx,
			transport.Registration{Node: n.name, Previous: *n.session, Stats: n.reported, Facts: facts})
		if over, ok := errors.AsType[*transport.SessionError](err); ok {
			*n.session = over.Newest
			n.w.refused.Add(1)
			continue
		}
		if err != nil {
			if ctx.Err() == nil {
				n.w.note(err)
			}
			failures++
			_ = pause.For(ctx, time.Duration((0.5+rand.Float64()/2)*float64(
				min(10*time.Second, 200*time.Millisecond<<min(failures, 6)))))
			continue
		}
		failures = 0
		*n.session = welcome.Session
		n.w.registered.Add(1)
		n.w.connected.Add(1)
		n.serve(ctx, welcome)
		n.w.connected.Add(-1)
	}
}

// serve keeps one session.
func (n *node) serve(ctx context.Context, welcome transport.Welcome) {
	ctx, end := context.WithCancel(ctx)
	var both sync.WaitGroup
	both.Go(func() {
		defer end()
		n.listen(ctx, welcome.Session)
	})
	both.Go(func() {
		defer end()
		n.report(ctx, welcome)
	})
	both.Wait()
}

func (n *node) listen(ctx context.Context, session uint64) {
	for ctx.Err() == nil {
		stream, err := n.client.Assignments(ctx, transport.AssignmentsRequest{Node: n.name, Session: session})
		for err == nil {
			_, err = stream.Next(ctx)
		}
		if stream != nil {
			_ = stream.Close()
		}
		if n.over(ctx, err) {
			return
		}
		_ = pause.For(ctx, 200*time.Millisecond)
	}
}

func (n *node) report(ctx context.Context, welcome transport.Welcome) {
	heartbeat := time.Duration(welcome.Heartbeat)
	for seq := uint64(1); ; seq++ {
		interval := time.Duration((0.8 + 0.1*rand.Float64()) * float64(heartbeat))
		_ = pause.For(ctx, transport.AlignReport(time.Now(), interval))
		stats := n.stats()
		if transport.Same(stats, n.reported, facts) {
			stats = nil
		}
		for {
			reply, err := n.client.Report(ctx,
				transport.Report{Node: n.name, Session: welcome.Session, Seq: seq, Stats: stats})
			if err == nil {
				n.w.reports.Add(1)
				if stats != nil {
					n.reported = stats
				}
				heartbeat = time.Duration(reply.Heartbeat)
				break
			}
			if n.over(ctx, err) {
				return
			}
			_ = pause.For(ctx, 200*time.Millisecond)
		}
	}
}

// over reports whether an error ends the session.
func (n *node) over(ctx context.Context, err error) bool {
	switch {
	case ctx.Err() != nil:
		return true
	case errors.Is(err, transport.ErrSession):
		n.w.refused.Add(1)
		return true
	case errors.Is(err, transport.ErrElsewhere):
		n.w.moved.Add(1)
		return true
	}
	n.w.note(err)
	return false
}

// stats is what an idle node reports, or a busy one.
func (n *node) stats() *cluster.NodeStats {
	s := &cluster.NodeStats{
		At: time.Now().UTC(), CPU: cluster.MilliCPU(rand.IntN(60)), Memory: cluster.GiB +
			cluster.Bytes(rand.IntN(1<<24)),
		Disk: 40 * cluster.GiB, Load: rand.Float64() / 4,
	}
	if n.w.options.busy {
		s.CPU, s.Tasks = cluster.MilliCPU(1500+rand.IntN(2000)), 12
	}
	return s
}
