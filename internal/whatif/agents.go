package whatif

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// pulseInterval is the time until the next sign of life of each agent of a World. The agents are never late.
const pulseInterval = 100 * 365 * 24 * time.Hour

// agents replaces the agents of all nodes. Every assignment succeeds immediately.
type agents struct {
	world  *World
	follow *store.Follower
	// sessions holds the session number of each node that is not silent.
	sessions map[string]uint64
	seq      uint64
	// runTime returns the time until the program of a batch task succeeds, 0 if it never ends. ends are the future
	// ends.
	runTime func(cluster.TaskID) time.Duration
	ends    ends
}

// ends is a heap of future program ends, the next one first.
type ends []end

type end struct {
	at  time.Duration // on the World's boot-time clock
	key store.AttemptKey
}

// Len is part of heap.Interface.
func (e ends) Len() int { return len(e) }

// Less is part of heap.Interface.
func (e ends) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(e[i].at, e[j].at), cmp.Compare(e[i].key.Task, e[j].key.Task),
		cmp.Compare(e[i].key.Number, e[j].key.Number)) < 0
}

// Swap is part of heap.Interface.
func (e ends) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

// Push is part of heap.Interface.
func (e *ends) Push(x any) { *e = append(*e, x.(end)) } //nolint:errcheck // only ends are pushed

// Pop is part of heap.Interface.
func (e *ends) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// newAgents returns the agents of a World: those of all nodes that its control plane does not consider silent.
func newAgents(w *World) *agents {
	a := &agents{
		world: w, follow: w.tables.Follow(), sessions: map[string]uint64{},
		runTime: func(cluster.TaskID) time.Duration { return 0 },
	}
	snap := w.tables.Snapshot()
	for e := range snap.NodeStatuses() {
		node, ok := snap.Node(e.Value.Name)
		if !ok || !silent(node.Value) {
			a.connect(e.Value.Name, e.Value.Session)
		}
	}
	return a
}

// silent reports whether a node was silent by its last verdict. A node that is held for flapping is not silent.
func silent(n *cluster.Node) bool {
	return n.State == cluster.NodeDown || n.State == cluster.NodeSuspect && n.Until.IsZero()
}

// connect starts the session of a node.
func (a *agents) connect(node string, session uint64) {
	a.sessions[node] = session
	a.world.tables.SetPulse(node, cluster.Pulse{Session: session, Seq: 1, At: a.world.clock.boot, Next: pulseInterval})
}

// disconnect makes a node fall silent.
func (a *agents) disconnect(node string) {
	delete(a.sessions, node)
	a.world.tables.DropPulse(node)
}

// step carries out the orders in the records that changed since the last step.
func (a *agents) step(ctx context.Context) error {
	changes := a.follow.Take()
	snap := a.world.tables.Snapshot()
	for name := range changes.Nodes { // order-free: nodes are independent
		if e, ok := snap.NodeStatus(name); ok && a.sessions[name] != 0 && e.Value.Session != a.sessions[name] {
			a.connect(name, e.Value.Session) // the leader ended its session and it registered again
		}
	}
	var groups []store.Group
	one := func(row *store.AttemptRow) error {
		next := a.nextObserved(row)
		if next == nil {
			return nil
		}
		key := a.world.tables.Prefix().Observed(row.Node, row.Task)
		op := store.Op{Key: key, Delete: next.Gone && row.EndsByOutcome()}
		if !op.Delete {
			var err error
			if op.Value, err = store.Encode(next); err != nil {
				return fmt.Errorf("report %s: %w", row.Task, err)
			}
		}
		groups = append(groups, store.Group{
			Compares: []store.Compare{{Key: key, Modified: row.ObservedRev}}, Ops: []store.Op{op},
		})
		return nil
	}
	if changes.Resync {
		for row := range snap.AllAttempts() {
			if err := one(row); err != nil {
				return err
			}
		}
	}
	for _, k := range a.dueAttempts(&changes) {
		if row, ok := snap.Attempt(k.Task, k.Number); ok && !changes.Resync {
			if err := one(row); err != nil {
				return err
			}
		}
	}
	const most = 1024 // below the limits of a commit
	for part := range slices.Chunk(groups, most) {
		if _, err := a.world.config.Branch.Commit(ctx, part); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	return nil
}

// dueAttempts returns, in order, the attempts that changed and those whose program ends now.
func (a *agents) dueAttempts(changes *store.Changes) []store.AttemptKey {
	keys := slices.Collect(maps.Keys(changes.Attempts))
	for len(a.ends) > 0 && a.ends[0].at <= a.world.clock.boot {
		keys = append(keys, heap.Pop(&a.ends).(end).key) //nolint:errcheck // only ends are in it
	}
	slices.SortFunc(keys, func(x, y store.AttemptKey) int {
		return cmp.Or(cmp.Compare(x.Task, y.Task), cmp.Compare(x.Number, y.Number))
	})
	return slices.Compact(keys)
}

// nextObserved returns the agent's next report of an attempt after it has carried out its orders; nil without a change.
func (a *agents) nextObserved(row *store.AttemptRow) *cluster.Observed {
	d, session := row.Desired, a.sessions[row.Node]
	if d == nil || session == 0 || row.IsForeign() || row.ForeignStatus || row.IsUnreadable() {
		return nil
	}
	now := a.world.clock.wall
	o := cluster.Observed{
		Task: row.Task, Attempt: row.Number, UUID: d.UUID, Node: row.Node, Definition: d.Definition, Count: d.Count,
		Ports:   d.Ports,
		Devices: d.Devices, Plan: d.Plan, Session: session,
	}
	if row.Observed != nil {
		o = *row.Observed
		o.Session = session
	}
	begun := row.Observed != nil && row.Observed.State != cluster.StatePreparing
	switch stop := d.Stop; {
	case o.Gone, row.Observed == nil && row.Outcome != nil && (!d.Ended() || row.EndsByOutcome()):
		return nil
	case d.Ended():
		if !o.State.Terminal() {
			o.State, o.Finished = cluster.StateCancelled, now
		}
		o.Gone = true
	case o.State.Terminal():
		return nil
	case stop != nil && stop.Class == cluster.StopVoluntary && begun && (o.Ask == "" || stop.Permit != o.Ask):
		if o.Ask != "" {
			return nil // an agent asks only once
		}
		a.seq++
		o.Ask = strconv.FormatUint(session, 10) + ".s" + strconv.FormatUint(a.seq, 10)
	case stop != nil:
		o.State, o.Reason, o.Finished = cluster.StateCancelled, stop.Reason, now
	case o.State != cluster.StateRunning, o.Health == cluster.HealthUnknown && !d.Batch():
		if o.State = cluster.StateRunning; !d.Batch() {
			o.Health = cluster.HealthHealthy
		}
		if o.Started.IsZero() {
			o.Started = now
		}
		if run := a.runTime(row.Task); run > 0 && d.Batch() {
			heap.Push(&a.ends, end{a.world.clock.boot + run, store.AttemptKey{Task: row.Task, Number: row.Number}})
		}
	case a.finished(&o, d):
		o.State, o.Finished = cluster.StateSucceeded, now
	default:
		return nil
	}
	o.Since = now
	return &o
}

// finished reports whether the program of a batch task has reached its run time.
func (a *agents) finished(o *cluster.Observed, d *cluster.Desired) bool {
	run := a.runTime(o.Task)
	return run > 0 && d.Batch() && !o.Started.Add(run).After(a.world.clock.wall)
}
