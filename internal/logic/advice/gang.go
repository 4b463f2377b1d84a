package advice

import (
	"fmt"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// gang finds what would place a whole gang. It places the members that fit, and tries on the gang what the first other
// member needs. Then it tries to add nodes of one size. Then it sums up changes for one member after the other.
func (s *search) gang(members []cluster.Pending) Result {
	size := 0
	for i := range members {
		size = max(size, members[i].GangSize)
	}
	size = max(size, 1)
	members = slices.Clone(members)
	held := false
	for i := range members {
		members[i].Queue = "" // as in Find
		if members[i].Priority <= 0 {
			held, members[i].Priority = true, 1
		}
	}
	var base []cluster.Remedy
	if held {
		base = []cluster.Remedy{released()}
	}
	limits, undo := s.raiseLimits(members, size)
	defer undo()
	base = append(base, limits...)
	if s.placesGang(members, size) {
		if len(base) > 0 {
			return Result{Suggestions: []cluster.Suggestion{suggestionOf(&found{changes: base})}}
		}
		return Result{Placed: true}
	}
	if len(members) < size {
		return Result{} // no member can be placed until enough of them wait
	}
	r := s.adviseFirstUnplaced(members)
	r.Bounded = r.Bounded || s.bounded
	var whole []cluster.Suggestion
	for i := range r.Suggestions {
		if sg := &r.Suggestions[i]; s.countPlaced(sg, members) >= size {
			sg.Nodes = 0
			if c := &sg.Changes[0]; len(sg.Changes) == 1 && c.Kind == cluster.ChangeLower {
				*sg = s.smallestLowering(*c, members, size)
			}
			whole = append(whole, *sg)
		}
	}
	whole = slices.DeleteFunc(whole, func(sg cluster.Suggestion) bool {
		return sg.Changes[0].Kind == cluster.ChangeAdd
	})
	if sum := s.sumOfChanges(members, size); sum != nil && len(whole) < s.most &&
		!slices.ContainsFunc(whole, func(sg cluster.Suggestion) bool {
			return keyOf(sg.Changes) == keyOf(sum.Changes)
		}) {
		whole = append(whole, *sum)
	}
	if more := s.machines(members, size); more != nil {
		whole = slices.DeleteFunc(whole, func(sg cluster.Suggestion) bool { return sg.Text == more.Text })
		whole = append(whole[:min(len(whole), s.most-1)], *more)
	}
	if len(whole) == 0 {
		for i := range r.Suggestions {
			sg := &r.Suggestions[i]
			sg.Placed, sg.Size = s.countPlaced(sg, members), size
			sg.Text += fmt.Sprintf("; then %d of %d tasks find places", sg.Placed, size)
		}
		whole = r.Suggestions
	}
	for i := range whole {
		whole[i].Changes = slices.Concat(base, whole[i].Changes)
	}
	r.Suggestions = whole
	return r
}

// placesGang reports whether Schedule would place at least size members.
func (s *search) placesGang(members []cluster.Pending, size int) bool {
	s.tries++
	return len(scheduler.Schedule(s.fleet, members, s.opts).Placements) >= size
}

// countPlaced returns how many members Schedule would place after a suggestion.
func (s *search) countPlaced(sg *cluster.Suggestion, members []cluster.Pending) int {
	members = withoutGang(members)
	undo := s.change(sg.Changes)
	defer undo()
	for i := range members {
		applyToTask(sg, &members[i])
	}
	return len(scheduler.Schedule(s.fleet, members, s.opts).Placements)
}

// smallestLowering returns the smallest lowering of the demand that suffices if all members lower theirs. A single
// member lacks more than that.
func (s *search) smallestLowering(c cluster.Remedy, members []cluster.Pending, size int) cluster.Suggestion {
	const steps = 64
	asked := members[0].Demand
	scaled := func(step int64) cluster.Suggestion {
		d := c.Demand
		d.CPU, d.Memory, d.Disk = d.CPU*cluster.MilliCPU(step)/steps, d.Memory*cluster.Bytes(step)/steps,
			d.Disk*cluster.Bytes(step)/steps
		return suggestionOf(&found{changes: []cluster.Remedy{lowered(d, asked.Sub(d))}})
	}
	low, high := int64(0), int64(steps) // too little; enough
	for high-low > 1 {
		middle := (low + high) / 2
		if sg := scaled(middle); s.countPlaced(&sg, members) >= size {
			high = middle
		} else {
			low = middle
		}
	}
	return scaled(high)
}

// withoutGang returns the members as tasks without a gang.
func withoutGang(members []cluster.Pending) []cluster.Pending {
	members = slices.Clone(members)
	for i := range members {
		members[i].Gang = ""
	}
	return members
}

// adviseFirstUnplaced finds changes for the first member that is not placed, next to those that are.
func (s *search) adviseFirstUnplaced(members []cluster.Pending) Result {
	members = withoutGang(members)
	res := scheduler.Schedule(s.fleet, members, s.opts)
	undo := s.reserveTemporarily(members, res.Placements)
	defer undo()
	for i := range members {
		if !slices.ContainsFunc(res.Placements, func(pl scheduler.Placement) bool { return pl.Pending == i }) {
			return s.find(members[i])
		}
	}
	return Result{}
}

// reserveTemporarily reserves placements until undo is called.
func (s *search) reserveTemporarily(members []cluster.Pending, placements []scheduler.Placement) (undo func()) {
	var uuids []string
	for i := range placements {
		uuid := fmt.Sprint("advice-", i)
		s.fleet.Reserve(placements[i].Reservation(&members[placements[i].Pending], uuid))
		uuids = append(uuids, uuid)
	}
	s.byNode = nil
	return func() {
		for _, uuid := range uuids {
			s.fleet.Release(uuid)
		}
		s.byNode = nil
	}
}

// machines returns how many nodes of one member's size would take the remaining members.
func (s *search) machines(members []cluster.Pending, size int) *cluster.Suggestion {
	first := withoutGang(members[:1])[0]
	m := s.machine(&first)
	if m == nil || m.Name != "" {
		return nil
	}
	for count := 1; count <= size && s.tries < maxTries; count++ {
		sg := suggestionOf(&found{changes: []cluster.Remedy{s.added(m, count)}})
		if s.countPlaced(&sg, members) >= size {
			return &sg
		}
	}
	return nil
}

// sumOfChanges returns the smallest changes for one member after the other, until all are placed. It makes one change
// of several of one thing, and leaves out what later changes made needless.
func (s *search) sumOfChanges(members []cluster.Pending, size int) *cluster.Suggestion {
	changes := s.changesOfMembers(members, size)
	if changes == nil {
		return nil
	}
	suffice := func(changes []cluster.Remedy) bool {
		s.tries++
		return s.countPlaced(&cluster.Suggestion{Changes: changes}, members) >= size
	}
	if merged := s.merged(changes, members[0].Demand); suffice(merged) {
		changes = dropSpare(merged, suffice)
	}
	sum := suggestionOf(&found{changes: changes})
	return &sum
}

// changesOfMembers makes the smallest changes for one member after the other until all are placed; nil if they are not
// after maxChanges changes.
func (s *search) changesOfMembers(members []cluster.Pending, size int) (changes []cluster.Remedy) {
	var undos []func()
	defer func() {
		for _, undo := range slices.Backward(undos) {
			undo()
		}
		s.byNode = nil
	}()
	now := slices.Clone(members)
	for len(changes) < maxChanges {
		r := s.adviseFirstUnplaced(now)
		if len(r.Suggestions) == 0 {
			return nil
		}
		next := r.Suggestions[0]
		undos = append(undos, s.change(next.Changes))
		for i := range now {
			applyToTask(&next, &now[i])
		}
		changes = append(changes, next.Changes...)
		if s.placesGang(now, size) {
			return changes
		}
	}
	return nil
}
