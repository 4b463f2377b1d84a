package advice

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// maxPairTasks is the number of tasks up to which all pairs are tried.
const maxPairTasks = 64

// nodeUsage is the reservations of a node.
type nodeUsage struct {
	uuids  []string
	others cluster.Demand // held by tasks of other owners
}

// byTask orders reservations by task, so that suggestions are repeatable: UUIDs are random.
func byTask(a, b scheduler.Reservation) int {
	return cmp.Or(cmp.Compare(a.Task, b.Task), strings.Compare(a.UUID, b.UUID))
}

// reservationsOn returns the present reservations of a node, ordered by task.
func (s *search) reservationsOn(node string) (list []scheduler.Reservation) {
	s.indexByNode()
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

// indexByNode finds the reservations of each node.
func (s *search) indexByNode() {
	if s.byNode != nil {
		return
	}
	s.byNode = map[string]*nodeUsage{}
	for r := range s.fleet.Held {
		n := s.byNode[r.Node]
		if n == nil {
			n = &nodeUsage{}
			s.byNode[r.Node] = n
		}
		n.uuids = append(n.uuids, r.UUID)
		if ownerOf(r.Task) != s.own {
			n.others = n.others.Add(r.Demand)
		}
	}
}

// heldByOthers returns what tasks of other owners hold on a node.
func (s *search) heldByOthers(node string) cluster.Demand {
	s.indexByNode()
	if n := s.byNode[node]; n != nil {
		return n.others
	}
	return cluster.Demand{}
}

func holds(d, short cluster.Demand) bool {
	return d.CPU >= short.CPU && d.Memory >= short.Memory && d.Disk >= short.Disk
}

// otherTasks returns a node's tasks of other owners in the order in which they should end: the lowest priority first,
// then the smallest. Ending tasks of the same owner does not help, because they would wait instead.
func (s *search) otherTasks(p *cluster.Pending, node string) (all []scheduler.Reservation) {
	for _, r := range s.reservationsOn(node) {
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

// ownerOf returns the cluster and owner in a task's id.
func ownerOf(id cluster.TaskID) string {
	first := strings.IndexByte(string(id), '.') + 1
	if second := strings.IndexByte(string(id[first:]), '.'); second >= 0 {
		return string(id[:first+second])
	}
	return string(id)
}

// fewestHolding returns the smallest set of reservations that holds the shortage, of equals the first; nil if all do
// not.
func fewestHolding(list []scheduler.Reservation, short cluster.Demand) []scheduler.Reservation {
	for i := range list {
		if holds(list[i].Demand, short) {
			return list[i : i+1]
		}
	}
	if len(list) <= maxPairTasks {
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

// endOfTasks returns the end of the tasks that cause some blockers together.
func (s *search) endOfTasks(p *cluster.Pending, n *scheduler.Node, blockers []scheduler.Blocker,
) (cluster.Remedy, bool) {
	must, ok := s.requiredEnds(p, n, blockers)
	if !ok {
		return cluster.Remedy{}, false
	}
	ends := slices.Clone(must)
	undo := endAttempts(s.fleet, uuids(ends))
	left := s.ask(*p, n.Name)
	if !stillBlocked(left, blockers) { // end further tasks until room and devices are free
		undo()
		return ended(n.Name, ends), len(ends) > 0
	}
	undos := []func(){undo}
	for _, r := range s.otherTasks(p, n.Name) {
		if len(ends) >= maxPairTasks || !stillBlocked(left, blockers) {
			break
		}
		if slices.ContainsFunc(ends, func(e scheduler.Reservation) bool {
			return e.UUID == r.UUID
		}) || !holdsAny(&r, left) {
			continue
		}
		undos = append(undos, endAttempts(s.fleet, []string{r.UUID}))
		ends = append(ends, r)
		left = s.ask(*p, n.Name)
	}
	done := !stillBlocked(left, blockers)
	for i := len(must); done && i < len(ends); { // spare tasks that turned out not to be needed
		reserve(s.fleet, ends[i:i+1])
		if stillBlocked(s.ask(*p, n.Name), blockers) {
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

// stillBlocked reports whether blockers of the kinds to be removed are left.
func stillBlocked(left, blockers []scheduler.Blocker) bool {
	return slices.ContainsFunc(left, func(l scheduler.Blocker) bool {
		return slices.ContainsFunc(blockers, func(h scheduler.Blocker) bool { return h.Code == l.Code })
	})
}

// holdsAny reports whether a task holds something that is still to be freed.
func holdsAny(r *scheduler.Reservation, left []scheduler.Blocker) bool {
	return slices.ContainsFunc(left, func(h scheduler.Blocker) bool {
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

// requiredEnds returns the tasks that have to end in any case: those with a wanted port, and those that a relation
// excludes. ok is false if a blocker cannot be removed by ending tasks.
func (s *search) requiredEnds(p *cluster.Pending, n *scheduler.Node,
	blockers []scheduler.Blocker,
) (all []scheduler.Reservation, ok bool) {
	for _, h := range blockers {
		switch h.Code {
		case cluster.ReasonPort:
			before := len(all)
			for _, r := range s.reservationsOn(n.Name) {
				if slices.Contains(r.Ports, h.Port) {
					all = append(all, r)
				}
			}
			if len(all) == before { // the node reserves the port, or the task requests it twice
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

// nearby returns the tasks near a node that the task's relation of that number keeps away from. With a negative number
// it returns the tasks that exclude the task.
func (s *search) nearby(p *cluster.Pending, n *scheduler.Node, number int) (all []scheduler.Reservation) {
	s.indexByNode()
	for name := range s.byNode { // order-free: sorted by the caller
		other, _, found := s.fleet.Node(name)
		if !found {
			continue
		}
		list := s.reservationsOn(name)
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

// alike reports whether two nodes have equal values of an attribute; the default is the name.
func alike(attribute string, a, b *scheduler.Node) bool {
	attribute = cmp.Or(attribute, "node.name")
	return a.Value(attribute) == b.Value(attribute)
}

func uuids(list []scheduler.Reservation) (all []string) {
	for i := range list {
		all = append(all, list[i].UUID)
	}
	return all
}
