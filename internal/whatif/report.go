package whatif

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// Place is the node of a task, with the ports and devices that the task holds there.
type Place struct {
	Node       string
	Attempt    int
	Owner      cluster.OwnerRef
	Definition cluster.Ref
	Ports      map[string]int
	Devices    []cluster.DeviceUse
}

// Places returns the places of all tasks of a domain that continue. Of each task it takes the newest attempt that has
// neither ended nor a stop.
func Places(snap *store.Snapshot, domain string) map[cluster.TaskID]Place {
	out := map[cluster.TaskID]Place{}
	ours := map[string]bool{}
	for row := range snap.AllAttempts() {
		d := row.Desired
		if d == nil || d.Stop != nil || row.Outcome != nil || row.Observed != nil && row.Observed.State.Terminal() {
			continue
		}
		own, known := ours[d.Owner.Cluster]
		if !known {
			own = domainOf(snap, d.Owner.Cluster) == domain
			ours[d.Owner.Cluster] = own
		}
		if own {
			out[row.Task] = Place{
				Node: row.Node, Attempt: row.Number, Owner: d.Owner, Definition: d.Definition,
				Ports: d.Ports, Devices: d.Devices,
			}
		}
	}
	return out
}

// Loads returns the reserved resources of a domain's nodes.
func Loads(snap *store.Snapshot, domain string) map[string]api.SimulateLoad {
	out := map[string]api.SimulateLoad{}
	demands := map[cluster.Ref]cluster.Demand{}
	for e := range snap.Nodes() {
		if e.Value.Domain != domain {
			continue
		}
		var load api.SimulateLoad
		for row := range snap.NodeAttempts(e.Value.Name) {
			d := row.Desired
			if d == nil || !row.Standing() || row.Observed != nil && row.Observed.Gone {
				continue
			}
			demand, known := demands[d.Definition]
			if !known {
				if def, ok := snap.Definition(d.Definition); ok {
					demand = def.Value.Demand()
				}
				demands[d.Definition] = demand
			}
			load.Tasks++
			load.Reserved = load.Reserved.Add(demand)
			for _, u := range d.Devices {
				load.Devices += u.Share
			}
		}
		out[e.Value.Name] = load
	}
	return out
}

// report collects the results of a simulation.
type report struct {
	world *World
	sim   *api.Simulation
	// Places before all changes, and after the last one.
	first, last map[cluster.TaskID]Place
	loads       map[string]api.SimulateLoad
	facts       map[string]cluster.Facts
	waited      map[cluster.TaskID]bool
	failed      map[string]uint64 // generations of rollouts that had failed before
	lasted      time.Duration
}

// recordBefore records the state before the changes.
func (r *report) recordBefore() {
	w := r.world
	snap := w.Snapshot()
	r.first = Places(snap, w.config.Domain)
	r.last = r.first
	r.loads = Loads(snap, w.config.Domain)
	r.facts = map[string]cluster.Facts{}
	r.keepFacts(snap)
	r.waited = map[cluster.TaskID]bool{}
	for _, g := range w.plane.Waiting() {
		for _, tasks := range g.Tasks {
			for t := range tasks.Each {
				r.waited[t] = true
			}
		}
	}
	r.sim.Waited = len(r.waited)
	r.failed = map[string]uint64{}
	for e := range snap.Rollouts() {
		if isFailed(e.Value.State) {
			r.failed[e.Key] = e.Value.Generation
		}
	}
}

// isFailed reports whether a rollout failed or was rolled back.
func isFailed(s cluster.RolloutState) bool {
	return s == cluster.RolloutFailed || s == cluster.RolloutRolledBack
}

// keepFacts keeps the facts of nodes, whose records go with them.
func (r *report) keepFacts(snap *store.Snapshot) {
	for e := range snap.NodeStatuses() {
		r.facts[e.Value.Name] = e.Value.Facts
	}
}

// addStep records the effect of a change.
func (r *report) addStep(what string, lasted time.Duration, settled bool) {
	now := Places(r.world.Snapshot(), r.world.config.Domain)
	s := api.SimulateStep{Change: what, Lasted: roundToSecond(lasted)}
	for _, t := range differences(r.last, now) {
		switch t.What {
		case api.SimulatePlaced:
			s.Placed++
		case api.SimulateMoved:
			s.Moved++
		case api.SimulateEnded:
			s.Ended++
		}
	}
	for _, g := range r.world.plane.Waiting() {
		s.Waiting += g.Count()
	}
	r.sim.Steps = append(r.sim.Steps, s)
	r.sim.Settled = r.sim.Settled && settled
	r.last = now
	r.lasted += lasted
	r.keepFacts(r.world.Snapshot())
}

// roundToSecond removes the small steps of the clock from a span.
func roundToSecond(d time.Duration) cluster.Duration { return cluster.Duration(d.Round(time.Second)) }

