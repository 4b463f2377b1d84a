package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// Blockers returns, for each named node, all reasons for which it refuses the task; none if the node would take it. A
// refusal gives only the first reason. Of ports and devices that are not free, only the first is returned. Like Explain
// it considers the task alone. A node that the fleet lacks gets the code no-nodes.
func Blockers(f *Fleet, p cluster.Pending, nodes []string, opts Options) [][]Blocker {
	x := inquire(f, p, opts)
	x.preparer.prepare(x.c)
	all := make([][]Blocker, len(nodes))
	for i, name := range nodes {
		slot, found := f.search(name)
		if !found {
			all[i] = []Blocker{{Refusal: cluster.Refusal{Code: cluster.ReasonNoNodes}, Number: -1}}
			continue
		}
		all[i] = slices.Concat(
			nodeBlockers(x.c.task, x.c.now, x.nodes.node(slot)), x.placementBlockers(slot), x.roomBlockers(slot),
		)
		r := x.eval.refusal(x.c, slot)
		// The refusal is of a kind that the lists above do not cover.
		if r.Code != "" && !slices.ContainsFunc(all[i], func(h Blocker) bool { return h.Refusal == r }) {
			all[i] = append(all[i], Blocker{Refusal: r, Number: -1})
		}
	}
	return all
}

// placementBlockers returns the blockers by tasks on the node or near it: unmet terms, anti-affinity, and an earlier
// attempt.
func (x inquiry) placementBlockers(slot int32) (all []Blocker) {
	c := x.c
	add := func(code cluster.ReasonCode, detail string, number, least int) {
		all = append(all, Blocker{Refusal: cluster.Refusal{Code: code, Detail: detail}, Number: number, Least: least})
	}
	near := c.group.tasksOn(slot)
	if slices.Contains(c.excluded, slot) {
		add(cluster.ReasonOldAttempt, "", -1, 0)
	}
	if c.affinity == cluster.AntiAffinityDemand && near > 0 {
		add(cluster.ReasonAntiAffinity, "", -1, 0)
	}
	for i := range c.distincts {
		t := &c.distincts[i]
		if tasks := int(t.view.at(&x.nodes, slot)); tasks >= t.Most {
			add(cluster.ReasonDistinct, x.eval.unmetTermDetail(c, cluster.ReasonDistinct, int64(i), slot), i, tasks+1)
		}
	}
	for i := range c.spreads {
		t := &c.spreads[i]
		if t.MaxSkew == 0 {
			continue
		}
		tasks, least := t.view.at(&x.nodes, slot), x.eval.minTasksOf(c, t)
		if least < 0 || least > tasks { // the node is not feasible by itself: count it in all the same
			least = tasks
		}
		if skew := int(tasks + 1 - least); skew > t.MaxSkew {
			add(cluster.ReasonSkew, x.eval.unmetTermDetail(c, cluster.ReasonSkew, int64(i), slot), i, skew)
		}
	}
	for i := range c.relations {
		if t := &c.relations[i]; !t.met(t.at(&x.nodes, slot)) {
			add(cluster.ReasonRelation, relationText(&t.Relation), i, 0)
		}
	}
	for i := range c.exclusions {
		if c.exclusions[i].at(&x.nodes, slot) > 0 {
			add(cluster.ReasonRelation, c.exclusions[i].text, -1, 0)
		}
	}
	return all
}

// roomBlockers returns the blockers by what is free on the node.
func (x inquiry) roomBlockers(slot int32) (all []Blocker) {
	c := x.c
	add := func(r cluster.Refusal, number int) { all = append(all, Blocker{Refusal: r, Number: number}) }
	free := x.nodes.load(slot).free()
	codes := [...]cluster.ReasonCode{cluster.ReasonShortCPU, cluster.ReasonShortMemory, cluster.ReasonShortDisk}
	for i, short := range [...]int64{
		shortBy(int64(c.demand.CPU), int64(free.CPU)), shortBy(int64(c.demand.Memory), int64(free.Memory)),
		shortBy(int64(c.demand.Disk), int64(free.Disk)),
	} {
		if short > 0 {
			add(cluster.Refusal{Code: codes[i], Short: short}, -1)
		}
	}
	if len(c.devices.requests) > 0 {
		list := x.nodes.node(slot).Devices
		if _, i, used := assign(list, x.nodes.devicesOf(slot), c.devices.requests); i >= 0 {
			text, short := deviceText(list, used, &c.devices.requests[i])
			number := slices.IndexFunc(c.task.Devices, func(r cluster.DeviceRequest) bool {
				return sameRequest(wholeRequest(r), c.devices.requests[i])
			})
			add(cluster.Refusal{Code: cluster.ReasonDevice, Detail: text, Short: int64(short)}, number)
		}
	}
	if code, port := x.eval.portRefusal(c, slot); code != "" {
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
