package advice

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// applyToTask makes the changes of a suggestion that concern a task. It copies lists of the task before it changes
// them. Changes of things that no longer exist are skipped.
func applyToTask(sg *cluster.Suggestion, p *cluster.Pending) {
	for i := range sg.Changes {
		toTask(&sg.Changes[i], p)
	}
}

// toFleet makes a change that concerns the fleet, and returns a function that undoes it.
func toFleet(c *cluster.Remedy, f *scheduler.Fleet) (undo func()) {
	switch c.Kind {
	case cluster.ChangeFree:
		return freeRoom(f, c.Attempts, c.Demand)
	case cluster.ChangeEnd:
		return endAttempts(f, c.Attempts)
	case cluster.ChangeAdd:
		return addMachines(f, c.Machine, c.Count)
	case cluster.ChangeUnreserve:
		return removeReservation(f, c.Reservation)
	case cluster.ChangeQuota:
		return setQuota(f, c.Cluster, c.Quota)
	default:
	}
	n, _, found := f.Node(c.Node)
	if !found {
		return func() {}
	}
	was := n
	switch c.Kind {
	case cluster.ChangeUncordon:
		n.Cordon, n.Drain = false, false
		if n.State == cluster.NodeDraining || n.State == cluster.NodeDrained {
			n.State = cluster.NodeReady
		}
	case cluster.ChangeRevive:
		n.State = cluster.NodeReady
	case cluster.ChangeUntaint:
		n.Taints = slices.DeleteFunc(slices.Clone(n.Taints), func(t cluster.Taint) bool { return t == *c.Taint })
	case cluster.ChangeJoin:
		n.Pool = c.Pool
	case cluster.ChangeExecutor:
		n.Executors = append(slices.Clone(n.Executors), c.Executor)
	case cluster.ChangeNetwork:
		n.Networks = append([]cluster.NetworkFact{{Mode: c.Network}}, n.Networks...) // the first entry of a mode counts
	default:
		return func() {}
	}
	f.SetNode(n)
	return func() { f.SetNode(was) }
}

// freeRoom lowers the demands of attempts by left in all.
func freeRoom(f *scheduler.Fleet, attempts []string, left cluster.Demand) (undo func()) {
	var were []scheduler.Reservation
	for _, uuid := range attempts {
		r, found := f.Reserved(uuid)
		if !found {
			continue
		}
		take := cluster.Demand{
			CPU: min(left.CPU, r.Demand.CPU), Memory: min(left.Memory, r.Demand.Memory),
			Disk: min(left.Disk, r.Demand.Disk),
		}
		were = append(were, r)
		left, r.Demand = left.Sub(take), r.Demand.Sub(take)
		f.Reserve(r)
	}
	return func() { reserve(f, were) }
}

// removeReservation removes a reservation from all nodes.
func removeReservation(f *scheduler.Fleet, name string) (undo func()) {
	var were []scheduler.Node
	for _, node := range f.Nodes() {
		n, _, _ := f.Node(node)
		has := func(r *cluster.Reservation) bool { return r.Name == name }
		if slices.ContainsFunc(n.Reserved, has) {
			were = append(were, n)
			n.Reserved = slices.DeleteFunc(slices.Clone(n.Reserved), has)
			f.SetNode(n)
		}
	}
	return func() {
		for _, n := range were {
			f.SetNode(n)
		}
	}
}

// setQuota replaces the quota of a cluster.
func setQuota(f *scheduler.Fleet, name string, q *cluster.Quota) (undo func()) {
	was := f.Limits.Quotas()[name]
	f.Limits.SetQuota(name, q)
	return func() { f.Limits.SetQuota(name, was) }
}

func endAttempts(f *scheduler.Fleet, attempts []string) (undo func()) {
	var were []scheduler.Reservation
	for _, uuid := range attempts {
		if r, found := f.Reserved(uuid); found {
			were = append(were, r)
			f.Release(uuid)
		}
	}
	return func() { reserve(f, were) }
}

func reserve(f *scheduler.Fleet, all []scheduler.Reservation) {
	for _, r := range all {
		f.Reserve(r)
	}
}

// addMachines adds nodes under unused names.
func addMachines(f *scheduler.Fleet, m *cluster.Machine, count int) (undo func()) {
	var names []string
	for i := 0; len(names) < max(count, 1); i++ {
		name := cmp.Or(m.Name, fmt.Sprintf("new-%d", i))
		if _, _, taken := f.Node(name); taken {
			if m.Name != "" {
				break
			}
			continue
		}
		f.SetNode(nodeOf(m, name))
		names = append(names, name)
	}
	return func() {
		for _, name := range names {
			f.RemoveNode(name)
		}
	}
}

