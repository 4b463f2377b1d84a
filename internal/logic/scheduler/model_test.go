package scheduler_test

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/logic/scheduler/feasibility"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
)

// world is a fleet as plain lists. Tests build fleets from it, and the model decides on it.
type world struct {
	nodes      []scheduler.Node
	held       []scheduler.Reservation
	valueModel *scheduler.ValueModel
	quota      *cluster.Quota     // of the cluster c
	lender     *cluster.Quota     // of another cluster, which has no tasks
	known      map[asked]spreadOf // while the model decides
}

// fleet builds the fleet of the world.
func (w world) fleet() *scheduler.Fleet {
	f := scheduler.NewFleet()
	f.SetDeviceValueModel(w.valueModel)
	f.Limits.SetQuota("c", w.quota)
	f.Limits.SetQuota("lender", w.lender)
	for _, n := range w.nodes {
		f.SetNode(n)
	}
	for _, r := range w.held {
		f.Reserve(r)
	}
	return f
}

// decide is the model of Schedule: for every task it checks every node, and for every node at every reservation.
// Schedule must give equal results for all inputs.
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
	w.known = map[asked]spreadOf{}
	m := model{world: w, pending: pending, waits: map[int]cluster.Waiting{}, gangs: map[string]bool{}}
	var turns, held []int
	for _, i := range order {
		if p := pending[i]; p.Priority == 0 {
			held = append(held, i)
		} else if !slices.Contains(turns, i) {
			turns = append(turns, i)
			for _, other := range order { // the rest of its gang
				if q := pending[other]; p.Gang != "" && q.Gang == p.Gang && q.Priority > 0 && other != i {
					turns = append(turns, other)
				}
			}
		}
	}
	waiting := m.pass(turns)
	for {
		again := slices.DeleteFunc(slices.Clone(waiting), func(i int) bool {
			return !slices.ContainsFunc(waiting, func(j int) bool {
				return revives(pending[j]) && m.limit(pending[j]).Code == "" &&
					(i == j || pending[i].Gang != "" && pending[i].Gang == pending[j].Gang)
			})
		})
		if keeps := func(i int) bool {
			return m.keeps(m.pending[i]) >= 0
		}; len(again) > 0 && slices.ContainsFunc(waiting, keeps) {
			again = slices.Clone(waiting)
			for _, i := range again {
				m.unkeep(i)
			}
		}
		before := len(m.res.Placements)
		left := m.pass(again)
		if len(m.res.Placements) == before {
			break
		}
		waiting = slices.DeleteFunc(waiting, func(i int) bool {
			return slices.Contains(again, i) && !slices.Contains(left, i)
		})
	}
	for _, i := range append(waiting, held...) {
		if waits, found := m.waits[i]; found {
			m.res.Waiting = append(m.res.Waiting, waits)
		} else {
			all := m.held
			m.unkeep(i)
			m.res.Waiting = append(m.res.Waiting, m.explain(pending[i]))
			m.held = all
		}
	}
	return m.res
}

// model is a world while tasks are placed on it.
type model struct {
	world
	pending []cluster.Pending
	res     scheduler.Result
	waits   map[int]cluster.Waiting
	gangs   map[string]bool // those of which enough members are placed
	// borrows says that tasks which borrow have their turns. Else these are put off, and deferred lists them.
	borrows  bool
	deferred []int
}

// revives reports whether the placement of another task can make a node feasible for the task.
func revives(p cluster.Pending) bool {
	return slices.ContainsFunc(p.Placement.Spread, func(s cluster.Spread) bool { return s.MaxSkew > 0 }) ||
		slices.ContainsFunc(p.Placement.Relations, func(r cluster.Relation) bool { return r.Required && !r.Away })
}

