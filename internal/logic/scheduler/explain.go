package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
)

// Verdict is what one node says to a task: a refusal, or of what its rank is made.
type Verdict struct {
	Node    string
	Refusal *cluster.Refusal
	// Parts are those of its rank, the most important first, but for such of 0 points; nil with a Refusal. Of two nodes
	// that one is better that has more points in the first part in which they differ, where all wishes are one part.
	Parts []Part
	// Wins says that the task would run there.
	Wins bool
}

// Part is a part of the rank of a node. More points are better.
type Part struct {
	// Name is "failed" and "avoid" (-1 for a node that comes last for that), "affinity …", "spread …" and "relation …"
	// (wishes, in thousandths of their weights), "data" (a copy of a volume of its own, weighed as a wish is),
	// "siblings" (less the tasks of the group there), "worth" (less what its devices lose, in ten-thousandths of one),
	// "balance" (less the steps that free CPU and memory would be apart), "images" and "fill" (in millionths of a
	// resource: what is free for who spreads, what is used for others; they are one part), "tasks" (less, or more for
	// who fills nodes).
	Name   string
	Points int64
}

// Explain asks every node about one task, in the order of their names. Unlike Schedule it asks for
// held tasks, too, and does not ask for the others of a gang.
func Explain(f *Fleet, p cluster.Pending, opts Options) []Verdict {
	pending := []cluster.Pending{p}
	pending[0].Gang = ""
	y := newCycle(f, pending, opts)
	y.order = []int32{0}
	y.classify(y.order)
	c := y.classOf[0]
	y.relate()
	wins := y.best(c)
	y.ready(c)
	verdicts := make([]Verdict, 0, f.names.count)
	for slot := range f.names.all {
		v := Verdict{Node: f.name(slot), Wins: slot == wins}
		if r := y.refusal(c, slot); r.Code != "" {
			v.Refusal = &r
		} else {
			v.Parts = y.parts(c, slot)
		}
		verdicts = append(verdicts, v)
	}
	return verdicts
}

// parts takes a rank apart.
func (y *cycle) parts(c *class, slot int32) (list []Part) {
	add := func(name string, points int64) {
		if points != 0 {
			list = append(list, Part{name, points})
		}
	}
	l := y.load(slot)
	if slices.Contains(c.shunned, slot) {
		add("failed", -1)
	}
	if c.sieve.avoids(l.class) {
		add("avoid", -1)
	}
	y.wishParts(c, slot, add)
	if c.affinity == cluster.AntiAffinityPrefer {
		add("siblings", -int64(c.group.near(slot)))
	}
	add("worth", packing.NoLoss-int64(y.lossOf(c, slot)))
	more := y.shapeShares(c.demand)[y.fleet.catalog.classes[l.class].shape]
	fill, tasks := int64(l.key[byFill]>>taskBits)+int64(more.fill()), int64(l.tasks)
	if c.strategy == cluster.StrategyWhole {
		level := int64(l.key[byBalance]>>levelShift) - balanceZero + int64(more.balance())
		add("balance", -max(level, -level))
	}
	add("images", int64(c.imageWorth(c.present(slot))>>taskBits))
	if c.strategy == cluster.StrategySpread {
		add("fill", 3*parts-fill)
		add("tasks", -tasks)
		return list
	}
	add("fill", fill)
	add("tasks", tasks)
	return list
}

// wishParts says what each wish says to the node.
func (y *cycle) wishParts(c *class, slot int32, add func(name string, points int64)) {
	for _, a := range c.Placement.Affinities {
		if a.Weight == 0 {
			a.Weight = cluster.DefaultWeight
		}
		if isCopy(&a) && Matches(a.Constraint, y.node(slot)) {
			add("data", int64(a.Weight)*point)
		} else if Matches(a.Constraint, y.node(slot)) {
			add("affinity "+Text(a.Constraint), int64(a.Weight)*point)
		}
	}
	for i := range c.spreads {
		add("spread "+c.spreads[i].Attribute, y.spreadPart(c, &c.spreads[i], slot))
	}
	for i := range c.relations {
		t := &c.relations[i]
		add("relation "+relationText(&t.Relation), t.pointsFor(t.at(y, slot)))
	}
}

