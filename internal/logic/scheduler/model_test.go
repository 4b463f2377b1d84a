package scheduler_test

import (
	"cmp"
	"math/big"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// world is a fleet as plain lists: what a test builds fleets from, and what the model
// decides on.
type world struct {
	nodes []scheduler.Node
	held  []scheduler.Reservation
}

// fleet builds the fleet of the world.
func (w world) fleet() *scheduler.Fleet {
	f := scheduler.NewFleet()
	for _, n := range w.nodes {
		f.SetNode(n)
	}
	for _, r := range w.held {
		f.Reserve(r)
	}
	return f
}

// decide is the model of Schedule: for every task it looks at every node, and for every node at
// every reservation. Schedule must give the same for all inputs.
func (w world) decide(pending []cluster.Pending) scheduler.Result {
	w.nodes, w.held = slices.Clone(w.nodes), slices.Clone(w.held)
	slices.SortFunc(w.nodes, func(a, b scheduler.Node) int { return cmp.Compare(a.Name, b.Name) })
	order := make([]int, len(pending))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := pending[i], pending[j]
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Since.Compare(b.Since), cmp.Compare(a.Task, b.Task))
	})
	var res scheduler.Result
	var waiting []int
	for _, i := range order {
		p := pending[i]
		best := -1
		for n := range w.nodes {
			if w.refusal(n, p).Code == "" && (best < 0 || w.better(n, best, p)) {
				best = n
			}
		}
		if best < 0 || p.Priority == 0 {
			waiting = append(waiting, i)
			continue
		}
		pl := scheduler.Placement{Pending: i, Task: p.Task, Node: w.nodes[best].Name, Ports: w.assign(best, p)}
		w.held = append(w.held, pl.Reservation(&p, ""))
		res.Placements = append(res.Placements, pl)
	}
	for _, i := range waiting {
		res.Waiting = append(res.Waiting, w.explain(pending[i]))
	}
	return res
}

// refusal says why node n does not take the task, in the documented order of reasons.
func (w world) refusal(n int, p cluster.Pending) cluster.Refusal {
	node := w.nodes[n]
	if p.Only != "" && p.Only != node.Name {
		return cluster.Refusal{Code: cluster.ReasonConstraint, Detail: "node.name = " + p.Only}
	}
	if node.State != cluster.NodeReady {
		return cluster.Refusal{Code: cluster.ReasonNodeNotReady, Detail: string(node.State)}
	}
	if node.Drain || node.Cordon && !p.Daemon {
		return cluster.Refusal{Code: cluster.ReasonCordoned}
	}
	if len(node.Executors) == 0 || p.NeedsImage && !slices.Contains(node.Executors, "containerd") {
		return cluster.Refusal{Code: cluster.ReasonNoExecutor}
	}
	for _, c := range p.Placement.Constraints {
		if !scheduler.Matches(c, &node) {
			return cluster.Refusal{Code: cluster.ReasonConstraint, Detail: scheduler.Text(c)}
		}
	}
	if slices.Contains(p.Avoid, node.Name) {
		return cluster.Refusal{Code: cluster.ReasonOldAttempt}
	}
	if p.Placement.AntiAffinity == cluster.AntiAffinityDemand && w.siblings(n, p) > 0 {
		return cluster.Refusal{Code: cluster.ReasonAntiAffinity}
	}
	after := w.used(n).Add(p.Demand)
	short := after.Sub(node.Capacity)
	if p.Demand.CPU > 0 && short.CPU > 0 {
		return cluster.Refusal{Code: cluster.ReasonShortCPU, Short: int64(short.CPU)}
	}
	if p.Demand.Memory > 0 && short.Memory > 0 {
		return cluster.Refusal{Code: cluster.ReasonShortMemory, Short: int64(short.Memory)}
	}
	if p.Demand.Disk > 0 && short.Disk > 0 {
		return cluster.Refusal{Code: cluster.ReasonShortDisk, Short: int64(short.Disk)}
	}
	return w.portRefusal(n, p)
}

func (w world) portRefusal(n int, p cluster.Pending) cluster.Refusal {
	taken := w.taken(n)
	for _, port := range p.Ports {
		if port.Port != 0 && taken[port.Port] {
			return cluster.Refusal{Code: cluster.ReasonPort, Port: port.Port}
		}
		taken[port.Port] = true
	}
	free := 0
	for port := cluster.FirstAutoPort; port <= cluster.LastAutoPort; port++ {
		if !taken[port] {
			free++
		}
	}
	for _, port := range p.Ports {
		if port.Port == 0 {
			free--
		}
	}
	if free < 0 && slices.ContainsFunc(p.Ports, func(p cluster.Port) bool { return p.Port == 0 }) {
		return cluster.Refusal{Code: cluster.ReasonPortsSpent}
	}
	return cluster.Refusal{}
}