func nodeOf(m *cluster.Machine, name string) scheduler.Node {
	return scheduler.Node{
		Name: name, State: cluster.NodeReady, Arch: m.Arch, OS: m.OS, Kernel: m.Kernel, Executors: m.Executors,
		Labels: m.Labels, Pool: m.Pool,
		Capacity: m.Capacity, Devices: m.Devices,
		// The parts that a node needs for networks are easy to install, and the node reports which of them it lacks.
		Networks: []cluster.NetworkFact{{Mode: cluster.NetworkBridge}, {Mode: cluster.NetworkNone}},
	}
}

// toTask makes a change that concerns the task. It copies the task's lists.
func toTask(c *cluster.Remedy, p *cluster.Pending) {
	pl := &p.Placement
	switch c.Kind {
	case cluster.ChangeRelease:
		p.Priority = max(p.Priority, 1)
	case cluster.ChangeWait:
		p.ExcludedNodes = slices.DeleteFunc(slices.Clone(p.ExcludedNodes), func(node string) bool {
			return node == c.Node
		})
	case cluster.ChangePort:
		p.Ports = slices.Clone(p.Ports)
		for i := range slices.Backward(p.Ports) { // of two equal ports the first keeps its number
			if p.Ports[i].Port == c.Port {
				p.Ports[i].Port = 0
				break
			}
		}
	case cluster.ChangeLower:
		p.Demand = p.Demand.Sub(c.Demand)
	case cluster.ChangeModel, cluster.ChangeDevices:
		p.Devices = slices.Clone(p.Devices)
		if c.Number < len(p.Devices) && c.Kind == cluster.ChangeModel {
			p.Devices[c.Number].Models = nil
		} else if c.Number < len(p.Devices) {
			p.Devices[c.Number].Count = c.Limit
		}
	case cluster.ChangeLoosen:
		pl.Constraints = slices.Clone(pl.Constraints)
		if i := slices.IndexFunc(pl.Constraints, func(k cluster.Constraint) bool {
			return sameConstraint(k, *c.Was)
		}); i >= 0 {
			pl.Constraints[i] = *c.Constraint
		}
	case cluster.ChangeDrop:
		pl.Constraints = slices.Clone(pl.Constraints)
		if i := slices.IndexFunc(pl.Constraints, func(k cluster.Constraint) bool {
			return sameConstraint(k, *c.Constraint)
		}); i >= 0 {
			pl.Constraints = slices.Delete(pl.Constraints, i, i+1)
		}
	case cluster.ChangeWish:
		pl.Relations = slices.Clone(pl.Relations)
		if c.Number < len(pl.Relations) {
			pl.Relations[c.Number].Required = false
		}
	case cluster.ChangeApart:
		pl.AntiAffinity = cluster.AntiAffinityPrefer
	case cluster.ChangeDistinct:
		pl.Distinct = slices.Clone(pl.Distinct)
		if c.Number < len(pl.Distinct) {
			pl.Distinct[c.Number].Most = c.Limit
		}
	case cluster.ChangeSkew:
		pl.Spread = slices.Clone(pl.Spread)
		if c.Number < len(pl.Spread) {
			pl.Spread[c.Number].MaxSkew = c.Limit
		}
	case cluster.ChangeConcurrency:
		if p.Concurrency != nil {
			p.Concurrency = &cluster.Concurrency{Group: p.Concurrency.Group, Limit: c.Limit}
		}
	case cluster.ChangeJobConcurrency:
		if p.JobConcurrency != nil {
			p.JobConcurrency = &cluster.Concurrency{Group: p.JobConcurrency.Group, Limit: c.Limit}
		}
	case cluster.ChangeTimeLimit:
		p.TimeLimit = c.TimeLimit
	case cluster.ChangePriority:
		p.Priority = c.Priority
	case cluster.ChangeTolerate:
		pl.Tolerations = append(slices.Clone(pl.Tolerations),
			cluster.Toleration{Key: c.Taint.Key, Value: c.Taint.Value, Effect: c.Taint.Effect})
	case cluster.ChangePool:
		pl.Pool = ""
	case cluster.ChangeUnasked:
		pl.Reservation = ""
	default:
	}
}

func sameConstraint(a, b cluster.Constraint) bool {
	return a.Attribute == b.Attribute && a.Op == b.Op && a.Value == b.Value && slices.Equal(a.Values, b.Values)
}
