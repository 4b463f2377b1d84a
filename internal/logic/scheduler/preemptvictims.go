package scheduler

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// victim is a Victim with a reservation.
type victim struct {
	*Victim
	slot int32
	gang int32 // -1 for none
	// owner is the number of an owner with a bound; -1 if the victim's end does not count.
	owner      int32
	gone       bool
	viewsFound bool // findViews ran
	frees      cluster.Demand
	devices    int64    // number of devices that it holds, in whole or in part
	groups     []*group // groups of waiting tasks that count it
	views      []*view
}

// indexVictims fills the tables of victims. It removes leaving victims from their nodes at once.
func (p *preempt) indexVictims() {
	p.starts = make([]int32, len(p.fleet.slots)+1)
	p.ordered = make([]bool, len(p.fleet.slots))
	p.victims = make([]victim, 0, len(p.in.Victims))
	numbers := map[string]int32{}
	for i := range p.in.Victims {
		v := victim{Victim: &p.in.Victims[i], gang: -1, owner: -1}
		held, found := p.fleet.held[v.UUID]
		if !found {
			continue
		}
		v.slot, v.frees, v.devices = p.fleet.byName[held.Node], held.Demand, int64(len(held.Devices))
		n := int32(len(p.victims))
		if !v.Leaving {
			p.starts[v.slot+1]++
			if v.Gang != "" {
				g, known := numbers[v.Gang]
				if !known {
					g = int32(len(p.gangs))
					numbers[v.Gang] = g
					p.gangs = append(p.gangs, nil)
				}
				p.gangs[g], v.gang = append(p.gangs[g], n), g
			}
			if !v.Unhealthy {
				v.owner = p.owner(v.Owner)
			}
		}
		p.victims = append(p.victims, v)
	}
	p.levels = make([]freeableLevel, 0, len(p.victims))
	for i := 1; i < len(p.starts); i++ {
		p.starts[i] += p.starts[i-1]
	}
	p.bySlot = make([]int32, p.starts[len(p.starts)-1])
	next := slices.Clone(p.starts)
	for i := range p.victims {
		v := &p.victims[i]
		if v.Leaving {
			v.gone = true
			p.chargeVictim(int32(i), -1, nil)
			continue
		}
		p.bySlot[next[v.slot]] = int32(i)
		next[v.slot]++
	}
	for _, g := range p.gangs {
		slices.SortFunc(g, func(a, b int32) int { return strings.Compare(p.victims[a].UUID, p.victims[b].UUID) })
	}
}

// owner returns the number of an owner that has a bound, or -1.
func (p *preempt) owner(o cluster.OwnerRef) int32 {
	if n, known := p.owners[o]; known {
		return n
	}
	n := int32(-1)
	if spare, bound := p.in.Spare[o]; bound {
		n = int32(len(p.spare))
		p.spare = append(p.spare, spare)
	}
	p.owners[o] = n
	return n
}

// victimsOn returns the victims on a node by priority, without leaving ones.
func (p *preempt) victimsOn(slot int32) []int32 {
	list := p.bySlot[p.starts[slot]:p.starts[slot+1]]
	if !p.ordered[slot] {
		p.ordered[slot] = true
		slices.SortFunc(list, func(a, b int32) int {
			x, y := &p.victims[a], &p.victims[b]
			if x.Priority != y.Priority {
				return cmp.Compare(x.Priority, y.Priority)
			}
			return strings.Compare(x.UUID, y.UUID)
		})
	}
	return list
}

// endVictim removes a victim with 1, or restores it with -1.
func (p *preempt) endVictim(n int32, sign int) {
	v := &p.victims[n]
	v.gone = sign > 0
	if v.owner >= 0 {
		p.spare[v.owner] -= sign
	}
	p.chargeVictim(n, -sign, nil)
	p.noteChange(v.slot)
}

// noteChange voids what was found out about a node.
func (p *preempt) noteChange(slot int32) {
	p.stamp[slot]++
	p.changed = append(p.changed, slot)
}

// chargeVictim removes a victim's usage from its node with -1, or restores it with 1. With a class, it changes only
// what the class depends on.
func (p *preempt) chargeVictim(n int32, sign int, c *taskClass) {
	v := &p.victims[n]
	l := p.ownLoad(v.slot)
	l.tasks += int32(sign)
	if sign < 0 {
		l.used = l.used.Sub(v.frees)
	} else {
		l.used = l.used.Add(v.frees)
	}
	if l.class >= 0 {
		p.fleet.catalog.rekey(l)
	}
	if c != nil && !c.group.isCounted && !c.usesValueModel && p.simple(c) {
		return
	}
	p.findViews(v)
	for _, g := range v.groups {
		p.countInGroup(g, v.slot, int32(sign))
	}
	for _, w := range v.views {
		w.add(p.cycle, v.slot, int32(sign))
	}
	ports, devices := c == nil || len(c.fixed)+c.auto > 0, c == nil || c.usesValueModel || len(c.requests) > 0
	if !ports && !devices {
		return
	}
	held := p.fleet.held[v.UUID]
	if devices && len(held.Devices) > 0 {
		p.useDevices(v.slot, held.Devices, sign)
	}
	if !ports {
		return
	}
	for _, port := range held.Ports {
		if sign < 0 {
			p.ownPorts(v.slot).remove(port)
		} else {
			p.ownPorts(v.slot).add(port)
		}
	}
}

// countInGroup adds tasks to a group and its views; a negative number removes them.
func (p *preempt) countInGroup(g *group, slot, tasks int32) {
	if g.placed == nil {
		g.placed = map[int32]int32{}
	}
	if g.placed[slot] += tasks; g.placed[slot] == 0 {
		delete(g.placed, slot)
	}
	for _, w := range g.views { // order-free: each for itself
		w.add(p.cycle, slot, tasks)
	}
}

// findViews finds the groups and views of waiting tasks that count the victim.
func (p *preempt) findViews(v *victim) {
	if v.viewsFound {
		return
	}
	v.viewsFound = true
	if len(p.waitingGroups)+len(p.relationViews)+len(p.exclusionViews) == 0 {
		return
	}
	held := p.fleet.held[v.UUID]
	if len(p.waitingGroups) > 0 {
		tasks, generation, definition := tasksOf(held.Task, held.Definition)
		reserved := p.fleet.reservedGroups[tasks].of(definition)
		for _, g := range p.waitingGroups[reserved] {
			if reserved == g.noDefinition || slices.Contains(g.countedGenerations, generation) {
				v.groups = append(v.groups, g)
			}
		}
	}
	name := clusterOf(held.Task)
	for _, w := range p.relationViews { // order-free: each for itself
		if relationSelects(&w.about, name, held.Labels) {
			v.views = append(v.views, w.view)
		}
	}
	for i := range held.Away {
		away := wholeRelation(held.Away[i], name)
		if w := p.exclusionViews[relationKey(&away)]; w != nil {
			v.views = append(v.views, w.view)
		}
	}
}
