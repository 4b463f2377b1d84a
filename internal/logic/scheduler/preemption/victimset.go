package preemption

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/admission"
	"github.com/berthd/berth/internal/logic/scheduler/cycle"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
	"github.com/berthd/berth/internal/logic/scheduler/rank"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// victimSet is the attempts that may end, and which of them have ended so far. The resources of an ended victim are
// free on its node, and no view or group counts it; the owner's bound has one less to spare. Every change of a node
// raises its stamp.
type victimSet struct {
	*cycle.Cycle
	list          []victim
	gangs         [][]int32 // the members of each gang, as indices into list
	starts        []int32   // by slot, the start of its part of bySlot
	bySlot        []int32   // indices of victims by slot, without leaving ones; by priority where ordered
	ordered       []bool    // by slot: its part of bySlot is sorted
	bounds        map[cluster.OwnerRef]int
	owners        map[cluster.OwnerRef]int32
	spare         []int // by number of an owner with a bound: how many more may end
	waitingGroups map[*fleet.ReservedGroup][]*taskclass.Group
	changed       []int32 // slots in the order of their changes
	stamp         []int32 // by slot, the number of its changes
	loans         admission.Loans
}

// newVictimSet returns a set without victims. The bounds are how many healthy tasks each owner may lose.
func newVictimSet(y *cycle.Cycle, bounds map[cluster.OwnerRef]int) victimSet {
	s := victimSet{
		Cycle: y, bounds: bounds, owners: map[cluster.OwnerRef]int32{},
		waitingGroups: map[*fleet.ReservedGroup][]*taskclass.Group{}, stamp: make([]int32, y.Nodes.Fleet.SlotCount()),
		loans: y.Nodes.Fleet.Limits.Loans(),
	}
	for _, g := range y.Classes.Groups { // order-free: each for itself
		for ; g != nil; g = g.Next {
			for _, known := range []*fleet.ReservedGroup{g.SameDefinition, g.NoDefinition} {
				if known != nil {
					s.waitingGroups[known] = append(s.waitingGroups[known], g)
				}
			}
		}
	}
	return s
}

// index fills the tables of victims. It removes leaving victims from their nodes first.
func (s *victimSet) index(victims []Victim) {
	s.starts = make([]int32, s.Nodes.Fleet.SlotCount()+1)
	s.ordered = make([]bool, s.Nodes.Fleet.SlotCount())
	s.list = make([]victim, 0, len(victims))
	numbers := map[string]int32{}
	for i := range victims {
		v := victim{Victim: &victims[i], gang: -1, owner: -1}
		held, found := s.Nodes.Fleet.Reserved(v.UUID)
		if !found {
			continue
		}
		v.slot, v.frees, v.devices = s.Nodes.Fleet.SlotNamed(held.Node), held.Demand, int64(len(held.Devices))
		if !s.loans.IsEmpty() {
			if h := held.Holding(); s.loans.Has(h.Cluster) {
				v.holding, v.started = &h, held.Started
			}
		}
		n := int32(len(s.list))
		if !v.Leaving {
			s.starts[v.slot+1]++
			if v.Gang != "" {
				g, known := numbers[v.Gang]
				if !known {
					g = int32(len(s.gangs))
					numbers[v.Gang] = g
					s.gangs = append(s.gangs, nil)
				}
				s.gangs[g], v.gang = append(s.gangs[g], n), g
			}
			if !v.Unhealthy {
				v.owner = s.owner(v.Owner)
			}
		}
		s.list = append(s.list, v)
	}
	for i := 1; i < len(s.starts); i++ {
		s.starts[i] += s.starts[i-1]
	}
	s.bySlot = make([]int32, s.starts[len(s.starts)-1])
	next := slices.Clone(s.starts)
	for i := range s.list {
		v := &s.list[i]
		if v.Leaving {
			v.gone = true
			s.repay(v, 1)
			s.charge(int32(i), -1, nil)
			continue
		}
		s.bySlot[next[v.slot]] = int32(i)
		next[v.slot]++
	}
	for _, g := range s.gangs {
		slices.SortFunc(g, func(a, b int32) int { return strings.Compare(s.list[a].UUID, s.list[b].UUID) })
	}
}

// owner returns the number of an owner that has a bound, or -1.
func (s *victimSet) owner(o cluster.OwnerRef) int32 {
	if n, known := s.owners[o]; known {
		return n
	}
	n := int32(-1)
	if spare, bound := s.bounds[o]; bound {
		n = int32(len(s.spare))
		s.spare = append(s.spare, spare)
	}
	s.owners[o] = n
	return n
}

// on returns the victims on a node by priority, without leaving ones.
func (s *victimSet) on(slot int32) []int32 {
	list := s.bySlot[s.starts[slot]:s.starts[slot+1]]
	if !s.ordered[slot] {
		s.ordered[slot] = true
		slices.SortFunc(list, func(a, b int32) int {
			x, y := &s.list[a], &s.list[b]
			if x.Priority != y.Priority {
				return cmp.Compare(x.Priority, y.Priority)
			}
			return strings.Compare(x.UUID, y.UUID)
		})
	}
	return list
}

// end removes a victim with 1, or restores it with -1.
func (s *victimSet) end(n int32, sign int) {
	v := &s.list[n]
	v.gone = sign > 0
	if v.owner >= 0 {
		s.spare[v.owner] -= sign
	}
	s.repay(v, sign)
	s.charge(n, -sign, nil)
	s.noteChange(v.slot)
}

