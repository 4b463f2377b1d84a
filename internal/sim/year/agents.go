package year

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// pulseInterval is the time until the next sign of life of each agent. The agents are never late.
const pulseInterval = 100 * 365 * 24 * time.Hour

// agents are those of all nodes. They carry out each order immediately.
type agents struct {
	world  *World
	follow *store.Follower
	asked  uint64
	ends   []end // of programs, the next one first
}

type end struct {
	at  time.Duration
	key store.AttemptKey
}

func newAgents(w *World) *agents { return &agents{world: w, follow: w.tables.Follow()} }

// addEnd notes when a program ends.
func (a *agents) addEnd(e end) {
	at, _ := slices.BinarySearchFunc(a.ends, e.at, func(o end, at time.Duration) int { return cmp.Compare(o.at, at) })
	a.ends = slices.Insert(a.ends, at, e)
}

// nextEnd returns when the next program ends.
func (a *agents) nextEnd() (time.Duration, bool) {
	if len(a.ends) == 0 {
		return 0, false
	}
	return a.ends[0].at, true
}

// join registers a node.
func (a *agents) join(ctx context.Context, name string) error {
	value, err := store.Encode(&cluster.NodeStatus{
		Name: name, Session: 1, Registered: a.world.now(), Synced: true,
		Facts: cluster.Facts{
			Hostname: name, OS: "linux", Arch: "amd64", CPU: 64_000, Memory: 256 * cluster.GiB, Disk: cluster.TiB,
			Executors: []cluster.ExecutorFact{{Name: "containerd"}},
		},
	})
	if err != nil {
		return err
	}
	if err := a.commit(ctx, []store.Group{{
		Ops: []store.Op{{Key: a.world.tables.Prefix().NodeStatus(name), Value: value}},
	}}); err != nil {
		return err
	}
	a.world.tables.SetPulse(name, cluster.Pulse{Session: 1, Seq: 1, At: a.world.boot, Next: pulseInterval})
	return nil
}

func (a *agents) commit(ctx context.Context, groups []store.Group) error {
	const most = 1024 // groups of a commit
	for part := range slices.Chunk(groups, most) {
		if _, err := (shown{a.world.engine, a.world.tables}).Commit(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// step carries out what changed since the last step, and ends the programs whose time has come.
func (a *agents) step(ctx context.Context) error {
	changes, snap := a.follow.Take(), a.world.tables.Snapshot()
	hasEnded := map[store.AttemptKey]bool{}
	for len(a.ends) > 0 && a.ends[0].at <= a.world.boot {
		key := a.ends[0].key
		a.ends = a.ends[1:]
		hasEnded[key], changes.Attempts[key] = true, true
	}
	var groups []store.Group
	for k := range changes.Attempts { // order-free: each is of its own
		row, ok := snap.Attempt(k.Task, k.Number)
		if !ok {
			continue
		}
		next := a.nextObserved(row, hasEnded[k])
		if next == nil {
			continue
		}
		key := a.world.tables.Prefix().Observed(row.Node, row.Task)
		op := store.Op{Key: key, Delete: next.Gone && row.EndsByOutcome()} // as a dispatcher does
		if !op.Delete {
			var err error
			if op.Value, err = store.Encode(next); err != nil {
				return err
			}
		}
		groups = append(groups, store.Group{
			Compares: []store.Compare{{Key: key, Modified: row.ObservedRev}}, Ops: []store.Op{op},
		})
	}
	return a.commit(ctx, groups)
}

// nextObserved returns the agent's next report of an attempt, whose program may have ended now; nil without a change.
func (a *agents) nextObserved(row *store.AttemptRow, hasEnded bool) *cluster.Observed {
	d, now := row.Desired, a.world.now()
	if d == nil || row.IsForeign() || row.Observed == nil && row.Outcome != nil && (!d.Ended() || row.EndsByOutcome()) {
		return nil
	}
	o := cluster.Observed{
		Task: row.Task, Attempt: row.Number, UUID: d.UUID, Node: row.Node, Definition: d.Definition, Count: d.Count,
		Ports: d.Ports, Plan: d.Plan, Session: 1,
	}
	if row.Observed != nil {
		o = *row.Observed
	}
	switch stop := d.Stop; {
	case o.Gone:
		return nil
	case d.Ended():
		if !o.State.Terminal() {
			o.State, o.Finished = cluster.StateCancelled, now
		}
		o.Gone = true
	case o.State.Terminal():
		return nil
	case stop != nil && stop.Class == cluster.StopVoluntary && o.State == cluster.StateRunning &&
		(o.Ask == "" || stop.Permit != o.Ask):
		if o.Ask != "" {
			return nil // an agent asks only once
		}
		a.asked++
		o.Ask = "1.s" + strconv.FormatUint(a.asked, 10)
	case stop != nil:
		o.State, o.Reason, o.Finished = cluster.StateCancelled, stop.Reason, now
	case o.State != cluster.StateRunning:
		o.State, o.Started = cluster.StateRunning, now
		if !d.Batch() {
			o.Health = cluster.HealthHealthy
			break
		}
		run, _ := program(row.Task, row.Number)
		a.addEnd(end{a.world.boot + run, store.AttemptKey{Task: row.Task, Number: row.Number}})
	case !hasEnded:
		return nil
	default:
		o.State, o.Finished = cluster.StateSucceeded, now
		if _, code := program(row.Task, row.Number); code != 0 {
			o.State, o.Reason, o.Message = cluster.StateFailed, cluster.ReasonExit, "exit code 1"
			o.LogTail = "step 3 of 7: the build failed\n"
		}
	}
	o.Since = now
	return &o
}

// program returns how long the program of an attempt runs, and its exit code. One in 16 first attempts fails, and one
// task of 64 fails always.
func program(task cluster.TaskID, attempt int) (time.Duration, int) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(task))
	draw := h.Sum64()
	code := 0
	if draw%64 == 0 || draw%16 == 0 && attempt == 1 {
		code = 1
	}
	return 10*time.Second + time.Duration(draw>>8%600)*time.Second, code
}
