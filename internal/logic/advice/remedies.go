package advice

import (
	"slices"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// imageExecutor is the executor that runs images, and the one that suggestions add.
const imageExecutor = "containerd"

// plainExecutor is the executor that runs programs without images, if the operator enables it.
const plainExecutor = "process"

// remedies returns changes that each remove the first of a node's blockers. Blockers by other tasks are removed
// together.
func (s *search) remedies(p *cluster.Pending, node string, blockers []scheduler.Blocker) []cluster.Remedy {
	n, _, _ := s.fleet.Node(node)
	var occupied []scheduler.Blocker
	for _, h := range blockers {
		switch h.Code {
		case cluster.ReasonShortCPU, cluster.ReasonShortMemory, cluster.ReasonShortDisk,
			cluster.ReasonPort, cluster.ReasonPortsSpent, cluster.ReasonDevice, cluster.ReasonRelation:
			occupied = append(occupied, h)
		default:
			return s.remediesFor(p, &n, h)
		}
	}
	if short := shortOf(occupied); len(occupied) > 0 && onlyRoom(occupied) {
		return s.roomRemedies(p, node, short)
	}
	var all []cluster.Remedy
	for _, h := range occupied {
		if more := ownRemedies(p, h); more != nil {
			all = more
			break
		}
	}
	c, ok := s.endOfTasks(p, &n, occupied)
	if !ok { // the room may come from another change
		c, ok = s.endOfTasks(p, &n, slices.DeleteFunc(occupied, isRoom))
	}
	if ok {
		all = append(all, c)
	}
	return all
}

// reservationRemedies returns changes that let a task onto a node that is reserved for others, or that the named
// reservation does not hold.
func (s *search) reservationRemedies(p *cluster.Pending, n *scheduler.Node) []cluster.Remedy {
	in, _, _ := strings.Cut(string(p.Task), ".")
	for _, r := range n.Reserved {
		if !p.Daemon && !r.Admits(in, p.Labels, p.Placement.Reservation) && r.Refuses(s.opts.Now, p.TimeLimit) {
			return []cluster.Remedy{unreserved(r.Name)}
		}
	}
	if p.Placement.Reservation != "" {
		return []cluster.Remedy{reservationDropped(p)}
	}
	return nil
}

func onlyRoom(blockers []scheduler.Blocker) bool {
	return !slices.ContainsFunc(blockers, func(h scheduler.Blocker) bool { return !isRoom(h) })
}

func isRoom(h scheduler.Blocker) bool {
	return h.Code == cluster.ReasonShortCPU || h.Code == cluster.ReasonShortMemory || h.Code == cluster.ReasonShortDisk
}

// remediesFor returns changes that remove a blocker that is not caused by other tasks on the node.
func (s *search) remediesFor(p *cluster.Pending, n *scheduler.Node, h scheduler.Blocker) []cluster.Remedy {
	switch h.Code {
	case cluster.ReasonNodeNotReady:
		if n.State == cluster.NodeDraining || n.State == cluster.NodeDrained {
			return []cluster.Remedy{uncordoned(n)}
		}
		return []cluster.Remedy{revived(n)}
	case cluster.ReasonCordoned:
		return []cluster.Remedy{uncordoned(n)}
	case cluster.ReasonPool:
		all := []cluster.Remedy{poolDropped(p)}
		if n.Pool == "" {
			all = append(all, joined(n, p.Placement.Pool))
		}
		return all
	case cluster.ReasonReserved:
		return s.reservationRemedies(p, n)
	case cluster.ReasonTaint:
		t := n.Taints[h.Number]
		return []cluster.Remedy{tolerated(t), untainted(n, t)}
	case cluster.ReasonNoExecutor:
		return []cluster.Remedy{withExecutor(p, n)}
	case cluster.ReasonNetwork:
		return []cluster.Remedy{withNetwork(n, p.Network)}
	case cluster.ReasonConstraint:
		return constraintRemedies(p.Placement.Constraints[h.Number], h.Number, n)
	case cluster.ReasonOldAttempt:
		return []cluster.Remedy{waited(n)}
	case cluster.ReasonAntiAffinity:
		return []cluster.Remedy{together()}
	case cluster.ReasonDistinct:
		return []cluster.Remedy{distinctRaised(p.Placement.Distinct[h.Number].Attribute, h)}
	case cluster.ReasonSkew:
		return []cluster.Remedy{skewRaised(p.Placement.Spread[h.Number].Attribute, h)}
	default:
	}
	return nil
}

// ownRemedies returns changes of the task itself that avoid a blocker by other tasks.
func ownRemedies(p *cluster.Pending, h scheduler.Blocker) []cluster.Remedy {
	switch h.Code {
	case cluster.ReasonPort:
		return []cluster.Remedy{portOpened(h.Port)}
	case cluster.ReasonRelation:
		if h.Number >= 0 {
			return []cluster.Remedy{preferred(p.Placement.Relations[h.Number], h)}
		}
	case cluster.ReasonDevice:
		if h.Number < 0 {
			return nil
		}
		var all []cluster.Remedy
		r := p.Devices[h.Number]
		if len(r.Models) > 0 {
			all = append(all, anyModel(r, h.Number))
		}
		if left := max(r.Count, 1) - int(h.Short); r.Share == 0 && h.Short > 0 && left > 0 {
			all = append(all, fewerDevices(r, h.Number, left))
		}
		return all
	default:
	}
	return nil
}

// roomRemedies returns changes for missing room: free some on the node, or lower the task's demand.
func (s *search) roomRemedies(p *cluster.Pending, node string, short cluster.Demand) (all []cluster.Remedy) {
	if ends := fewestHolding(s.otherTasks(p, node), short); ends != nil {
		all = append(all, freeing(node, short, ends))
	}
	left := p.Demand.Sub(short)
	if (short.CPU == 0 || left.CPU > 0) && (short.Memory == 0 || left.Memory > 0) &&
		(short.Disk == 0 || left.Disk > 0) {
		all = append(all, lowered(short, left))
	}
	return all
}

// constraintRemedies returns changes that let in a node that does not meet a constraint.
func constraintRemedies(c cluster.Constraint, number int, n *scheduler.Node) (all []cluster.Remedy) {
	if looser, ok := loosen(c, n); ok {
		all = append(all, loosened(c, looser, number))
	}
	return append(all, dropped(c, number))
}

// loosen returns the constraint changed so that it lets the node in, and as few others as possible.
func loosen(c cluster.Constraint, n *scheduler.Node) (cluster.Constraint, bool) {
	v := n.Value(c.Attribute)
	if v == "" {
		return c, false
	}
	switch c.Op {
	case cluster.OpEqual, "":
		c = cluster.Constraint{Attribute: c.Attribute, Op: cluster.OpIn, Values: []string{c.Value, v}}
	case cluster.OpIn:
		c.Values = append(slices.Clone(c.Values), v)
	case cluster.OpNotIn:
		c.Values = slices.DeleteFunc(slices.Clone(c.Values), func(have string) bool { return have == v })
		if len(c.Values) == 0 {
			return c, false
		}
	case cluster.OpAtLeast, cluster.OpAtMost:
		c.Value = v
	case cluster.OpLess, cluster.OpMore:
		number, err := strconv.ParseInt(v, 10, 32)
		if err != nil {
			return c, false
		}
		if c.Op == cluster.OpLess {
			number += 2
		}
		c.Value = strconv.FormatInt(number-1, 10)
	case cluster.OpNotEqual, cluster.OpExists:
		return c, false
	default:
		return c, false
	}
	return c, scheduler.Matches(c, n)
}
