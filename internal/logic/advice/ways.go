package advice

import (
	"slices"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// imageExecutor is the executor that runs images, and what a node without any is to have.
const imageExecutor = "containerd"

// plainExecutor is the executor that runs programs without images, where the operator enables it.
const plainExecutor = "process"

// ways returns the changes that each overcome the first of a node's hurdles, or all that others there are at once.
func (s *search) ways(p *cluster.Pending, node string, hurdles []scheduler.Hurdle) []cluster.Remedy {
	n, _, _ := s.fleet.Node(node)
	var occupied []scheduler.Hurdle
	for _, h := range hurdles {
		switch h.Code {
		case cluster.ReasonShortCPU, cluster.ReasonShortMemory, cluster.ReasonShortDisk,
			cluster.ReasonPort, cluster.ReasonPortsSpent, cluster.ReasonDevice, cluster.ReasonRelation:
			occupied = append(occupied, h)
		default:
			return s.waysOf(p, &n, h)
		}
	}
	if short := shortOf(occupied); len(occupied) > 0 && onlyRoom(occupied) {
		return s.roomWays(p, node, short)
	}
	var all []cluster.Remedy
	for _, h := range occupied {
		if more := ownWays(p, h); more != nil {
			all = more
			break
		}
	}
	c, ok := s.ending(p, &n, occupied)
	if !ok { // the room may be found in another way
		c, ok = s.ending(p, &n, slices.DeleteFunc(occupied, isRoom))
	}
	if ok {
		all = append(all, c)
	}
	return all
}

// reservedWays returns what lets a task onto a node that is reserved for others, or where the reservation does not hold
// that it names.
func (s *search) reservedWays(p *cluster.Pending, n *scheduler.Node) []cluster.Remedy {
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

func onlyRoom(hurdles []scheduler.Hurdle) bool {
	return !slices.ContainsFunc(hurdles, func(h scheduler.Hurdle) bool { return !isRoom(h) })
}

func isRoom(h scheduler.Hurdle) bool {
	return h.Code == cluster.ReasonShortCPU || h.Code == cluster.ReasonShortMemory || h.Code == cluster.ReasonShortDisk
}

// waysOf returns the changes that overcome a hurdle that nobody else on the node is.
func (s *search) waysOf(p *cluster.Pending, n *scheduler.Node, h scheduler.Hurdle) []cluster.Remedy {
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
		return s.reservedWays(p, n)
	case cluster.ReasonTaint:
		t := n.Taints[h.Number]
		return []cluster.Remedy{tolerated(t), untainted(n, t)}
	case cluster.ReasonNoExecutor:
		return []cluster.Remedy{withExecutor(p, n)}
	case cluster.ReasonNetwork:
		return []cluster.Remedy{withNetwork(n, p.Network)}
	case cluster.ReasonConstraint:
		return constraintWays(p.Placement.Constraints[h.Number], h.Number, n)
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

// ownWays returns what the task itself may do about something that others hold.
func ownWays(p *cluster.Pending, h scheduler.Hurdle) []cluster.Remedy {
	switch h.Code {
	case cluster.ReasonPort:
		return []cluster.Remedy{portOpened(h.Port)}
	case cluster.ReasonRelation:
		if h.Number >= 0 {
			return []cluster.Remedy{wished(p.Placement.Relations[h.Number], h)}
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

// roomWays returns what helps where nothing but room is short: others have less of it there, or the task asks for less.
func (s *search) roomWays(p *cluster.Pending, node string, short cluster.Demand) (all []cluster.Remedy) {
	if ends := enough(s.others(p, node), short); ends != nil {
		all = append(all, freeing(node, short, ends))
	}
	left := p.Demand.Sub(short)
	if (short.CPU == 0 || left.CPU > 0) && (short.Memory == 0 || left.Memory > 0) &&
		(short.Disk == 0 || left.Disk > 0) {
		all = append(all, lowered(short, left))
	}
	return all
}

// constraintWays returns what lets a node in that does not meet a constraint.
func constraintWays(c cluster.Constraint, number int, n *scheduler.Node) (all []cluster.Remedy) {
	if looser, ok := loosen(c, n); ok {
		all = append(all, loosened(c, looser, number))
	}
	return append(all, dropped(c, number))
}

// loosen returns the constraint as it would let the node in, and as little else as may be.
func loosen(c cluster.Constraint, n *scheduler.Node) (cluster.Constraint, bool) {
	v := scheduler.Value(n, c.Attribute)
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