// pass gives each task its turn, those last that borrow, and returns the tasks that wait in their order in turns.
func (m *model) pass(turns []int) (waiting []int) {
	all := turns
	waiting = m.turns(turns)
	turns = slices.DeleteFunc(slices.Clone(all), func(i int) bool { return !slices.Contains(m.deferred, i) })
	m.borrows, m.deferred = true, nil
	waiting = append(waiting, m.turns(turns)...)
	m.borrows = false
	return slices.DeleteFunc(slices.Clone(all), func(i int) bool { return !slices.Contains(waiting, i) })
}

// turns gives each task its turn, and returns the tasks that wait.
func (m *model) turns(turns []int) (waiting []int) {
	for len(turns) > 0 {
		n := 1
		for gang := m.pending[turns[0]].Gang; gang != "" && n < len(turns) && m.pending[turns[n]].Gang == gang; {
			n++
		}
		waiting = append(waiting, m.unit(turns[:n])...)
		turns = turns[n:]
	}
	return waiting
}

// unit places a task, or at least the size of a gang, or nothing.
func (m *model) unit(tasks []int) (waiting []int) {
	for _, i := range tasks {
		m.unkeep(i)
	}
	defer func() { m.keep(waiting) }()
	size, held, placed := 0, len(m.held), len(m.res.Placements)
	for _, i := range tasks {
		if gang := m.pending[i].Gang; gang != "" && !m.gangs[gang] {
			size = max(size, m.pending[i].GangSize)
		}
	}
	var deferred []int
	defer func() { m.deferred = append(m.deferred, deferred...) }()
	var others []cluster.RefusalCount
	detail := fmt.Sprintf("%d of %d tasks wait for places", len(tasks), size)
	if len(tasks) >= size {
		for _, i := range tasks {
			if _, borrows := m.judge(m.pending[i]); borrows && !m.borrows {
				deferred = append(deferred, i)
			} else if !m.place(i) {
				waiting = append(waiting, i)
			}
		}
		found := len(m.res.Placements) - placed
		if found >= size {
			for _, i := range waiting {
				delete(m.waits, i)
			}
			m.gangs[m.pending[tasks[0]].Gang] = true
			return waiting
		}
		if len(deferred) > 0 {
			m.held, m.res.Placements = m.held[:held], m.res.Placements[:placed]
			clear(m.known)
			deferred = tasks
			return nil
		}
		others = m.explain(m.pending[waiting[0]]).Refusals
		detail = fmt.Sprintf("%d of %d tasks find places", found, size)
	}
	m.held, m.res.Placements = m.held[:held], m.res.Placements[:placed]
	clear(m.known)
	others = append([]cluster.RefusalCount{{Refusal: cluster.Refusal{Code: cluster.ReasonGang, Detail: detail}}},
		others...)
	for _, i := range tasks {
		m.waits[i] = cluster.Waiting{Task: m.pending[i].Task, Refusals: others, Sentence: scheduler.Sentence(others)}
	}
	return tasks
}

// place places a task on the best feasible node, if any.
func (m *model) place(i int) bool {
	p, best := m.pending[i], -1
	if m.limit(p).Code != "" {
		return false
	}
	for n := range m.nodes {
		if m.refusal(n, p).Code == "" &&
			(best < 0 || m.nodes[best].Name != p.Promised && (m.nodes[n].Name == p.Promised || m.better(n, best, p))) {
			best = n
		}
	}
	if best < 0 {
		return false
	}
	pl := scheduler.Placement{Pending: i, Task: p.Task, Node: m.nodes[best].Name, Ports: m.assign(best, p)}
	pl.Devices, _ = m.devices(best, p)
	if uses := m.devicesByValue(best, p); uses != nil {
		pl.Devices = uses
	}
	clear(m.known)
	m.held = append(m.held, pl.Reservation(&p, ""))
	m.res.Placements = append(m.res.Placements, pl)
	return true
}

// limit returns the limit of its cluster that refuses the task, or the zero value.
func (w world) limit(p cluster.Pending) (r cluster.Refusal) {
	r, _ = w.judge(p)
	return r
}

