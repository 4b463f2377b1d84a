package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// imageExecutor is the executor that runs images.
const imageExecutor = "containerd"

// bars returns why the node refuses the class whatever runs on it, or no code. For a constraint
// it returns that.
func (y *cycle) bars(c *class, n int) (cluster.ReasonCode, *cluster.Constraint) {
	node := y.node(n)
	switch {
	case node.State != cluster.NodeReady:
		return cluster.ReasonNodeNotReady, nil
	case node.Cordon && (node.Drain || !c.Daemon):
		return cluster.ReasonCordoned, nil
	case len(node.Executors) == 0, c.NeedsImage && !slices.Contains(node.Executors, imageExecutor):
		return cluster.ReasonNoExecutor, nil
	}
	for i := range c.Placement.Constraints {
		if !Matches(c.Placement.Constraints[i], node) {
			return cluster.ReasonConstraint, &c.Placement.Constraints[i]
		}
	}
	if c.avoids(n) {
		return cluster.ReasonOldAttempt, nil
	}
	return "", nil
}

// elsewhere is the refusal of the nodes that are not the one that the class is for.
func elsewhere(c *class) cluster.Refusal {
	return cluster.Refusal{
		Code:   cluster.ReasonConstraint,
		Detail: Text(cluster.Constraint{Attribute: "node.name", Op: cluster.OpEqual, Value: c.Only}),
	}
}

// lacks returns why the node refuses the class for what runs on it now, or no code; with by how
// much a resource is short, or the port that is taken.
func (y *cycle) lacks(c *class, n int) (cluster.ReasonCode, int64) {
	if c.affinity == cluster.AntiAffinityDemand && c.group.counts[n] > 0 {
		return cluster.ReasonAntiAffinity, 0
	}
	l := &y.loads[n]
	if d := c.demand.CPU; d > 0 && l.used.CPU+d > l.capacity.CPU {
		return cluster.ReasonShortCPU, int64(l.used.CPU + d - l.capacity.CPU)
	}
	if d := c.demand.Memory; d > 0 && l.used.Memory+d > l.capacity.Memory {
		return cluster.ReasonShortMemory, int64(l.used.Memory + d - l.capacity.Memory)
	}
	if d := c.demand.Disk; d > 0 && l.used.Disk+d > l.capacity.Disk {
		return cluster.ReasonShortDisk, int64(l.used.Disk + d - l.capacity.Disk)
	}
	if len(c.fixed) == 0 && c.auto == 0 {
		return "", 0
	}
	if c.clash != 0 {
		return cluster.ReasonPort, int64(c.clash)
	}
	ports := y.portsOf(n)
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

// refusal returns why the node refuses the class, as told to others, or one without a code.
func (y *cycle) refusal(c *class, n int) cluster.Refusal {
	if c.single && c.Only != y.node(n).Name {
		return elsewhere(c)
	}
	code, constraint := y.bars(c, n)
	switch {
	case constraint != nil:
		return cluster.Refusal{Code: code, Detail: Text(*constraint)}
	case code == cluster.ReasonNodeNotReady:
		return cluster.Refusal{Code: code, Detail: string(y.node(n).State)}
	case code != "":
		return cluster.Refusal{Code: code}
	}
	code, amount := y.lacks(c, n)
	if code == cluster.ReasonPort {
		return cluster.Refusal{Code: code, Port: int(amount)}
	}
	return cluster.Refusal{Code: code, Short: amount}
}

// explain says why a task of the class waits. The reasons are found once for each class.
func (y *cycle) explain(c *class, task cluster.TaskID) cluster.Waiting {
	if c.refusals == nil {
		switch n, found := y.fleet.search(c.Only); {
		case !c.single:
			for n := range y.loads {
				c.refusals = tally(c.refusals, y.refusal(c, n))
			}
		case found:
			c.refusals = tally(c.refusals, y.refusal(c, n))
			c.refusals = y.others(c, len(y.loads)-1)
		default:
			c.refusals = y.others(c, len(y.loads))
		}
		if len(y.loads) == 0 {
			c.refusals = []cluster.RefusalCount{{Refusal: cluster.Refusal{Code: cluster.ReasonNoNodes}}}
		}
		slices.SortFunc(c.refusals, mostNodes)
		c.sentence = Sentence(c.refusals)
	}
	return cluster.Waiting{Task: task, Refusals: c.refusals, Sentence: c.sentence}
}

// others adds the refusals of so many nodes that are not the one that the class is for.
func (y *cycle) others(c *class, nodes int) []cluster.RefusalCount {
	if nodes == 0 {
		return c.refusals
	}
	r := elsewhere(c)
	for i := range c.refusals {
		if c.refusals[i].Refusal == r { // a constraint of its own says the same
			c.refusals[i].Nodes += nodes
			return c.refusals
		}
	}
	return append(c.refusals, cluster.RefusalCount{Refusal: r, Nodes: nodes})
}

// tally adds the refusal of one more node. Refusals that differ only in how much is short are
// counted as one, with the least of it: the smallest help that would let the task in somewhere.
func tally(counts []cluster.RefusalCount, r cluster.Refusal) []cluster.RefusalCount {
	for i := range counts {
		c := &counts[i]
		if c.Code == r.Code && c.Port == r.Port && c.Detail == r.Detail {
			c.Short = min(c.Short, r.Short)
			c.Nodes++
			return counts
		}
	}
	return append(counts, cluster.RefusalCount{Refusal: r, Nodes: 1})
}

func mostNodes(a, b cluster.RefusalCount) int {
	return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Code, b.Code),
		cmp.Compare(a.Detail, b.Detail), cmp.Compare(a.Port, b.Port))
}

