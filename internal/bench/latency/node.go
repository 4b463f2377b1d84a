package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/berthd/berth/internal/agent"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/containerd"
	"github.com/berthd/berth/internal/transport"
)

// node is a real agent whose server is this program: it answers immediately.
type node struct {
	flag     *programFlag
	messages chan transport.Message
	stop     func() error

	mu   sync.Mutex
	gone map[string]chan struct{} // by UUID, closed when nothing is left of the attempt
}

func startNode(ctx context.Context, dir string, x *containerd.Executor, flag *programFlag) (*node, error) {
	n := &node{flag: flag, messages: make(chan transport.Message, 16), gone: map[string]chan struct{}{}}
	a, err := agent.New(agent.Config{Name: "latency", DataDir: dir, Source: n, Executors: []executor.Executor{x}})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	n.stop = func() error {
		cancel()
		return <-ended
	}
	n.messages <- transport.Message{Definition: &cluster.TaskDefinition{
		// sleep, as process 1, ignores TERM
		Name: "latency", Version: 1, Grace: cluster.Duration(10 * time.Millisecond),
		Volumes: []cluster.Volume{{Name: "flag", Host: flag.dir}},
		Containers: []cluster.Container{{
			Name: "main", Image: image, Pull: cluster.PullNever, Command: command(),
			Mounts: []cluster.Mount{{Volume: "flag", Path: inside}},
		}},
	}}
	return n, nil
}

// start assigns a task, waits for its first instruction, and then until nothing of it is left.
func (n *node) start(ctx context.Context, i int, batch bool) (time.Duration, error) {
	d := cluster.Desired{
		Task: cluster.ServiceTask("default", "latency", 1, i), Attempt: 1, UUID: uuid.NewString(), Node: "latency",
		Count:      1,
		Owner:      cluster.OwnerRef{Kind: cluster.KindService, Cluster: "default", Name: "latency"},
		Definition: cluster.Ref{Name: "latency", Version: 1},
	}
	if batch {
		d.Task = cluster.JobTask("default", "batch", 1, "main", i)
		d.Owner = cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "default", Name: "batch"}
	}
	gone := make(chan struct{})
	n.mu.Lock()
	n.gone[d.UUID] = gone
	n.mu.Unlock()
	began := time.Now()
	n.messages <- transport.Message{Assignment: &transport.Assignment{Desired: d, Revision: 1}}
	if err := n.flag.wait(20 * time.Second); err != nil {
		return 0, fmt.Errorf("through the agent: %w", err)
	}
	took := time.Since(began)
	d.Stop = &cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonEnded, Ended: true}
	n.messages <- transport.Message{Assignment: &transport.Assignment{Desired: d, Revision: 2}}
	select {
	case <-gone:
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(time.Minute):
		return 0, errors.New("the task did not end")
	}
	n.messages <- transport.Message{Forget: &transport.Forget{Task: d.Task, UUID: d.UUID}}
	return took, nil
}

// Register is part of agent.Source.
func (n *node) Register(context.Context, transport.Registration) (transport.Welcome, error) {
	return transport.Welcome{Session: 1, Heartbeat: cluster.Duration(5 * time.Second)}, nil
}

// Report is part of agent.Source: everything is accepted immediately.
func (n *node) Report(_ context.Context, r transport.Report) (transport.ReportReply, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, o := range r.Tasks {
		if gone := n.gone[o.UUID]; o.Gone && gone != nil {
			close(gone)
			delete(n.gone, o.UUID)
		}
	}
	return transport.ReportReply{Heartbeat: cluster.Duration(5 * time.Second)}, nil
}

// Stream is part of agent.Source; nothing here needs one.
func (n *node) Stream(context.Context, string) (io.ReadWriteCloser, error) {
	return nil, errors.New("no streams here")
}

// Assignments is part of agent.Source.
func (n *node) Assignments(context.Context, transport.AssignmentsRequest) (agent.AssignmentStream, error) {
	return n, nil
}

// Next is part of agent.AssignmentStream.
func (n *node) Next(ctx context.Context) (transport.Message, error) {
	select {
	case <-ctx.Done():
		return transport.Message{}, ctx.Err()
	case m := <-n.messages:
		return m, nil
	}
}

// Close is part of agent.AssignmentStream.
func (n *node) Close() error { return nil }