// more returns how far a task may exceed limits of CPU, GPUs and tasks at all, and now.
func (w world) more(p cluster.Pending) (most, now [3]int) {
	if w.quota.Borrow == nil || p.Owner.Kind != cluster.KindJob {
		return most, now
	}
	of := func(cpu cluster.MilliCPU, devices map[string]int, tasks int) [3]int {
		return [3]int{int(cpu), 1000 * devices["gpu"], tasks}
	}
	most = of(w.quota.Borrow.CPU, w.quota.Borrow.Devices, w.quota.Borrow.Tasks)
	if l := w.lender; l != nil && l.Lends() {
		for i, n := range of(l.CPU, l.Devices, l.Tasks) {
			now[i] = min(n, most[i])
		}
	}
	return most, now
}

// exceeding says how a task exceeds a limit that it may exceed.
func exceeding(text string, most, used, limit, more int, format func(int) string) string {
	if most == 0 {
		return text
	}
	borrowed := max(used-limit, 0)
	return fmt.Sprintf("%s (%s borrowed, %s more can be)", text, format(borrowed), format(max(more-borrowed, 0)))
}

// judge returns the limit of its cluster that refuses the task, or the zero value, and whether the task borrows.
func (w world) judge(p cluster.Pending) (r cluster.Refusal, borrows bool) {
	var cpu cluster.MilliCPU
	tasks, jobs, group, replaces, gpu := map[cluster.TaskID]bool{}, map[string]bool{}, 0, false, 0
	count := func(task cluster.TaskID, d cluster.Demand, requests []cluster.DeviceRequest) {
		tasks[task], cpu = true, cpu+max(d.CPU, 0)
		if parts, ok := task.Parts(); ok && parts.Step != "" {
			jobs[parts.Owner] = true
		}
		for _, request := range requests {
			if cmp.Or(request.Type, cluster.DefaultDeviceType) == "gpu" {
				gpu += cmp.Or(request.Share, 1000*max(request.Count, 1))
			}
		}
	}
	for _, h := range w.held {
		if h.Task == "" { // room that is kept
			continue
		}
		replaces = replaces || h.Task == p.Task
		count(h.Task, h.Demand, h.Requests)
		if p.Concurrency != nil && h.Group == p.Concurrency.Group {
			group++
		}
	}
	if replaces {
		return r, false
	}
	if q := w.quota; q != nil {
		had, wasCPU, wasGPU := len(jobs), cpu, gpu
		count(p.Task, p.Demand, p.Devices)
		var short []string
		add := func(exceeds bool, text string) {
			if exceeds {
				short = append(short, text)
			}
		}
		most, more := w.more(p)
		cpus := func(n int) string { return cluster.MilliCPU(n).String() }
		gpus := func(n int) string { return fmt.Sprint(float64(n) / 1000) }
		limit := func(i int, name string, need, used, limit int, format func(int) string) {
			if need <= 0 || used+need <= limit {
				return
			}
			if used+need <= limit+more[i] {
				borrows = true
				return
			}
			text := fmt.Sprintf("%s %s needed, %s of %s used", name, format(need), format(used), format(limit))
			text = exceeding(text, most[i], used, limit, more[i], format)
			if need > limit+most[i] {
				text = fmt.Sprintf("%s %s needed, %s allowed", name, format(need), format(limit+most[i]))
				if most[i] > 0 {
					text += fmt.Sprintf(" with %s borrowed", format(most[i]))
				}
			}
			add(true, text)
		}
		if q.CPU > 0 {
			limit(0, "cpu", int(p.Demand.CPU), int(wasCPU), int(q.CPU), cpus)
		}
		if n, limited := q.Devices["gpu"]; limited {
			limit(1, "gpu", gpu-wasGPU, wasGPU, 1000*n, gpus)
		}
		if q.Tasks > 0 {
			limit(2, "tasks", 1, len(tasks)-1, q.Tasks, func(n int) string { return fmt.Sprint(n) })
		}
		add(q.Jobs > 0 && len(jobs) > had && len(jobs) > q.Jobs,
			fmt.Sprintf("jobs 1 needed, %d of %d used", had, q.Jobs))
		if len(short) > 0 {
			return cluster.Refusal{
				Code: cluster.ReasonQuota, Detail: "quota of cluster c: " + strings.Join(short, ", "),
			}, false
		}
	}
	if p.Concurrency != nil && group >= p.Concurrency.Limit {
		r.Code = cluster.ReasonConcurrency
		r.Detail = fmt.Sprintf("concurrency group %s: tasks 1 needed, %d of %d used", p.Concurrency.Group, group,
			p.Concurrency.Limit)
		return r, false
	}
	return r, borrows
}

