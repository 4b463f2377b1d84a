package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// imageExecutor is the executor that runs images.
const imageExecutor = "containerd"

// nodeName is the attribute in which nodes of one class differ always, as they do in fine labels.
const nodeName = "node.name"

// sieve is which node classes take tasks of some demands, whatever runs there. Tasks with the same demands share it.
type sieve struct {
	takes  []int32 // the classes with nodes that meet the demands on fine labels, too; ascending
	passes []bool  // by class
	mask   uint64  // of those that pass
	avoid  []bool  // by class, those with taints that keep tasks away where there is another node; nil if there is none
	// named are the demands on names and fine labels, which each node must meet for itself.
	named []cluster.Constraint
	fine  bool // some of them are on fine labels
	nodes int  // of the classes that it takes
}

// sieveOf returns the sieve of the class.
func (y *cycle) sieveOf(c *class) *sieve {
	if c.sieve != nil {
		return c.sieve
	}
	y.buffer = sieveKey(y.buffer[:0], c.Pending)
	if y.fleet.reserved > 0 {
		y.buffer = admittedKey(y.buffer, c.Pending)
	}
	s, found := y.sieves[string(y.buffer)]
	if !found {
		s = y.newSieve(c)
		if y.sieves == nil {
			y.sieves = map[string]*sieve{}
		}
		y.sieves[string(y.buffer)] = s
	}
	c.sieve = s
	return s
}

func (y *cycle) newSieve(c *class) *sieve {
	classes := y.fleet.catalog.classes
	s := &sieve{passes: make([]bool, len(classes))}
	for _, constraint := range c.Placement.Constraints {
		if y.fleet.parts(constraint.Attribute) {
			s.named = append(s.named, constraint)
			s.fine = s.fine || constraint.Attribute != nodeName
		}
	}
	for i := range classes {
		if classes[i].count == 0 {
			continue
		}
		if code, _ := bars(c, &classes[i].like, y.fleet.parts); code == "" {
			s.takes = append(s.takes, int32(i))
			s.passes[i], s.mask = true, s.mask|1<<(i%64)
			if slices.ContainsFunc(classes[i].like.Taints, func(t cluster.Taint) bool {
				return t.Effect == cluster.TaintAvoid && !tolerated(c.Placement.Tolerations, t)
			}) {
				if s.avoid == nil {
					s.avoid = make([]bool, len(classes))
				}
				s.avoid[i] = true
			}
		}
	}
	y.refine(s)
	for _, class := range s.takes {
		s.nodes += classes[class].count
	}
	return s
}

// sieveKey appends all that the sieve of a task depends on.
func sieveKey(b []byte, p *cluster.Pending) []byte {
	flags := byte(0)
	if p.Daemon {
		flags |= 1
	}
	if p.NeedsImage {
		flags |= 2
	}
	if p.Plain {
		flags |= 4
	}
	b = append(b, flags)
	text := func(s string) { b = textKey(b, s) }
	text(string(p.Network))
	text(p.Placement.Pool)
	text(p.Placement.Reservation)
	b = appendNumber(b, uint64(len(p.Placement.Tolerations)))
	for _, t := range p.Placement.Tolerations {
		text(t.Key)
		text(t.Value)
		text(string(t.Effect))
		b = appendNumber(b, uint64(t.For))
	}
	for i := range p.Placement.Constraints {
		constraint := &p.Placement.Constraints[i]
		text(constraint.Attribute)
		text(string(constraint.Op))
		text(constraint.Value)
		b = appendNumber(b, uint64(len(constraint.Values)))
		for _, v := range constraint.Values {
			text(v)
		}
	}
	return b
}

// bars returns why the node refuses the class whatever runs on it, or no code, and what that is about: a constraint or
// a taint. It does not look at demands on attributes to be skipped; nil skips none.
func bars(c *class, node *Node, skip func(attribute string) bool) (code cluster.ReasonCode, about string) {
	switch {
	case node.State != cluster.NodeReady:
		return cluster.ReasonNodeNotReady, string(node.State)
	case node.Cordon && (node.Drain || !c.Daemon):
		return cluster.ReasonCordoned, ""
	case c.Placement.Pool != "" && c.Placement.Pool != node.Pool:
		return cluster.ReasonPool, node.Pool
	}
	if about := keptFrom(c, node); about != "" {
		return cluster.ReasonReserved, about
	}
	for _, t := range node.Taints {
		if t.Effect != cluster.TaintAvoid && !tolerated(c.Placement.Tolerations, t) {
			return cluster.ReasonTaint, taintText(t)
		}
	}
	if lacksExecutor(c.Pending, node) {
		return cluster.ReasonNoExecutor, ""
	}
	if lacks := cluster.LacksNetwork(node.Networks, c.Network); lacks != "" {
		return cluster.ReasonNetwork, lacks
	}
	for i := range c.Placement.Constraints {
		constraint := &c.Placement.Constraints[i]
		if (skip == nil || !skip(constraint.Attribute)) && !Matches(*constraint, node) {
			return constraintCode(constraint), Text(*constraint)
		}
	}
	return "", ""
}

// lacksExecutor reports whether the node has no executor that can run the task.
func lacksExecutor(p *cluster.Pending, node *Node) bool {
	return len(node.Executors) == 0 || p.NeedsImage && !slices.Contains(node.Executors, imageExecutor) ||
		p.Plain && !slices.ContainsFunc(node.Executors, func(e string) bool { return e != imageExecutor })
}

func tolerated(tolerations []cluster.Toleration, t cluster.Taint) bool {
	return slices.ContainsFunc(tolerations, func(o cluster.Toleration) bool { return o.Tolerates(t) })
}

func taintText(t cluster.Taint) string {
	if t.Value == "" {
		return t.Key
	}
	return t.Key + "=" + t.Value
}

// meets reports whether the node meets the sieve's demands on its name.
func (y *cycle) meets(s *sieve, slot int32) bool {
	for i := range s.named {
		if !Matches(s.named[i], y.node(slot)) {
			return false
		}
	}
	return true
}

// mostCandidates is up to how many nodes of a fine label's value are looked at one by one.
const mostCandidates = 256

// candidates returns the only nodes that come into question, where the task names them; ok is false where it does not.
func (y *cycle) candidates(c *class) (slots []int32, ok bool) {
	if c.Only != "" {
		return y.slots([]string{c.Only}), true
	}
	for _, constraint := range y.sieveOf(c).named {
		if values, few := valuesOf(constraint); few {
			if slots := y.having(constraint.Attribute, values); len(slots) <= mostCandidates {
				return slots, true
			}
		}
	}
	for i := range c.relations {
		if t := &c.relations[i]; t.Required && !t.Away && t.table == nil && !t.met(0) {
			for slot := range t.nodes { // order-free: the best is taken
				slots = append(slots, slot)
			}
			return slots, true
		}
	}
	return nil, false
}
