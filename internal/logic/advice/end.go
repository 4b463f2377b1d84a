package advice

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// mostPairs bounds the tasks of which all pairs are looked at.
const mostPairs = 64

// standing is who reserves something on a node.
type standing struct {
	uuids  []string
	others cluster.Demand // that tasks of other owners hold
}

// byTask orders reservations by their tasks, so that the same is suggested wherever and whenever it is asked for:
// attempts have their UUIDs by chance.
func byTask(a, b scheduler.Reservation) int {
	return cmp.Or(cmp.Compare(a.Task, b.Task), strings.Compare(a.UUID, b.UUID))
}

// on returns the reservations of a node as they are now, in the order of their tasks.
func (s *search) on(node string) (list []scheduler.Reservation) {
	s.gather()
	n := s.byNode[node]
	if n == nil {
		return nil
	}
	for _, uuid := range n.uuids {
		if r, found := s.fleet.Reserved(uuid); found {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, byTask)
	return list
}

// gather finds who stands on which node.
func (s *search) gather() {
	if s.byNode != nil {
		return
	}
	s.byNode = map[string]*standing{}
	for r := range s.fleet.Held {
		n := s.byNode[r.Node]
		if n == nil {
			n = &standing{}
			s.byNode[r.Node] = n
		}
		n.uuids = append(n.uuids, r.UUID)
		if ownerOf(r.Task) != s.own {
			n.others = n.others.Add(r.Demand)
		}
	}
}

// held returns what tasks of other owners hold of a node.
func (s *search) held(node string) cluster.Demand {
	s.gather()
	if n := s.byNode[node]; n != nil {
		return n.others
	}
	return cluster.Demand{}
}

func holds(d, short cluster.Demand) bool {
	return d.CPU >= short.CPU && d.Memory >= short.Memory && d.Disk >= short.Disk
}

// others returns those of a node's tasks that are of other owners, in the order in which they would rather end: the
// lowest priority first, and of such the smallest. To end tasks of the same owner helps nobody, as they would wait
// instead.
func (s *search) others(p *cluster.Pending, node string) (all []scheduler.Reservation) {
	for _, r := range s.on(node) {
		if ownerOf(r.Task) != s.own {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b scheduler.Reservation) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority),
			amountOf(a.Demand, p.Demand).compare(amountOf(b.Demand, p.Demand)), byTask(a, b))
	})
	return all
}

// ownerOf returns cluster and owner of a task, as its name says them.
func ownerOf(id cluster.TaskID) string {
	first := strings.IndexByte(string(id), '.') + 1
	if second := strings.IndexByte(string(id[first:]), '.'); second >= 0 {
		return string(id[:first+second])
	}
	return string(id)
}

// enough returns the fewest of some reservations that hold so much, of such the first; nil where all of them do not.
func enough(list []scheduler.Reservation, short cluster.Demand) []scheduler.Reservation {
	for i := range list {
		if holds(list[i].Demand, short) {
			return list[i : i+1]
		}
	}
	if len(list) <= mostPairs {
		for i := range list {
			for j := range i {
				if holds(list[i].Demand.Add(list[j].Demand), short) {
					return []scheduler.Reservation{list[j], list[i]}
				}
			}
		}
	}
	largest := slices.Clone(list)
	slices.SortStableFunc(largest, func(a, b scheduler.Reservation) int {
		return amountOf(b.Demand, short).compare(amountOf(a.Demand, short))
	})
	var sum cluster.Demand
	for i := range largest {
		if sum = sum.Add(largest[i].Demand); holds(sum, short) {
			return largest[:i+1]
		}
	}
	return nil
}

