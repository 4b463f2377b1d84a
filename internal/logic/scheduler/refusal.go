package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// elsewhere is the refusal of all nodes but the one that the class is restricted to.
func elsewhere(c *taskClass) cluster.Refusal {
	return cluster.Refusal{
		Code:   cluster.ReasonConstraint,
		Detail: Text(cluster.Constraint{Attribute: "node.name", Op: cluster.OpEqual, Value: c.OnlyNode}),
	}
}

// loadRefusal returns why the node refuses the class because of what runs now, or no code. The number says how much is
// short, which port is taken, or the index of the demand.
func (y *cycle) loadRefusal(c *taskClass, slot int32) (cluster.ReasonCode, int64) {
	if c.affinity == cluster.AntiAffinityDemand && c.group.tasksOn(slot) > 0 {
		return cluster.ReasonAntiAffinity, 0
	}
	if code, number := y.unmetTerm(c, slot); code != "" {
		return code, number
	}
	l := y.load(slot)
	if d := c.demand.CPU; d > 0 && l.used.CPU+d > l.capacity.CPU {
		return cluster.ReasonShortCPU, int64(l.used.CPU + d - l.capacity.CPU)
	}
	if d := c.demand.Memory; d > 0 && l.used.Memory+d > l.capacity.Memory {
		return cluster.ReasonShortMemory, int64(l.used.Memory + d - l.capacity.Memory)
	}
	if d := c.demand.Disk; d > 0 && l.used.Disk+d > l.capacity.Disk {
		return cluster.ReasonShortDisk, int64(l.used.Disk + d - l.capacity.Disk)
	}
	if y.missesDevices(c, slot) {
		return cluster.ReasonDevice, 0
	}
	return y.portRefusal(c, slot)
}

// portRefusal is loadRefusal for ports.
func (y *cycle) portRefusal(c *taskClass, slot int32) (cluster.ReasonCode, int64) {
	if len(c.fixed) == 0 && c.auto == 0 {
		return "", 0
	}
	if c.doubledPort != 0 {
		return cluster.ReasonPort, int64(c.doubledPort)
	}
	ports := y.portsOf(slot)
	if ports == nil {
		ports = &portSet{}
	}
	for _, p := range c.fixed {
		if ports.has(p) {
			return cluster.ReasonPort, int64(p)
		}
	}
	if c.auto > 0 && ports.autoUsed+c.autoFixed+c.auto > autoPorts {
		return cluster.ReasonPortsSpent, 0
	}
	return "", 0
}

// refusal returns why the node refuses the class, for users; without a code if the node is feasible.
func (y *cycle) refusal(c *taskClass, slot int32) cluster.Refusal {
	node := y.node(slot)
	if c.OnlyNode != "" && c.OnlyNode != node.Name {
		return elsewhere(c)
	}
	if code, about := nodeRefusal(c, node, nil); code != "" {
		return cluster.Refusal{Code: code, Detail: about}
	}
	if slices.Contains(c.excluded, slot) {
		return cluster.Refusal{Code: cluster.ReasonOldAttempt}
	}
	code, amount := y.loadRefusal(c, slot)
	switch code {
	case cluster.ReasonPort:
		return cluster.Refusal{Code: code, Port: int(amount)}
	case cluster.ReasonDevice:
		_, lacking, used := assign(node.Devices, y.devicesOf(slot), c.requests)
		text, short := deviceText(node.Devices, used, &c.requests[lacking])
		return cluster.Refusal{Code: code, Detail: text, Short: int64(short)}
	case cluster.ReasonDistinct, cluster.ReasonSkew, cluster.ReasonRelation:
		return cluster.Refusal{Code: code, Detail: y.unmetTermDetail(c, code, amount, slot)}
	default:
		return cluster.Refusal{Code: code, Short: amount}
	}
}

// explain returns why a task of the class waits. It finds the reasons once for each class.
func (y *cycle) explain(c *taskClass, task cluster.TaskID) cluster.Waiting {
	if c.refusals == nil {
		y.prepare(c)
		c.refusals = y.findRefusals(c)
		slices.SortFunc(c.refusals, byNodeCount)
		c.sentence = Sentence(c.refusals)
	}
	return cluster.Waiting{Task: task, Refusals: c.refusals, Sentence: c.sentence}
}

