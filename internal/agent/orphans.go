package agent

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/berthd/berth/internal/agent/machine"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/agent/state"
	"github.com/berthd/berth/internal/agent/task"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// orphan is a container of an attempt that the agent does not know.
type orphan struct {
	executor string
	status   executor.Status
}

// orphans finds the containers of attempts that the agent does not know, and keeps them until a server sends the
// assignments. A lost state is no reason to stop a task. All methods may be called concurrently.
type orphans struct {
	node      *node.Node
	executors *machine.Executors
	attempts  *attempts
	marks     *state.Marks

	mu         sync.Mutex
	byUUID     map[string][]orphan // by UUID
	swept      map[string]bool     // the executors that have listed their containers
	unreported chan struct{}       // capacity 1: an orphan was found that no registration has reported
}

// begin prepares for a run of the agent.
func (o *orphans) begin(marks *state.Marks) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.marks = marks
	o.byUUID, o.swept, o.unreported = map[string][]orphan{}, map[string]bool{}, make(chan struct{}, 1)
}

// has reports whether an attempt has an orphan.
func (o *orphans) has(uuid string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.byUUID[uuid]) > 0
}

// observed returns the attempts with a running program and a lost record. Without these reports they would count
// as lost and run on unseen, while their tasks ran a second time elsewhere. The agent adopts them when the server sends
// their assignments.
func (o *orphans) observed() []cluster.Observed {
	select {
	case <-o.unreported: // this registration reports them
	default:
	}
	o.mu.Lock()
	orphans := maps.Clone(o.byUUID)
	o.mu.Unlock()
	var out []cluster.Observed
	for _, uuid := range slices.Sorted(maps.Keys(orphans)) {
		for _, c := range orphans[uuid] {
			number, err := strconv.Atoi(c.status.Labels[task.LabelAttempt])
			if err != nil || c.status.State != executor.StateRunning || o.attempts.has(uuid) {
				continue
			}
			out = append(out, cluster.Observed{
				Task: cluster.TaskID(c.status.Labels[task.LabelTask]), Attempt: number, UUID: uuid, Node: o.node.Name,
				State: cluster.StateRunning, Health: cluster.HealthUnknown, Started: c.status.Process.Started,
				Message: "the agent's record of it was lost; it runs on",
			})
			break
		}
	}
	return out
}

// adopt takes over the containers of an attempt whose record was lost.
func (o *orphans) adopt(t *task.Task) {
	o.mu.Lock()
	id := t.ID
	orphans := o.byUUID[id.UUID]
	delete(o.byUUID, id.UUID)
	o.mu.Unlock()
	if len(orphans) == 0 || t.Definition() == nil {
		return
	}
	held := make([]executor.Status, len(orphans))
	for i := range orphans {
		held[i] = orphans[i].status
	}
	if t.Adopt(orphans[0].executor, held) {
		o.node.Logger.Info("a task whose record was lost is taken up", "task", id.Task, "attempt", id.Attempt)
	}
}

// sweep finds containers of attempts that the agent did not know when it began. It removes containers that were never
// started. Running ones continue: a lost state is no reason to stop a task. Their attempts are adopted when the server
// sends them again (P1.7).
//
// An agent that never had a session may have lost its state, and attempts missing from its first full report count as
// gone. Such an agent therefore asks until all working executors have answered. Any other agent has records of its
// running tasks and waits for a limited time.
func (o *orphans) sweep(ctx context.Context, known map[executor.ID]bool) {
	if o.marks.Session() != 0 {
		limited, cancel := context.WithTimeout(ctx, resumeWait)
		defer cancel()
		ctx = limited
	}
	p := o.node.NewBackoff(node.MinRetryBackoff, node.FastProbeInterval)
	for !o.sweepAll(ctx, known) && p.Wait(ctx) == nil {
	}
}

// watch asks the remaining executors for their containers until ctx ends. A container that is found then makes
// the node register again, because only a full report carries it.
func (o *orphans) watch(ctx context.Context, known map[executor.ID]bool) {
	tick := time.NewTicker(node.FastProbeInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			o.sweepAll(ctx, known)
		}
	}
}

// sweepAll asks the working executors that have not answered yet, and reports whether all have answered.
func (o *orphans) sweepAll(ctx context.Context, known map[executor.ID]bool) bool {
	all := true
	for _, e := range o.executors.All() {
		o.mu.Lock()
		swept := o.swept[e.Name]
		o.mu.Unlock()
		if swept {
			continue
		}
		ask, cancel := context.WithTimeout(ctx, resumeWait)
		err := o.sweepOne(ask, e, known)
		cancel()
		if err != nil {
			o.node.Logger.Warn("an executor does not list its containers", "executor", e.Name, "error", err)
			all = false
		}
	}
	return all
}

// sweepOne handles the containers of one executor.
func (o *orphans) sweepOne(ctx context.Context, e machine.Named, known map[executor.ID]bool) error {
	held, err := e.List(ctx)
	if err != nil {
		return err
	}
	for _, s := range held {
		uuid := s.Labels[task.LabelUUID]
		if on := s.Labels[task.LabelNode]; known[s.ID] || on != "" && on != o.node.Name || o.attempts.has(uuid) {
			continue
		}
		if s.State == executor.StatePrepared {
			if err := e.Remove(ctx, s.ID); err != nil {
				o.node.Logger.Warn("a container that was never started cannot be removed", "container", s.ID,
					"error", err)
			}
			continue
		}
		o.node.Logger.Warn("a container without a record was found; it keeps running until a server sends its "+
			"assignment", "container", s.ID, "task", s.Labels[task.LabelTask], "state", s.State)
		o.mu.Lock()
		o.byUUID[uuid] = append(o.byUUID[uuid], orphan{e.Name, s})
		o.mu.Unlock()
		select {
		case o.unreported <- struct{}{}:
		default:
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.swept[e.Name] = true
	return nil
}

// tasks returns the tasks of all orphans, in no order.
func (o *orphans) tasks() (ids []cluster.TaskID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, orphans := range o.byUUID { // order-free: the caller does not need an order
		for _, c := range orphans {
			ids = append(ids, cluster.TaskID(c.status.Labels[task.LabelTask]))
		}
	}
	return ids
}