// ending returns the end of those tasks that are all of some hurdles together.
func (s *search) ending(p *cluster.Pending, n *scheduler.Node, hurdles []scheduler.Hurdle) (cluster.Remedy, bool) {
	must, ok := s.holders(p, n, hurdles)
	if !ok {
		return cluster.Remedy{}, false
	}
	ends := slices.Clone(must)
	undo := end(s.fleet, uuids(ends))
	left := s.ask(*p, n.Name)
	if !blocks(left, hurdles) { // … and of the others so many that room and devices are free, too
		undo()
		return ended(n.Name, ends), len(ends) > 0
	}
	undos := []func(){undo}
	for _, r := range s.others(p, n.Name) {
		if len(ends) >= mostPairs || !blocks(left, hurdles) {
			break
		}
		if slices.ContainsFunc(ends, func(e scheduler.Reservation) bool {
			return e.UUID == r.UUID
		}) || !helps(&r, left) {
			continue
		}
		undos = append(undos, end(s.fleet, []string{r.UUID}))
		ends = append(ends, r)
		left = s.ask(*p, n.Name)
	}
	done := !blocks(left, hurdles)
	for i := len(must); done && i < len(ends); { // those that turned out not to be needed
		reserve(s.fleet, ends[i:i+1])
		if blocks(s.ask(*p, n.Name), hurdles) {
			s.fleet.Release(ends[i].UUID)
			i++
			continue
		}
		ends = slices.Delete(ends, i, i+1)
	}
	for _, undo := range undos {
		undo()
	}
	return ended(n.Name, ends), done && len(ends) > 0
}

// blocks reports whether hurdles of the kinds that are to be overcome are left.
func blocks(left, hurdles []scheduler.Hurdle) bool {
	return slices.ContainsFunc(left, func(l scheduler.Hurdle) bool {
		return slices.ContainsFunc(hurdles, func(h scheduler.Hurdle) bool { return h.Code == l.Code })
	})
}

// helps reports whether a task holds something of what is left to be freed.
func helps(r *scheduler.Reservation, left []scheduler.Hurdle) bool {
	return slices.ContainsFunc(left, func(h scheduler.Hurdle) bool {
		switch h.Code {
		case cluster.ReasonShortCPU:
			return r.Demand.CPU > 0
		case cluster.ReasonShortMemory:
			return r.Demand.Memory > 0
		case cluster.ReasonShortDisk:
			return r.Demand.Disk > 0
		case cluster.ReasonDevice:
			return len(r.Devices) > 0
		case cluster.ReasonPort:
			return slices.Contains(r.Ports, h.Port)
		case cluster.ReasonPortsSpent:
			return len(r.Ports) > 0
		default:
			return false
		}
	})
}

// holders returns the tasks that have to end in any case: those with a port, and those that are not to be near. It is
// not ok where a hurdle is of a kind that nobody's end overcomes.
func (s *search) holders(p *cluster.Pending, n *scheduler.Node,
	hurdles []scheduler.Hurdle,
) (all []scheduler.Reservation, ok bool) {
	for _, h := range hurdles {
		switch h.Code {
		case cluster.ReasonPort:
			before := len(all)
			for _, r := range s.on(n.Name) {
				if slices.Contains(r.Ports, h.Port) {
					all = append(all, r)
				}
			}
			if len(all) == before { // the node keeps it for itself, or the task asks for it twice
				return nil, false
			}
		case cluster.ReasonRelation:
			if h.Number >= 0 && !p.Placement.Relations[h.Number].Away {
				return nil, false
			}
			all = append(all, s.nearby(p, n, h.Number)...)
		default:
		}
	}
	slices.SortFunc(all, byTask)
	return slices.CompactFunc(all, func(a, b scheduler.Reservation) bool { return a.UUID == b.UUID }), true
}

// nearby returns the tasks near a node that a relation of the task keeps away from, or, below 0, that keep the task
// away.
func (s *search) nearby(p *cluster.Pending, n *scheduler.Node, number int) (all []scheduler.Reservation) {
	s.gather()
	for name := range s.byNode { // order-free: sorted by the caller
		other, _, found := s.fleet.Node(name)
		if !found {
			continue
		}
		list := s.on(name)
		for i := range list {
			r := &list[i]
			if number >= 0 {
				if rel := p.Placement.Relations[number]; scheduler.Concerns(rel, p.Task, r.Task, r.Labels) &&
					alike(rel.Attribute, n, &other) {
					all = append(all, *r)
				}
				continue
			}
			if slices.ContainsFunc(r.Away, func(rel cluster.Relation) bool {
				return scheduler.Concerns(rel, r.Task, p.Task, p.Labels) && alike(rel.Attribute, n, &other)
			}) {
				all = append(all, *r)
			}
		}
	}
	return all
}

// alike reports whether two nodes have the same value for an attribute, by default their names.
func alike(attribute string, a, b *scheduler.Node) bool {
	attribute = cmp.Or(attribute, "node.name")
	return scheduler.Value(a, attribute) == scheduler.Value(b, attribute)
}

func uuids(list []scheduler.Reservation) (all []string) {
	for i := range list {
		all = append(all, list[i].UUID)
	}
	return all
}