// findRefusals counts the refusals of all nodes. Node classes whose nodes all refuse for one reason are counted at
// once.
func (y *cycle) findRefusals(c *taskClass) (counts []cluster.RefusalCount) {
	nodes := y.fleet.names.count
	if nodes == 0 {
		return []cluster.RefusalCount{{Refusal: cluster.Refusal{Code: cluster.ReasonNoNodes}}}
	}
	if c.OnlyNode != "" {
		if slot, found := y.fleet.search(c.OnlyNode); found {
			counts = tally(counts, y.refusal(c, slot), 1)
			nodes--
		}
		if nodes > 0 {
			counts = tally(counts, elsewhere(c), nodes)
		}
		return counts
	}
	s := y.filterOf(c)
	simple, short := y.simple(c), shortage{need: c.need}
	for i := range y.fleet.catalog.classes {
		class := &y.fleet.catalog.classes[i]
		if class.count == 0 {
			continue
		}
		if !s.isFeasible[i] && len(s.perNode) == 0 { // one refusal for the whole node class
			code, about := nodeRefusal(c, &class.like, nil)
			counts = tally(counts, cluster.Refusal{Code: code, Detail: about}, class.count)
			continue
		}
		if simple {
			short.addPage(y.tree(byFill, int32(i)).page)
			continue
		}
		y.visit(y.fleet.catalog.trees[byFill][i].page, func(slot int32) {
			counts = tally(counts, y.refusal(c, slot), 1)
		})
	}
	return short.appendTo(counts)
}

// simple reports whether the class asks for nothing but room on nodes of feasible node classes.
func (y *cycle) simple(c *taskClass) bool {
	return c.affinity != cluster.AntiAffinityDemand &&
		len(c.filter.perNode)+len(c.fixed)+c.auto+len(c.excluded)+len(c.requests)+
			len(c.distincts)+len(c.spreads)+len(c.relations)+len(c.exclusions) == 0
}

// shortage counts nodes with too little free, by the first resource that is short, and keeps the smallest shortage of
// each.
type shortage struct {
	need  cluster.Demand
	nodes [3]int // by resource: CPU, memory, disk
	least [3]int64
}

func (s *shortage) add(resource, nodes int, missing int64) {
	if s.nodes[resource] == 0 || missing < s.least[resource] {
		s.least[resource] = missing
	}
	s.nodes[resource] += nodes
}

// addPage adds the nodes below a page. Pages on which no node has the CPU are added at once.
func (s *shortage) addPage(p *page) {
	if p == nil {
		return
	}
	for i := range p.children {
		if k := &p.children[i]; s.need.CPU > k.maxFree.CPU {
			s.add(0, k.page.nodes(), int64(s.need.CPU-k.maxFree.CPU))
		} else {
			s.addPage(k.page)
		}
	}
	for i := range p.entries {
		switch free := &p.entries[i].free; {
		case s.need.CPU > free.CPU:
			s.add(0, 1, int64(s.need.CPU-free.CPU))
		case s.need.Memory > free.Memory:
			s.add(1, 1, int64(s.need.Memory-free.Memory))
		case s.need.Disk > free.Disk:
			s.add(2, 1, int64(s.need.Disk-free.Disk))
		}
	}
}

func (s *shortage) appendTo(counts []cluster.RefusalCount) []cluster.RefusalCount {
	for resource, code := range []cluster.ReasonCode{
		cluster.ReasonShortCPU, cluster.ReasonShortMemory,
		cluster.ReasonShortDisk,
	} {
		if s.nodes[resource] > 0 {
			counts = tally(counts, cluster.Refusal{Code: code, Short: s.least[resource]}, s.nodes[resource])
		}
	}
	return counts
}

// tally adds the refusal of more nodes. Refusals that differ only in the amount short are counted as one with the least
// amount: the smallest help that would admit the task somewhere.
func tally(counts []cluster.RefusalCount, r cluster.Refusal, nodes int) []cluster.RefusalCount {
	for i := range counts {
		c := &counts[i]
		if c.Code == r.Code && c.Port == r.Port && c.Detail == r.Detail {
			c.Short = min(c.Short, r.Short)
			c.Nodes += nodes
			return counts
		}
	}
	return append(counts, cluster.RefusalCount{Refusal: r, Nodes: nodes})
}

func byNodeCount(a, b cluster.RefusalCount) int {
	return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Code, b.Code),
		cmp.Compare(a.Detail, b.Detail), cmp.Compare(a.Port, b.Port))
}

// holdWaiting returns the reason of a task of priority 0.
func holdWaiting(task cluster.TaskID) cluster.Waiting {
	refusals := []cluster.RefusalCount{{Refusal: cluster.Refusal{Code: cluster.ReasonHold}}}
	return cluster.Waiting{Task: task, Refusals: refusals, Sentence: Sentence(refusals)}
}

