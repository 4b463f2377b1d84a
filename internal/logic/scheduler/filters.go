package scheduler

import (
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// filters holds the feasibility filters of a cycle. Tasks with equal demands share one.
type filters struct {
	nodes *overlay
	byKey map[string]*feasibilityFilter
}

func newFilters(nodes *overlay) filters { return filters{nodes: nodes} }

// of returns the filter of a task at a time, and makes it first if needed.
func (f *filters) of(p *cluster.Pending, now time.Time) *feasibilityFilter {
	f.nodes.buffer = filterKey(f.nodes.buffer[:0], p)
	if f.nodes.fleet.nodeReservations > 0 {
		f.nodes.buffer = admittedKey(f.nodes.buffer, p)
	}
	s, found := f.byKey[string(f.nodes.buffer)]
	if !found {
		s = f.newFilter(p, now)
		if f.byKey == nil {
			f.byKey = map[string]*feasibilityFilter{}
		}
		f.byKey[string(f.nodes.buffer)] = s
	}
	return s
}

func (f *filters) newFilter(p *cluster.Pending, now time.Time) *feasibilityFilter {
	classes := f.nodes.fleet.catalog.classes
	s := &feasibilityFilter{isFeasible: make([]bool, len(classes))}
	for _, constraint := range p.Placement.Constraints {
		if f.nodes.fleet.catalog.labels.isPerNode(constraint.Attribute) {
			s.perNode = append(s.perNode, constraint)
			s.fine = s.fine || constraint.Attribute != nodeName
		}
	}
	for i := range classes {
		if classes[i].count == 0 {
			continue
		}
		if code, _ := nodeRefusal(p, now, &classes[i].like, f.nodes.fleet.catalog.labels.isPerNode); code == "" {
			s.feasible = append(s.feasible, int32(i))
			s.isFeasible[i], s.mask = true, s.mask|1<<(i%64)
			if slices.ContainsFunc(classes[i].like.Taints, func(t cluster.Taint) bool {
				return t.Effect == cluster.TaintAvoid && !tolerated(p.Placement.Tolerations, t)
			}) {
				if s.penalized == nil {
					s.penalized = make([]bool, len(classes))
				}
				s.penalized[i] = true
			}
		}
	}
	f.dropInfeasible(s)
	for _, class := range s.feasible {
		s.nodes += classes[class].count
	}
	return s
}

// dropInfeasible removes the node classes without a node that meets the filter's constraints on fine labels.
func (f *filters) dropInfeasible(s *feasibilityFilter) {
	var some []int32
	fine, all := false, true
	for _, constraint := range s.perNode {
		if constraint.Attribute == nodeName {
			continue
		}
		fine = true
		if values, few := namedValues(constraint); few && all {
			some, all = f.nodes.nodesWith(constraint.Attribute, values), false
		}
	}
	if !fine {
		return
	}
	meets := make([]bool, len(s.isFeasible))
	look := func(slot int32) bool {
		class := f.nodes.fleet.classOf(slot)
		if class >= 0 && s.isFeasible[class] && !meets[class] && s.meetsFineLabels(f.nodes.node(slot)) {
			meets[class] = true
		}
		return true
	}
	if all {
		f.nodes.fleet.names.all(look)
	}
	for _, slot := range some {
		look(slot)
	}
	s.feasible = slices.DeleteFunc(s.feasible, func(class int32) bool { return !meets[class] })
}

// filterKey appends all that the filter of a task depends on.
func filterKey(b []byte, p *cluster.Pending) []byte {
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

// admittedKey appends what reservations depend on of a task.
func admittedKey(b []byte, p *cluster.Pending) []byte {
	b = textKey(b, clusterOf(p.Task))
	b = appendNumber(b, uint64(p.TimeLimit))
	return labelsKey(b, p.Labels)
}