// differences returns the tasks whose node changed, sorted by id.
func differences(before, after map[cluster.TaskID]Place) []api.SimulateTask {
	var out []api.SimulateTask
	for id, p := range after { // order-free: sorted below
		was, had := before[id]
		if had && was.Node == p.Node {
			continue
		}
		t := api.SimulateTask{
			Task: id, Owner: p.Owner, Definition: p.Definition, What: api.SimulatePlaced, From: was.Node, To: p.Node,
			Ports: p.Ports, Devices: p.Devices,
		}
		if had {
			t.What = api.SimulateMoved
		}
		out = append(out, t)
	}
	for id, p := range before { // order-free: sorted below
		if _, has := after[id]; !has {
			out = append(out, api.SimulateTask{
				Task: id, Owner: p.Owner, Definition: p.Definition,
				What: api.SimulateEnded, From: p.Node,
			})
		}
	}
	slices.SortFunc(out, func(a, b api.SimulateTask) int { return cmp.Compare(a.Task, b.Task) })
	return out
}

// finish assembles the answer.
func (r *report) finish(ctx context.Context) (*api.Simulation, error) {
	sim, snap := r.sim, r.world.Snapshot()
	sim.Lasted = roundToSecond(r.lasted)
	sim.Tasks = differences(r.first, r.last)
	sim.Waiting = []api.SimulateWaiting{}
	fresh := 0
	for _, g := range r.world.plane.Waiting() {
		w := api.SimulateWaiting{Refusals: g.Refusals, Sentence: g.Sentence}
		for _, tasks := range g.Tasks {
			for t := range tasks.Each {
				w.Tasks = append(w.Tasks, t)
				if !r.waited[t] {
					w.New++
				}
			}
		}
		fresh += w.New
		sim.Waiting = append(sim.Waiting, w)
	}
	fell := r.addRolloutNotes(snap)
	sim.Fits = fresh == 0 && fell == 0
	if err := r.addSuggestions(ctx); err != nil {
		return nil, err
	}
	if !sim.Settled {
		sim.Notes = append(sim.Notes, fmt.Sprintf("not all came to rest within %v", maxSettleTime))
	}
	r.addNodes(snap)
	if sim.Tasks == nil {
		sim.Tasks = []api.SimulateTask{}
	}
	return sim, nil
}

// maxSuggestedGroups is the number of waiting groups whose first task gets a suggestion.
const maxSuggestedGroups = 3

// addSuggestions adds the smallest changes that would let newly waiting tasks in, in the words of berth explain.
func (r *report) addSuggestions(ctx context.Context) error {
	asked := 0
	for i := range r.sim.Waiting {
		w := &r.sim.Waiting[i]
		at := slices.IndexFunc(w.Tasks, func(t cluster.TaskID) bool { return !r.waited[t] })
		if at < 0 {
			continue
		}
		if asked++; asked > maxSuggestedGroups {
			break
		}
		x, err := r.world.client.ExplainTask(ctx, w.Tasks[at])
		if err != nil {
			return fmt.Errorf("find out what would let %s in: %w", w.Tasks[at], err)
		}
		if len(x.Suggestions) > 0 {
			r.sim.Notes = append(r.sim.Notes, fmt.Sprintf("to place %s: %s", w.Tasks[at], x.Suggestions[0].Text))
		}
	}
	return nil
}

// addRolloutNotes adds notes about rollouts that failed since the start or wait for a promotion, and returns the number
// of failed ones.
func (r *report) addRolloutNotes(snap *store.Snapshot) int {
	n := 0
	for e := range snap.Rollouts() {
		in, name, ok := cutOwner(e.Key)
		for _, v := range append([]cluster.Version{e.Value.Version}, e.Value.History...) {
			if !ok || !isFailed(v.State) || v.Ended.Before(r.sim.At) || r.failed[e.Key] >= v.Generation &&
				r.failed[e.Key] != 0 {
				continue
			}
			n++
			r.sim.Notes = append(r.sim.Notes,
				fmt.Sprintf("the rollout of %s/%s to %s fails: %s", in, name, v.Definition, v.Message))
		}
		if ok && e.Value.State == cluster.RolloutCanary {
			r.sim.Notes = append(r.sim.Notes,
				fmt.Sprintf("the rollout of %s/%s waits until its canaries are promoted", in, name))
		}
	}
	return n
}

// addNodes adds the load of all nodes.
func (r *report) addNodes(snap *store.Snapshot) {
	after := Loads(snap, r.world.config.Domain)
	all := maps.Clone(r.loads)
	maps.Copy(all, after)
	r.sim.Nodes = []api.SimulateNode{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		before, was := r.loads[name]
		now, is := after[name]
		f := r.facts[name]
		n := api.SimulateNode{
			Name: name, State: cluster.NodeDown, Before: before, After: now, Devices: len(f.Devices),
			Total: cluster.Demand{CPU: f.CPU, Memory: f.Memory, Disk: f.Disk},
		}
		if e, ok := snap.Node(name); ok {
			n.State = e.Value.State
		}
		host, _ := snap.Host(name)
		switch {
		case !was:
			n.Change = api.SimulateAdded
		case !is, host.Value != nil && host.Value.Gone:
			n.Change = api.SimulateRemoved
		}
		r.sim.Nodes = append(r.sim.Nodes, n)
	}
}

// cutOwner returns the cluster and the name at the end of a rollout's key.
func cutOwner(key string) (in, name string, ok bool) {
	_, rest, ok := strings.Cut(key, "rollout/")
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "/")
}