// lacksWaiting returns the reason of a task that lacks something a user has to provide.
func lacksWaiting(p *cluster.Pending) cluster.Waiting {
	refusals := []cluster.RefusalCount{{
		Refusal: cluster.Refusal{Code: cluster.ReasonSecret, Detail: p.MissingDependency},
	}}
	return cluster.Waiting{Task: p.Task, Refusals: refusals, Sentence: Sentence(refusals)}
}

// Sentence returns the refusals as text for people, in their order: "3 nodes: memory short by 200 MiB; 1 node: port
// 8080 taken". A shortage is the least among the nodes. Refusals that do not concern nodes have no number.
func Sentence(refusals []cluster.RefusalCount) string {
	var b strings.Builder
	for i, r := range refusals {
		if i > 0 {
			b.WriteString("; ")
		}
		switch r.Nodes {
		case 0:
		case 1:
			b.WriteString("1 node: ")
		default:
			fmt.Fprintf(&b, "%d nodes: ", r.Nodes)
		}
		b.WriteString(phrase(r.Refusal))
	}
	return b.String()
}

// phrase returns one refusal as text.
func phrase(r cluster.Refusal) string {
	switch r.Code {
	case cluster.ReasonNoNodes:
		return "no node has joined yet"
	case cluster.ReasonHold:
		return "on hold: its priority is 0"
	case cluster.ReasonNodeNotReady:
		return "not ready (" + r.Detail + ")"
	case cluster.ReasonNoExecutor:
		return "no executor that can run it"
	case cluster.ReasonConstraint:
		if strings.HasPrefix(r.Detail, "label."+cluster.LabelSecrets) {
			return "its agent hands out no secrets: it is of an older build, or the machine has no folder " +
				"in memory for them"
		}
		if strings.HasPrefix(r.Detail, "label."+cluster.LabelServices) {
			return "its agent does not know how to follow the addresses of services: it is of an older " +
				"build, upgrade it"
		}
		if strings.HasPrefix(r.Detail, "label."+cluster.LabelArtifacts) {
			return "its agent fetches no artifacts: it is of an older build; upgrade the agent"
		}
		if strings.HasPrefix(r.Detail, "label."+cluster.LabelIsolation) {
			return "it cannot keep programs apart, which isolation required demands; `berth node status " +
				"NODE` tells what it lacks"
		}
		return r.Detail + " not met"
	case cluster.ReasonSecret:
		return r.Detail
	case cluster.ReasonPool:
		if r.Detail == "" {
			return "of no pool"
		}
		return "of pool " + r.Detail
	case cluster.ReasonReserved, cluster.ReasonVolume, cluster.ReasonNetwork:
		return r.Detail
	case cluster.ReasonTaint:
		return "taint " + r.Detail + " not tolerated"
	case cluster.ReasonDistinct:
		return "enough of its tasks run where " + r.Detail
	case cluster.ReasonSkew:
		return "more of its tasks run where " + r.Detail + " than the spread allows"
	case cluster.ReasonRelation:
		if strings.HasPrefix(r.Detail, exclusionPrefix) {
			return r.Detail
		}
		return r.Detail + " not met"
	case cluster.ReasonGang:
		return "its gang waits: " + r.Detail
	case cluster.ReasonOldAttempt:
		return "an earlier attempt still stands there"
	case cluster.ReasonAntiAffinity:
		return "another of its tasks runs there"
	case cluster.ReasonShortCPU:
		return "CPU short by " + cpuText(cluster.MilliCPU(r.Short))
	case cluster.ReasonShortMemory:
		return "memory short by " + cluster.Bytes(r.Short).String()
	case cluster.ReasonShortDisk:
		return "disk short by " + cluster.Bytes(r.Short).String()
	case cluster.ReasonDevice:
		if r.Short > 0 {
			return fmt.Sprintf("%s: short by %d", r.Detail, r.Short)
		}
		return r.Detail
	case cluster.ReasonPort:
		return fmt.Sprintf("port %d taken", r.Port)
	case cluster.ReasonPortsSpent:
		return "no port left to assign"
	default:
		return string(r.Code)
	}
}

// cpuText returns an amount of CPU as text: whole CPUs as a number, others in thousandths.
func cpuText(m cluster.MilliCPU) string {
	switch {
	case m == 1000:
		return "1 CPU"
	case m%1000 == 0:
		return m.String() + " CPUs"
	}
	return m.String()
}