// hold is what a task of priority 0 waits for.
func hold(task cluster.TaskID) cluster.Waiting {
	refusals := []cluster.RefusalCount{{Refusal: cluster.Refusal{Code: cluster.ReasonHold}}}
	return cluster.Waiting{Task: task, Refusals: refusals, Sentence: Sentence(refusals)}
}

// Sentence tells the refusals to a person, in their order: "3 nodes: memory short by 200 MiB; 1 node: port
// 8080 taken". Of what is short it names the least among the nodes. Refusals that are not
// about nodes stand without a number.
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

// phrase tells one refusal.
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
		return r.Detail + " not met"
	case cluster.ReasonOldAttempt:
		return "an earlier attempt still stands there"
	case cluster.ReasonAntiAffinity:
		return "another of its tasks runs there"
	case cluster.ReasonShortCPU:
		return "CPU short by " + cpus(cluster.MilliCPU(r.Short))
	case cluster.ReasonShortMemory:
		return "memory short by " + cluster.Bytes(r.Short).String()
	case cluster.ReasonShortDisk:
		return "disk short by " + cluster.Bytes(r.Short).String()
	case cluster.ReasonPort:
		return fmt.Sprintf("port %d taken", r.Port)
	case cluster.ReasonPortsSpent:
		return "no port left to assign"
	default:
		return string(r.Code)
	}
}

// Verdict is what one node says to a task: a refusal, or none.
type Verdict struct {
	Node    string
	Refusal *cluster.Refusal
}

// Explain asks every node about one task, in the order of their names. Unlike Schedule it asks for
// held tasks, too.
func Explain(f *Fleet, p cluster.Pending, opts Options) []Verdict {
	y := newCycle(f, []cluster.Pending{p}, opts)
	y.classify([]int32{0})
	c := y.classOf[0]
	y.count(c.group)
	verdicts := make([]Verdict, len(y.loads))
	for n := range y.loads {
		verdicts[n].Node = y.node(n).Name
		if r := y.refusal(c, n); r.Code != "" {
			verdicts[n].Refusal = &r
		}
	}
	return verdicts
}

// cpus says an amount of CPU: whole ones by their number, others in thousandths.
func cpus(m cluster.MilliCPU) string {
	switch {
	case m == 1000:
		return "1 CPU"
	case m%1000 == 0:
		return m.String() + " CPUs"
	}
	return m.String()
}
