package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
)

// Verdict is one node's answer for a task: a refusal, or the parts of its rank.
type Verdict struct {
	Node    string
	Refusal *cluster.Refusal
	// Parts are the parts of the rank other than 0, the most important first; nil with a Refusal. The first part in
	// which two nodes differ decides: more points are better. All wishes count as one part.
	Parts []Part
	// Wins says that the task would run on this node.
	Wins bool
}

// Part is a part of the rank of a node. More points are better.
type Part struct {
	// Name is one of these, with Points in the unit given:
	//
	//   - "failed", "avoid": -1 for a node that comes last, because attempts failed there or because of a taint.
	//   - "affinity …", "spread …", "relation …": a wish, in thousandths of its weight.
	//   - "data": a copy of the task's own volume, weighed like a wish.
	//   - "siblings": minus the number of the group's tasks.
	//   - "worth": minus the value that its devices lose, in ten-thousandths of a device.
	//   - "balance": minus the steps between free CPU and free memory.
	//   - "images", "fill": millionths of a resource; they are one part. For spread, fill is what stays free, else what
	//     is used.
	//   - "tasks": minus the number of tasks for spread, else the number.
	Name   string
	Points int64
}

// Explain asks every node about one task, in the order of node names. Unlike Schedule it also answers for held tasks,
// and ignores the other members of a gang.
func Explain(f *Fleet, p cluster.Pending, opts Options) []Verdict {
	pending := []cluster.Pending{p}
	pending[0].Gang = ""
	y := newCycle(f, pending, opts)
	y.order = []int32{0}
	y.classify(y.order)
	c := y.taskClassAt[0]
	y.makeRelationViews()
	wins := y.best(c)
	y.prepare(c)
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

// parts returns the parts of a node's rank.
func (y *cycle) parts(c *taskClass, slot int32) (list []Part) {
	add := func(name string, points int64) {
		if points != 0 {
			list = append(list, Part{name, points})
		}
	}
	l := y.load(slot)
	if slices.Contains(c.penalized, slot) {
		add("failed", -1)
	}
	if c.filter.isPenalized(l.class) {
		add("avoid", -1)
	}
	y.wishParts(c, slot, add)
	if c.affinity == cluster.AntiAffinityPrefer {
		add("siblings", -int64(c.group.tasksOn(slot)))
	}
	add("worth", packing.NoLoss-int64(y.valueLoss(c, slot)))
	more := y.shapeShares(c.demand)[y.fleet.catalog.classes[l.class].shape]
	fill, tasks := int64(l.key[byFill]>>taskBits)+int64(more.fill()), int64(l.tasks)
	if c.strategy == cluster.StrategyWhole {
		level := int64(l.key[byBalance]>>levelShift) - balanceZero + int64(more.balance())
		add("balance", -max(level, -level))
	}
	add("images", int64(c.imageBonus(c.present(slot))>>taskBits))
	if c.strategy == cluster.StrategySpread {
		add("fill", 3*parts-fill)
		add("tasks", -tasks)
		return list
	}
	add("fill", fill)
	add("tasks", tasks)
	return list
}

// wishParts adds the points of each wish for the node.
func (y *cycle) wishParts(c *taskClass, slot int32, add func(name string, points int64)) {
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

// spreadPart returns the points of one spread for a node.
func (y *cycle) spreadPart(c *taskClass, t *spreadTerm, slot int32) int64 {
	if t.view.table == nil {
		part, wholes := y.nodePart(t, slot)
		return spreadPoints(int64(t.Weight), int64(t.view.nodes[slot]), int64(c.Count), part, wholes)
	}
	v := t.view.table.of[y.load(slot).class]
	return spreadPoints(int64(t.Weight), int64(t.view.values[v]), int64(c.Count), int64(t.parts[v]), int64(t.wholes))
}

// Blocker is one reason for which a node refuses a task.
type Blocker struct {
	cluster.Refusal
	// Number is the index of the unmet demand: in the Constraints, Distinct, Spread or Relations of the task's
	// placement, in its Devices, or in the node's Taints. It is -1 where no list exists, and where other tasks exclude
	// this one.
	Number int
	// Least is the smallest bound of a distinct or a skew that the node would meet.
	Least int
}

// Blockers returns, for each named node, all reasons for which it refuses the task; none if the node would take it. A
// refusal gives only the first reason. Of ports and devices that are not free, only the first is returned. Like Explain
// it considers the task alone. A node that the fleet lacks gets the code no-nodes.
func Blockers(f *Fleet, p cluster.Pending, nodes []string, opts Options) [][]Blocker {
	pending := []cluster.Pending{p}
	pending[0].Gang = ""
	y := newCycle(f, pending, opts)
	y.order = []int32{0}
	y.classify(y.order)
	c := y.taskClassAt[0]
	y.makeRelationViews()
	y.prepare(c)
	all := make([][]Blocker, len(nodes))
	for i, name := range nodes {
		slot, found := f.search(name)
		if !found {
			all[i] = []Blocker{{Refusal: cluster.Refusal{Code: cluster.ReasonNoNodes}, Number: -1}}
			continue
		}
		all[i] = slices.Concat(nodeBlockers(c, y.node(slot)), y.placementBlockers(c, slot), y.roomBlockers(c, slot))
		r := y.refusal(c, slot)
		// The refusal is of a kind that the lists above do not cover.
		if r.Code != "" && !slices.ContainsFunc(all[i], func(h Blocker) bool { return h.Refusal == r }) {
			all[i] = append(all[i], Blocker{Refusal: r, Number: -1})
		}
	}
	return all
}

// nodeBlockers returns the blockers that do not depend on other tasks: all that nodeRefusal checks, and Only.
func nodeBlockers(c *taskClass, node *Node) (all []Blocker) {
	add := func(code cluster.ReasonCode, detail string, number int) {
		all = append(all, Blocker{Refusal: cluster.Refusal{Code: code, Detail: detail}, Number: number})
	}
	if c.OnlyNode != "" && c.OnlyNode != node.Name {
		all = append(all, Blocker{Refusal: elsewhere(c), Number: -1})
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
	if about := reservedRefusal(c, node); about != "" {
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

// placementBlockers returns the blockers by tasks on the node or near it: unmet terms, anti-affinity, and an earlier
// attempt.
func (y *cycle) placementBlockers(c *taskClass, slot int32) (all []Blocker) {
	add := func(code cluster.ReasonCode, detail string, number, least int) {
		all = append(all, Blocker{Refusal: cluster.Refusal{Code: code, Detail: detail}, Number: number, Least: least})
	}
	near := c.group.tasksOn(slot)
	if slices.Contains(c.excluded, slot) {
		add(cluster.ReasonOldAttempt, "", -1, 0)
	}
	if c.affinity == cluster.AntiAffinityDemand && near > 0 {
		add(cluster.ReasonAntiAffinity, "", -1, 0)
	}
	for i := range c.distincts {
		t := &c.distincts[i]
		if tasks := int(t.view.at(y, slot)); tasks >= t.Most {
			add(cluster.ReasonDistinct, y.unmetTermDetail(c, cluster.ReasonDistinct, int64(i), slot), i, tasks+1)
		}
	}
	for i := range c.spreads {
		t := &c.spreads[i]
		if t.MaxSkew == 0 {
			continue
		}
		tasks, least := t.view.at(y, slot), y.minTasksOf(c, t)
		if least < 0 || least > tasks { // the node is not feasible by itself: count it in all the same
			least = tasks
		}
		if skew := int(tasks + 1 - least); skew > t.MaxSkew {
			add(cluster.ReasonSkew, y.unmetTermDetail(c, cluster.ReasonSkew, int64(i), slot), i, skew)
		}
	}
	for i := range c.relations {
		if t := &c.relations[i]; !t.met(t.at(y, slot)) {
			add(cluster.ReasonRelation, relationText(&t.Relation), i, 0)
		}
	}
	for i := range c.exclusions {
		if c.exclusions[i].at(y, slot) > 0 {
			add(cluster.ReasonRelation, c.exclusions[i].text, -1, 0)
		}
	}
	return all
}

// roomBlockers returns the blockers by what is free on the node.
func (y *cycle) roomBlockers(c *taskClass, slot int32) (all []Blocker) {
	add := func(r cluster.Refusal, number int) { all = append(all, Blocker{Refusal: r, Number: number}) }
	free := y.load(slot).free()
	codes := [...]cluster.ReasonCode{cluster.ReasonShortCPU, cluster.ReasonShortMemory, cluster.ReasonShortDisk}
	for i, short := range [...]int64{
		shortBy(int64(c.demand.CPU), int64(free.CPU)), shortBy(int64(c.demand.Memory), int64(free.Memory)),
		shortBy(int64(c.demand.Disk), int64(free.Disk)),
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
	if code, port := y.portRefusal(c, slot); code != "" {
		add(cluster.Refusal{Code: code, Port: int(port)}, -1)
	}
	return all
}

// shortBy returns how much less is free than demanded; 0 for no demand.
func shortBy(demand, free int64) int64 {
	if demand == 0 {
		return 0
	}
	return demand - free
}

// Value returns a node's value of an attribute, as constraints name it; "" if it has none.
func Value(n *Node, name string) string { return valueOf(n, name) }

// Concerns reports whether a relation of the task own selects the task other, whose owner has the labels.
func Concerns(r cluster.Relation, own, other cluster.TaskID, labels cluster.Labels) bool {
	r = wholeRelation(r, clusterOf(own))
	return relationSelects(&r, clusterOf(other), labels)
}

// Held yields all reservations, in no order. The caller must not change the fleet meanwhile.
func (f *Fleet) Held(yield func(Reservation) bool) {
	for _, r := range f.held { // order-free: the caller sorts
		if !yield(r) {
			return
		}
	}
}
