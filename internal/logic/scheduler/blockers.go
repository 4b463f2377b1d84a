package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/devices"
	"github.com/berthd/berth/internal/logic/scheduler/feasibility"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// Blockers returns, for each named node, all reasons for which it refuses the task; none if the node would take it. A
// refusal gives only the first reason. Of ports and devices that are not free, only the first is returned. Like Explain
// it considers the task alone. A node that the fleet lacks gets the code no-nodes.
func Blockers(f *fleet.Fleet, p cluster.Pending, nodes []string, opts taskclass.Options) [][]feasibility.Blocker {
	x := inquire(f, p, opts)
	x.Preparer.Prepare(x.c)
	all := make([][]feasibility.Blocker, len(nodes))
	for i, name := range nodes {
		slot, found := f.Search(name)
		if !found {
			all[i] = []feasibility.Blocker{{Refusal: cluster.Refusal{Code: cluster.ReasonNoNodes}, Number: -1}}
			continue
		}
		all[i] = slices.Concat(
			feasibility.Blockers(x.c.Task, x.c.Now, x.Nodes.Node(slot)),
			x.placementBlockers(slot), x.roomBlockers(slot),
		)
		r := x.Eval.Refusal(x.c, slot)
		// The refusal is of a kind that the lists above do not cover.
		if r.Code != "" && !slices.ContainsFunc(all[i], func(h feasibility.Blocker) bool { return h.Refusal == r }) {
			all[i] = append(all[i], feasibility.Blocker{Refusal: r, Number: -1})
		}
	}
	return all
}

// placementBlockers returns the blockers by tasks on the node or near it: unmet terms, anti-affinity, and an earlier
// attempt.
func (x inquiry) placementBlockers(slot int32) (all []feasibility.Blocker) {
	c := x.c
	add := func(code cluster.ReasonCode, detail string, number, least int) {
		all = append(all, feasibility.Blocker{
			Refusal: cluster.Refusal{Code: code, Detail: detail}, Number: number, Least: least,
		})
	}
	near := c.Group.TasksOn(slot)
	if slices.Contains(c.Excluded, slot) {
		add(cluster.ReasonOldAttempt, "", -1, 0)
	}
	if c.Affinity == cluster.AntiAffinityDemand && near > 0 {
		add(cluster.ReasonAntiAffinity, "", -1, 0)
	}
	for i := range c.Distincts {
		t := &c.Distincts[i]
		if tasks := int(t.View.At(&x.Nodes, slot)); tasks >= t.Most {
			add(cluster.ReasonDistinct, x.Eval.UnmetTermDetail(c, cluster.ReasonDistinct, int64(i), slot), i, tasks+1)
		}
	}
	for i := range c.Spreads {
		t := &c.Spreads[i]
		if t.MaxSkew == 0 {
			continue
		}
		tasks, least := t.View.At(&x.Nodes, slot), x.Eval.MinTasksOf(c, t)
		if least < 0 || least > tasks { // the node is not feasible by itself: count it in all the same
			least = tasks
		}
		if skew := int(tasks + 1 - least); skew > t.MaxSkew {
			add(cluster.ReasonSkew, x.Eval.UnmetTermDetail(c, cluster.ReasonSkew, int64(i), slot), i, skew)
		}
	}
	for i := range c.Relations {
		if t := &c.Relations[i]; !t.Met(t.At(&x.Nodes, slot)) {
			add(cluster.ReasonRelation, taskclass.RelationText(&t.Relation), i, 0)
		}
	}
	for i := range c.Exclusions {
		if c.Exclusions[i].At(&x.Nodes, slot) > 0 {
			add(cluster.ReasonRelation, c.Exclusions[i].Text, -1, 0)
		}
	}
	return all
}

// roomBlockers returns the blockers by what is free on the node.
func (x inquiry) roomBlockers(slot int32) (all []feasibility.Blocker) {
	c := x.c
	add := func(r cluster.Refusal, number int) {
		all = append(all, feasibility.Blocker{Refusal: r, Number: number})
	}
	free := x.Nodes.Load(slot).Free()
	codes := [...]cluster.ReasonCode{cluster.ReasonShortCPU, cluster.ReasonShortMemory, cluster.ReasonShortDisk}
	for i, short := range [...]int64{
		shortBy(int64(c.Demand.CPU), int64(free.CPU)), shortBy(int64(c.Demand.Memory), int64(free.Memory)),
		shortBy(int64(c.Demand.Disk), int64(free.Disk)),
	} {
		if short > 0 {
			add(cluster.Refusal{Code: codes[i], Short: short}, -1)
		}
	}
	if len(c.Devices.Requests) > 0 {
		list := x.Nodes.Node(slot).Devices
		if _, i, used := devices.Assign(list, x.Nodes.DevicesOf(slot), c.Devices.Requests); i >= 0 {
			text, short := devices.Text(list, used, &c.Devices.Requests[i])
			number := slices.IndexFunc(c.Task.Devices, func(r cluster.DeviceRequest) bool {
				return devices.SameRequest(devices.WholeRequest(r), c.Devices.Requests[i])
			})
			add(cluster.Refusal{Code: cluster.ReasonDevice, Detail: text, Short: int64(short)}, number)
		}
	}
	if code, port := x.Eval.PortRefusal(c, slot); code != "" {
		add(cluster.Refusal{Code: code, Port: int(port)}, -1)
	}
	return all
}

// shortBy returns how much less is free than demanded; 0 for no demand.
func shortBy(demand, free int64) int64 {
	if demand == 0 {
		return 0
	}
	return demand - free
}