// spreadPart is what one spread says to a node.
func (y *cycle) spreadPart(c *class, t *spreadTerm, slot int32) int64 {
	if t.view.table == nil {
		part, wholes := y.nodePart(t, slot)
		return spreadPoints(int64(t.Weight), int64(t.view.nodes[slot]), int64(c.Count), part, wholes)
	}
	v := t.view.table.of[y.load(slot).class]
	return spreadPoints(int64(t.Weight), int64(t.view.values[v]), int64(c.Count), int64(t.parts[v]), int64(t.wholes))
}

// Hurdle is one thing for which a node refuses a task.
type Hurdle struct {
	cluster.Refusal
	// Number is the index of what is not met: among the Constraints, Distinct, Spread or Relations of the task's
	// placement, its Devices, or the node's Taints; -1 where there is no list, and where others keep the task away.
	Number int
	// Least is the smallest bound of a distinct or a skew that the node would meet.
	Least int
}

// Hurdles asks some nodes about one task. Unlike a refusal, which is the first, the answer is all that stands against
// it on each node, none on those that would take it; of ports and of devices that are not free only what is met first.
// As Explain it looks at the task alone. Nodes that the fleet does not have are answered for with the code no-nodes.
func Hurdles(f *Fleet, p cluster.Pending, nodes []string, opts Options) [][]Hurdle {
	pending := []cluster.Pending{p}
	pending[0].Gang = ""
	y := newCycle(f, pending, opts)
	y.order = []int32{0}
	y.classify(y.order)
	c := y.classOf[0]
	y.relate()
	y.ready(c)
	all := make([][]Hurdle, len(nodes))
	for i, name := range nodes {
		slot, found := f.search(name)
		if !found {
			all[i] = []Hurdle{{Refusal: cluster.Refusal{Code: cluster.ReasonNoNodes}, Number: -1}}
			continue
		}
		all[i] = slices.Concat(barHurdles(c, y.node(slot)), y.nearHurdles(c, slot), y.roomHurdles(c, slot))
		r := y.refusal(c, slot)
		// of a kind that is not known here
		if r.Code != "" && !slices.ContainsFunc(all[i], func(h Hurdle) bool { return h.Refusal == r }) {
			all[i] = append(all[i], Hurdle{Refusal: r, Number: -1})
		}
	}
	return all
}

// barHurdles are those of what the node is, whatever runs there: bars and Only, each of them.
func barHurdles(c *class, node *Node) (all []Hurdle) {
	add := func(code cluster.ReasonCode, detail string, number int) {
		all = append(all, Hurdle{Refusal: cluster.Refusal{Code: code, Detail: detail}, Number: number})
	}
	if c.Only != "" && c.Only != node.Name {
		all = append(all, Hurdle{Refusal: elsewhere(c), Number: -1})
	}
	if node.State != cluster.NodeReady {
		add(cluster.ReasonNodeNotReady, string(node.State), -1)
	}
	if node.Cordon && (node.Drain || !c.Daemon) {
		add(cluster.ReasonCordoned, "", -1)
	}
	if c.Placement.Pool != "" && c.Placement.Pool != node.Pool {
		add(cluster.ReasonPool, node.Pool, -1)
	}
	if about := keptFrom(c, node); about != "" {
		add(cluster.ReasonReserved, about, -1)
	}
	for i, t := range node.Taints {
		if t.Effect != cluster.TaintAvoid && !tolerated(c.Placement.Tolerations, t) {
			add(cluster.ReasonTaint, taintText(t), i)
		}
	}
	if lacksExecutor(c.Pending, node) {
		add(cluster.ReasonNoExecutor, "", -1)
	}
	if lacks := cluster.LacksNetwork(node.Networks, c.Network); lacks != "" {
		add(cluster.ReasonNetwork, lacks, -1)
	}
	for i, constraint := range c.Placement.Constraints {
		if !Matches(constraint, node) {
			add(constraintCode(&constraint), Text(constraint), i)
		}
	}
	return all
}