// repay takes a victim from the loans of its cluster with 1, and adds it again with -1.
func (s *victimSet) repay(v *victim, sign int) {
	if v.holding != nil {
		s.loans.End(v.holding, int64(sign))
	}
}

// noteChange voids what was found out about a node.
func (s *victimSet) noteChange(slot int32) {
	s.stamp[slot]++
	s.changed = append(s.changed, slot)
}

// charge removes a victim's usage from its node with -1, or restores it with 1. With a class, it changes only
// what the class depends on.
func (s *victimSet) charge(n int32, sign int, c *taskclass.Class) {
	v := &s.list[n]
	l := s.Nodes.OwnLoad(v.slot)
	l.Tasks += int32(sign)
	if sign < 0 {
		l.Used = l.Used.Sub(v.frees)
	} else {
		l.Used = l.Used.Add(v.frees)
	}
	if l.Class >= 0 {
		s.Nodes.Fleet.Catalog.Rekey(l)
	}
	if c != nil && !c.Group.IsCounted && !c.Devices.UsesValueModel && c.AsksOnlyRoom() {
		return
	}
	s.findViews(v)
	for _, g := range v.groups {
		s.countInGroup(g, v.slot, int32(sign))
	}
	for _, w := range v.views {
		w.Add(&s.Nodes, v.slot, int32(sign))
	}
	ports, devices := c == nil || c.Ports.Any(), c == nil || c.Devices.UsesValueModel || len(c.Devices.Requests) > 0
	if !ports && !devices {
		return
	}
	held, _ := s.Nodes.Fleet.Reserved(v.UUID)
	if devices && len(held.Devices) > 0 {
		s.Nodes.UseDevices(v.slot, held.Devices, sign)
	}
	if !ports {
		return
	}
	for _, port := range held.Ports {
		if sign < 0 {
			s.Nodes.OwnPorts(v.slot).Remove(port)
		} else {
			s.Nodes.OwnPorts(v.slot).Add(port)
		}
	}
}

// countInGroup adds tasks to a group and its views; a negative number removes them.
func (s *victimSet) countInGroup(g *taskclass.Group, slot, tasks int32) {
	if g.Placed == nil {
		g.Placed = map[int32]int32{}
	}
	if g.Placed[slot] += tasks; g.Placed[slot] == 0 {
		delete(g.Placed, slot)
	}
	for _, w := range g.Views { // order-free: each for itself
		w.Add(&s.Nodes, slot, tasks)
	}
}

// findViews finds the groups and views of waiting tasks that count the victim.
func (s *victimSet) findViews(v *victim) {
	if v.viewsFound {
		return
	}
	v.viewsFound = true
	if len(s.waitingGroups)+len(s.Views.Relations)+len(s.Views.Exclusions) == 0 {
		return
	}
	held, _ := s.Nodes.Fleet.Reserved(v.UUID)
	if len(s.waitingGroups) > 0 {
		tasks, generation, definition := fleet.TasksOf(held.Task, held.Definition)
		reserved := s.Nodes.Fleet.ReservedGroups.Of(tasks, definition)
		for _, g := range s.waitingGroups[reserved] {
			if reserved == g.NoDefinition || slices.Contains(g.CountedGenerations, generation) {
				v.groups = append(v.groups, g)
			}
		}
	}
	name := fleet.ClusterOf(held.Task)
	for _, w := range s.Views.Relations { // order-free: each for itself
		if fleet.Selects(&w.About, name, held.Labels) {
			v.views = append(v.views, w.View)
		}
	}
	for i := range held.Away {
		away := fleet.WholeRelation(held.Away[i], name)
		if w := s.Views.Exclusions[fleet.RelationKey(&away)]; w != nil {
			v.views = append(v.views, w.View)
		}
	}
}

// hasNoRelated reports whether ending victims cannot change the terms of any class: there is no task that groups or
// relations count.
func (s *victimSet) hasNoRelated() bool {
	return len(s.waitingGroups)+len(s.Views.Relations)+len(s.Views.Exclusions) == 0
}

// ownersCanSpare reports whether the owners can spare the victims.
func (s *victimSet) ownersCanSpare(victims []int32) bool {
	ok := true
	for _, v := range victims {
		if o := s.list[v].owner; o >= 0 {
			s.spare[o]--
			ok = ok && s.spare[o] >= 0
		}
	}
	for _, v := range victims {
		if o := s.list[v].owner; o >= 0 {
			s.spare[o]++
		}
	}
	return ok
}

// rankWithout returns the rank of a node after victims have ended.
func (s *victimSet) rankWithout(c *taskclass.Class, slot int32, victims []int32) rank.Rank {
	for _, v := range victims {
		s.charge(v, -1, c)
	}
	r := s.Eval.RankOf(c, slot)
	for _, v := range victims {
		s.charge(v, 1, c)
	}
	return r
}

// chargeOwners charges victims to their owners with 1, or takes that back with -1.
func (s *victimSet) chargeOwners(members []int32, sign int) {
	for _, n := range members {
		if o := s.list[n].owner; o >= 0 {
			s.spare[o] -= sign
		}
	}
}

// ownersWithinBound reports whether the owners of victims lose no more than they can spare, by the present charges.
func (s *victimSet) ownersWithinBound(members []int32) bool {
	return !slices.ContainsFunc(members, func(n int32) bool {
		o := s.list[n].owner
		return o >= 0 && s.spare[o] < 0
	})
}