// refusal returns why node n refuses the task, in the documented order of reasons.
func (w world) refusal(n int, p cluster.Pending) cluster.Refusal {
	node := w.nodes[n]
	if p.OnlyNode != "" && p.OnlyNode != node.Name {
		return cluster.Refusal{Code: cluster.ReasonConstraint, Detail: "node.name = " + p.OnlyNode}
	}
	if node.State != cluster.NodeReady {
		return cluster.Refusal{Code: cluster.ReasonNodeNotReady, Detail: string(node.State)}
	}
	if node.Drain || node.Cordon && !p.Daemon {
		return cluster.Refusal{Code: cluster.ReasonCordoned}
	}
	if p.Placement.Pool != "" && p.Placement.Pool != node.Pool {
		return cluster.Refusal{Code: cluster.ReasonPool, Detail: node.Pool}
	}
	if r := reservedFrom(node, p); r.Code != "" {
		return r
	}
	for _, t := range node.Taints {
		if t.Effect != cluster.TaintAvoid && !tolerates(p, t) {
			text := t.Key
			if t.Value != "" {
				text += "=" + t.Value
			}
			return cluster.Refusal{Code: cluster.ReasonTaint, Detail: text}
		}
	}
	if !runs(node.Executors, p) {
		return cluster.Refusal{Code: cluster.ReasonNoExecutor}
	}
	for _, c := range p.Placement.Constraints {
		if !w.matches(n, c) {
			code := cluster.ReasonConstraint
			if _, about := w.folder(n, c); about {
				code = cluster.ReasonVolume
			}
			return cluster.Refusal{Code: code, Detail: feasibility.Text(c)}
		}
	}
	if r := w.volumeRefusal(n, p); r.Code != "" {
		return r
	}
	if slices.Contains(p.ExcludedNodes, node.Name) {
		return cluster.Refusal{Code: cluster.ReasonOldAttempt}
	}
	if p.Placement.AntiAffinity == cluster.AntiAffinityDemand && w.siblings(n, p) > 0 {
		return cluster.Refusal{Code: cluster.ReasonAntiAffinity}
	}
	if r := w.demandRefusal(n, p); r.Code != "" {
		return r
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
	if _, r := w.devices(n, p); r.Code != "" {
		return r
	}
	return w.portRefusal(n, p)
}

func (w world) portRefusal(n int, p cluster.Pending) cluster.Refusal {
	taken, requested := w.taken(n), map[int]bool{}
	for _, port := range p.Ports {
		if port.Port != 0 && requested[port.Port] {
			return cluster.Refusal{
				Code: cluster.ReasonPort, Port: port.Port,
				Detail: fmt.Sprintf("the task requests port %d twice", port.Port),
			}
		}
		requested[port.Port] = true
	}
	for _, port := range p.Ports {
		if port.Port != 0 && taken[port.Port] {
			r := cluster.Refusal{Code: cluster.ReasonPort, Port: port.Port}
			if slices.Contains(w.nodes[n].ReservedPorts, port.Port) {
				r.Detail = fmt.Sprintf("port %d reserved", port.Port)
			}
			return r
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
	at := fleet.FirstPort(p.Task, p.Attempt)
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
	strategy := p.Placement.Strategy
	switch {
	case strategy != "":
	case len(p.Devices) > 0:
		strategy = cluster.StrategyWhole
	case p.Owner.Kind == cluster.KindJob:
		strategy = cluster.StrategyBinpack
	default:
		strategy = cluster.StrategySpread
	}
	if failedA, failedB := slices.Contains(p.PenalizedNodes, w.nodes[a].Name), slices.Contains(p.PenalizedNodes,
		w.nodes[b].Name); failedA != failedB {
		return failedB
	}
	if avoidA, avoidB := w.tainted(a, p), w.tainted(b, p); avoidA != avoidB {
		return avoidB
	}
	if d := w.points(a, p) - w.points(b, p); d != 0 {
		return d > 0
	}
	affinity := p.Placement.AntiAffinity
	if affinity == cluster.AntiAffinityPrefer || affinity == "" && strategy == cluster.StrategySpread {
		if d := w.siblings(a, p) - w.siblings(b, p); d != 0 {
			return d < 0
		}
	}
	if d := int64(w.loss(a, p)) - int64(w.loss(b, p)); d != 0 {
		return d < 0
	}
	if strategy == cluster.StrategyWhole {
		if d := w.imbalance(a, p) - w.imbalance(b, p); d != 0 {
			return d < 0
		}
	}
	full, tasks := w.fill(a, p)-w.fill(b, p), w.count(a)-w.count(b)
	if strategy != cluster.StrategySpread {
		full, tasks = -full, -tasks
	}
	full -= w.imageBonus(a, p) - w.imageBonus(b, p)
	if full != 0 {
		return full < 0
	}
	if tasks != 0 {
		return tasks < 0
	}
	return w.nodes[a].Name < w.nodes[b].Name
}

// fill returns the fill of the node with the task, in millionths of each resource.
func (w world) fill(n int, p cluster.Pending) int64 {
	has, used := w.nodes[n].Capacity, w.used(n)
	full := int64(0)
	for _, d := range []cluster.Demand{used, p.Demand} {
		full += inParts(int64(d.CPU), int64(has.CPU)) + inParts(int64(d.Memory), int64(has.Memory)) +
			inParts(int64(d.Disk), int64(has.Disk))
	}
	return full
}

// imbalance returns the distance of free CPU and memory, in steps of 1/32 of the node.
func (w world) imbalance(n int, p cluster.Pending) int64 {
	has, steps := w.nodes[n].Capacity, int64(0)
	for _, d := range []cluster.Demand{w.used(n), p.Demand} {
		more := inParts(int64(d.CPU), int64(has.CPU)) - inParts(int64(d.Memory), int64(has.Memory))
		steps += int64(math.Floor(float64(more) * 32 / 1_000_000))
	}
	return max(steps, -steps)
}

// inParts returns an amount in millionths of a capacity that is rounded to its six highest binary digits.
func inParts(amount, of int64) int64 {
	if of <= 0 {
		return 0
	}
	digits := int64(1)
	for of/digits >= 64 {
		digits *= 2
	}
	n := new(big.Int).Mul(big.NewInt(amount), big.NewInt(1_000_000))
	return min(n.Div(n, big.NewInt(of/digits*digits)).Int64(), 8_000_000)
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
		if r.Node == w.nodes[n].Name && r.Task != "" {
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

// sibling reports whether a reservation counts for the anti-affinity of a pending task. It belongs to the same step of
// a job, or has the same definition of a service on the same side of the last restart. If the definition is unknown, it
// has the same generation.
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

// explain groups the refusals of all nodes, the most frequent first.
func (w world) explain(p cluster.Pending) cluster.Waiting {
	type kind struct {
		code   cluster.ReasonCode
		detail string
		port   int
	}
	if r := w.limit(p); r.Code != "" && p.Priority > 0 {
		counts := []cluster.RefusalCount{{Refusal: r}}
		return cluster.Waiting{Task: p.Task, Refusals: counts, Sentence: scheduler.Sentence(counts)}
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