// nearHurdles are those of the tasks on the node, or near it: what lacks calls breaks, and what is before and beside
// that.
func (y *cycle) nearHurdles(c *class, slot int32) (all []Hurdle) {
	add := func(code cluster.ReasonCode, detail string, number, least int) {
		all = append(all, Hurdle{Refusal: cluster.Refusal{Code: code, Detail: detail}, Number: number, Least: least})
	}
	near := c.group.near(slot)
	if slices.Contains(c.avoided, slot) {
		add(cluster.ReasonOldAttempt, "", -1, 0)
	}
	if c.affinity == cluster.AntiAffinityDemand && near > 0 {
		add(cluster.ReasonAntiAffinity, "", -1, 0)
	}
	for i := range c.distincts {
		t := &c.distincts[i]
		if tasks := int(t.view.at(y, slot)); tasks >= t.Most {
			add(cluster.ReasonDistinct, y.brokenDetail(c, cluster.ReasonDistinct, int64(i), slot), i, tasks+1)
		}
	}
	for i := range c.spreads {
		t := &c.spreads[i]
		if t.MaxSkew == 0 {
			continue
		}
		tasks, least := t.view.at(y, slot), y.leastOf(c, t)
		if least < 0 || least > tasks { // the node is not among those that come into question: as if it were
			least = tasks
		}
		if skew := int(tasks + 1 - least); skew > t.MaxSkew {
			add(cluster.ReasonSkew, y.brokenDetail(c, cluster.ReasonSkew, int64(i), slot), i, skew)
		}
	}
	for i := range c.relations {
		if t := &c.relations[i]; !t.met(t.at(y, slot)) {
			add(cluster.ReasonRelation, relationText(&t.Relation), i, 0)
		}
	}
	for i := range c.guards {
		if c.guards[i].at(y, slot) > 0 {
			add(cluster.ReasonRelation, c.guards[i].text, -1, 0)
		}
	}
	return all
}

// roomHurdles are those of what is free on the node.
func (y *cycle) roomHurdles(c *class, slot int32) (all []Hurdle) {
	add := func(r cluster.Refusal, number int) { all = append(all, Hurdle{Refusal: r, Number: number}) }
	free := y.load(slot).free()
	codes := [...]cluster.ReasonCode{cluster.ReasonShortCPU, cluster.ReasonShortMemory, cluster.ReasonShortDisk}
	for i, short := range [...]int64{
		lacking(int64(c.demand.CPU), int64(free.CPU)), lacking(int64(c.demand.Memory), int64(free.Memory)),
		lacking(int64(c.demand.Disk), int64(free.Disk)),
	} {
		if short > 0 {
			add(cluster.Refusal{Code: codes[i], Short: short}, -1)
		}
	}
	if len(c.requests) > 0 {
		devices := y.node(slot).Devices
		if _, i, used := assign(devices, y.devicesOf(slot), c.requests); i >= 0 {
			text, short := deviceText(devices, used, &c.requests[i])
			number := slices.IndexFunc(c.Devices, func(r cluster.DeviceRequest) bool {
				return sameRequest(wholeRequest(r), c.requests[i])
			})
			add(cluster.Refusal{Code: cluster.ReasonDevice, Detail: text, Short: int64(short)}, number)
		}
	}
	if code, port := y.lacksPorts(c, slot); code != "" {
		add(cluster.Refusal{Code: code, Port: int(port)}, -1)
	}
	return all
}

// lacking is by how much less there is than is asked for; who asks for nothing lacks nothing.
func lacking(demand, free int64) int64 {
	if demand == 0 {
		return 0
	}
	return demand - free
}

// Value returns a node's value for an attribute as constraints name it, "" where it has none.
func Value(n *Node, name string) string { return valueOf(n, name) }

// Concerns reports whether a relation of one task is about another task, whose owner has the labels.
func Concerns(r cluster.Relation, own, other cluster.TaskID, labels cluster.Labels) bool {
	r = wholeRelation(r, clusterOf(own))
	return means(&r, clusterOf(other), labels)
}

// Held yields all reservations, in no order. The fleet must not be changed meanwhile.
func (f *Fleet) Held(yield func(Reservation) bool) {
	for _, r := range f.held { // order-free: the caller's to sort
		if !yield(r) {
			return
		}
	}
}
