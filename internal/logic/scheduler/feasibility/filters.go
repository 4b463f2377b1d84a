package feasibility

import (
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/encode"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
)

// Filters holds the feasibility filters of a cycle. Tasks with equal demands share one.
type Filters struct {
	nodes *fleet.Overlay
	byKey map[string]*Filter
}

// NewFilters returns an empty set of filters for nodes.
func NewFilters(nodes *fleet.Overlay) Filters { return Filters{nodes: nodes} }

// Of returns the filter of a task at a time, and makes it first if needed.
func (f *Filters) Of(p *cluster.Pending, now time.Time) *Filter {
	f.nodes.Buffer = filterKey(f.nodes.Buffer[:0], p)
	if f.nodes.Fleet.NodeReservations > 0 {
		f.nodes.Buffer = admittedKey(f.nodes.Buffer, p)
	}
	s, found := f.byKey[string(f.nodes.Buffer)]
	if !found {
		s = f.newFilter(p, now)
		if f.byKey == nil {
			f.byKey = map[string]*Filter{}
		}
		f.byKey[string(f.nodes.Buffer)] = s
	}
	return s
}

func (f *Filters) newFilter(p *cluster.Pending, now time.Time) *Filter {
	classes := f.nodes.Fleet.Catalog.Classes
	s := &Filter{IsFeasible: make([]bool, len(classes))}
	for _, constraint := range p.Placement.Constraints {
		if f.nodes.Fleet.Catalog.Labels.IsPerNode(constraint.Attribute) {
			s.PerNode = append(s.PerNode, constraint)
			s.Fine = s.Fine || constraint.Attribute != fleet.NodeName
		}
	}
	for i := range classes {
		if classes[i].Count == 0 {
			continue
		}
		if code, _ := Refusal(p, now, &classes[i].Like, f.nodes.Fleet.Catalog.Labels.IsPerNode); code == "" {
			s.Feasible = append(s.Feasible, int32(i))
			s.IsFeasible[i], s.Mask = true, s.Mask|1<<(i%64)
			if slices.ContainsFunc(classes[i].Like.Taints, func(t cluster.Taint) bool {
				return t.Effect == cluster.TaintAvoid && !tolerated(p.Placement.Tolerations, t)
			}) {
				if s.Penalized == nil {
					s.Penalized = make([]bool, len(classes))
				}
				s.Penalized[i] = true
			}
		}
	}
	f.dropInfeasible(s)
	for _, class := range s.Feasible {
		s.Nodes += classes[class].Count
	}
	return s
}

// dropInfeasible removes the node classes without a node that meets the filter's constraints on fine labels.
func (f *Filters) dropInfeasible(s *Filter) {
	var some []int32
	fine, all := false, true
	for _, constraint := range s.PerNode {
		if constraint.Attribute == fleet.NodeName {
			continue
		}
		fine = true
		if values, few := NamedValues(constraint); few && all {
			some, all = f.nodes.NodesWith(constraint.Attribute, values), false
		}
	}
	if !fine {
		return
	}
	meets := make([]bool, len(s.IsFeasible))
	note := func(slot int32) bool {
		class := f.nodes.Fleet.ClassOf(slot)
		if class >= 0 && s.IsFeasible[class] && !meets[class] && s.meetsFineLabels(f.nodes.Node(slot)) {
			meets[class] = true
		}
		return true
	}
	if all {
		f.nodes.Fleet.Names.All(note)
	}
	for _, slot := range some {
		note(slot)
	}
	s.Feasible = slices.DeleteFunc(s.Feasible, func(class int32) bool { return !meets[class] })
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
	text := func(s string) { b = encode.Text(b, s) }
	text(string(p.Network))
	text(p.Placement.Pool)
	text(p.Placement.Reservation)
	b = encode.Number(b, uint64(len(p.Placement.Tolerations)))
	for _, t := range p.Placement.Tolerations {
		text(t.Key)
		text(t.Value)
		text(string(t.Effect))
		b = encode.Number(b, uint64(t.For))
	}
	for i := range p.Placement.Constraints {
		constraint := &p.Placement.Constraints[i]
		text(constraint.Attribute)
		text(string(constraint.Op))
		text(constraint.Value)
		b = encode.Number(b, uint64(len(constraint.Values)))
		for _, v := range constraint.Values {
			text(v)
		}
	}
	return b
}

// admittedKey appends what reservations depend on of a task.
func admittedKey(b []byte, p *cluster.Pending) []byte {
	b = encode.Text(b, fleet.ClusterOf(p.Task))
	b = encode.Number(b, uint64(p.TimeLimit))
	return encode.Labels(b, p.Labels)
}