// assign finds the numbers of a task's ports, one at a time.
func (w world) assign(n int, p cluster.Pending) map[string]int {
	if len(p.Ports) == 0 {
		return nil
	}
	taken, ports := w.taken(n), map[string]int{}
	for _, port := range p.Ports {
		if port.Port != 0 {
			taken[port.Port] = true
			ports[port.Name] = port.Port
		}
	}
	at := scheduler.FirstPort(p.Task, p.Attempt)
	for _, port := range p.Ports {
		if port.Port != 0 {
			continue
		}
		for taken[at] {
			if at++; at > cluster.LastAutoPort {
				at = cluster.FirstAutoPort
			}
		}
		taken[at] = true
		ports[port.Name] = at
	}
	return ports
}

// better reports whether node a ranks before node b for the task.
func (w world) better(a, b int, p cluster.Pending) bool {
	pack := p.Placement.Strategy == cluster.StrategyBinpack ||
		p.Placement.Strategy == "" && p.Owner.Kind == cluster.KindJob
	if shunA, shunB := slices.Contains(p.Shun, w.nodes[a].Name), slices.Contains(p.Shun, w.nodes[b].Name); shunA != shunB {
		return shunB
	}
	affinity := p.Placement.AntiAffinity
	if affinity == cluster.AntiAffinityPrefer || affinity == "" && !pack {
		if d := w.siblings(a, p) - w.siblings(b, p); d != 0 {
			return d < 0
		}
	}
	full, tasks := w.fill(a, p)-w.fill(b, p), w.count(a)-w.count(b)
	if pack {
		full, tasks = -full, -tasks
	}
	if full != 0 {
		return full < 0
	}
	if tasks != 0 {
		return tasks < 0
	}
	return w.nodes[a].Name < w.nodes[b].Name
}

// fill is how full the node would be with the task, in millionths of each resource.
func (w world) fill(n int, p cluster.Pending) int64 {
	after, has := w.used(n).Add(p.Demand), w.nodes[n].Capacity
	share := func(used, of int64) int64 {
		if of <= 0 {
			return 0
		}
		parts := new(big.Int).Mul(big.NewInt(used), big.NewInt(1_000_000))
		return min(parts.Div(parts, big.NewInt(of)).Int64(), 1_000_000)
	}
	return share(int64(after.CPU), int64(has.CPU)) + share(int64(after.Memory), int64(has.Memory)) +
		share(int64(after.Disk), int64(has.Disk))
}

func (w world) used(n int) (d cluster.Demand) {
	for _, r := range w.held {
		if r.Node == w.nodes[n].Name {
			d = d.Add(r.Demand)
		}
	}
	return d
}

func (w world) count(n int) (tasks int) {
	for _, r := range w.held {
		if r.Node == w.nodes[n].Name {
			tasks++
		}
	}
	return tasks
}

func (w world) siblings(n int, p cluster.Pending) (tasks int) {
	for _, r := range w.held {
		if r.Node == w.nodes[n].Name && sibling(r, p) {
			tasks++
		}
	}
	return tasks
}

// sibling reports whether what is reserved is a task that the pending one keeps away from: of a job one of the same step, of a
// service one of the same definition, and on the same side of the last restart. Where a definition is not known, it is one of
// the same generation.
func sibling(r scheduler.Reservation, p cluster.Pending) bool {
	a, okA := r.Task.Parts()
	b, okB := p.Task.Parts()
	switch {
	case !okA || !okB || a.Cluster != b.Cluster || a.Owner != b.Owner || a.Step != b.Step:
		return false
	case a.Step != "" || r.Definition.Name == "":
		return a.Generation == b.Generation
	}
	return r.Definition == p.Definition && (a.Generation >= p.Restarted) == (b.Generation >= p.Restarted)
}

func (w world) taken(n int) map[int]bool {
	taken := map[int]bool{}
	for _, p := range w.nodes[n].ReservedPorts {
		taken[p] = true
	}
	for _, r := range w.held {
		if r.Node == w.nodes[n].Name {
			for _, p := range r.Ports {
				taken[p] = true
			}
		}
	}
	return taken
}

// explain groups the refusals of all nodes, the most shared first.
func (w world) explain(p cluster.Pending) cluster.Waiting {
	type kind struct {
		code   cluster.ReasonCode
		detail string
		port   int
	}
	byKind := map[kind]cluster.RefusalCount{}
	for n := range w.nodes {
		r := w.refusal(n, p)
		k := kind{r.Code, r.Detail, r.Port}
		c, found := byKind[k]
		if !found || r.Short < c.Short {
			c.Refusal = r
		}
		c.Nodes++
		byKind[k] = c
	}
	var counts []cluster.RefusalCount
	for _, c := range byKind {
		counts = append(counts, c)
	}
	slices.SortFunc(counts, func(a, b cluster.RefusalCount) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Code, b.Code),
			cmp.Compare(a.Detail, b.Detail), cmp.Compare(a.Port, b.Port))
	})
	if len(w.nodes) == 0 {
		counts = []cluster.RefusalCount{{Refusal: cluster.Refusal{Code: cluster.ReasonNoNodes}}}
	}
	if p.Priority == 0 {
		counts = []cluster.RefusalCount{{Refusal: cluster.Refusal{Code: cluster.ReasonHold}}}
	}
	return cluster.Waiting{Task: p.Task, Refusals: counts, Sentence: scheduler.Sentence(counts)}
}
