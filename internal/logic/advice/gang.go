package advice

import (
	"fmt"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// gang looks for what would place a whole gang. The members that find places alone are given them, and what the first
// of the others lacks is tried on the gang; then more nodes of one size; then the changes for one member after the
// other, added up.
func (s *search) gang(members []cluster.Pending) Result {
	size := 0
	for i := range members {
		size = max(size, members[i].GangSize)
	}
	size = max(size, 1)
	members = slices.Clone(members)
	held := false
	for i := range members {
		if members[i].Priority <= 0 {
			held, members[i].Priority = true, 1
		}
	}
	var base []cluster.Remedy
	if held {
		base = []cluster.Remedy{released()}
	}
	if s.placed(members, size) {
		if held {
			return Result{Suggestions: []cluster.Suggestion{told(&found{changes: base})}}
		}
		return Result{Placed: true}
	}
	if len(members) < size {
		return Result{} // the others have to wait, too, before anything can be placed
	}
	r := s.lacking(members)
	r.Bounded = r.Bounded || s.bounded
	var whole []cluster.Suggestion
	for i := range r.Suggestions {
		if sg := &r.Suggestions[i]; s.wouldPlace(sg, members) >= size {
			sg.Nodes = 0
			if c := &sg.Changes[0]; len(sg.Changes) == 1 && c.Kind == cluster.ChangeLower {
				*sg = s.lowerLess(*c, members, size)
			}
			whole = append(whole, *sg)
		}
	}
	whole = slices.DeleteFunc(whole, func(sg cluster.Suggestion) bool {
		return sg.Changes[0].Kind == cluster.ChangeAdd
	})
	if sum := s.addUp(members, size); sum != nil && len(whole) < s.most &&
		!slices.ContainsFunc(whole, func(sg cluster.Suggestion) bool {
			return keyOf(sg.Changes) == keyOf(sum.Changes)
		}) {
		whole = append(whole, *sum)
	}
	if more := s.machines(members, size); more != nil {
		whole = append(whole[:min(len(whole), s.most-1)], *more)
	}
	if len(whole) == 0 {
		for i := range r.Suggestions {
			sg := &r.Suggestions[i]
			sg.Placed, sg.Size = s.wouldPlace(sg, members), size
			sg.Text += fmt.Sprintf("; %d of %d tasks would find places then", sg.Placed, size)
		}
		whole = r.Suggestions
	}
	for i := range whole {
		whole[i].Changes = slices.Concat(base, whole[i].Changes)
	}
	r.Suggestions = whole
	return r
}

// placed reports whether so many of the gang would be placed together.
func (s *search) placed(members []cluster.Pending, size int) bool {
	s.tries++
	return len(scheduler.Schedule(s.fleet, members, s.opts).Placements) >= size
}

// wouldPlace returns how many of the gang's members would find places after a suggestion.
func (s *search) wouldPlace(sg *cluster.Suggestion, members []cluster.Pending) int {
	members = apart(members)
	var undos []func()
	for i := range sg.Changes {
		undos = append(undos, toFleet(&sg.Changes[i], s.fleet))
	}
	for i := range members {
		ApplyToTask(sg, &members[i])
	}
	placed := len(scheduler.Schedule(s.fleet, members, s.opts).Placements)
	for _, undo := range slices.Backward(undos) {
		undo()
	}
	return placed
}

// lowerLess looks for the least by which all members would have to ask for less: what one of them alone lacks is more
// than that.
func (s *search) lowerLess(c cluster.Remedy, members []cluster.Pending, size int) cluster.Suggestion {
	const steps = 64
	asked := members[0].Demand
	scaled := func(step int64) cluster.Suggestion {
		d := c.Demand
		d.CPU, d.Memory, d.Disk = d.CPU*cluster.MilliCPU(step)/steps, d.Memory*cluster.Bytes(step)/steps,
			d.Disk*cluster.Bytes(step)/steps
		return told(&found{changes: []cluster.Remedy{lowered(d, asked.Sub(d))}})
	}
	low, high := int64(0), int64(steps) // too little, and enough
	for high-low > 1 {
		middle := (low + high) / 2
		if sg := scaled(middle); s.wouldPlace(&sg, members) >= size {
			high = middle
		} else {
			low = middle
		}
	}
	return scaled(high)
}

// apart returns the members as tasks of no gang.
func apart(members []cluster.Pending) []cluster.Pending {
	members = slices.Clone(members)
	for i := range members {
		members[i].Gang = ""
	}
	return members
}

// lacking advises on the first member that finds no place beside those that do.
func (s *search) lacking(members []cluster.Pending) Result {
	members = apart(members)
	res := scheduler.Schedule(s.fleet, members, s.opts)
	undo := s.take(members, res.Placements)
	defer undo()
	for i := range members {
		if !slices.ContainsFunc(res.Placements, func(pl scheduler.Placement) bool { return pl.Pending == i }) {
			return s.find(members[i])
		}
	}
	return Result{}
}

// take reserves placements for a while.
func (s *search) take(members []cluster.Pending, placements []scheduler.Placement) (undo func()) {
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

// machines looks for how many nodes of the size of one member would take the rest.
func (s *search) machines(members []cluster.Pending, size int) *cluster.Suggestion {
	first := apart(members[:1])[0]
	m := s.machine(&first)
	if m == nil || m.Name != "" {
		return nil
	}
	for count := 1; count <= size && s.tries < mostTries; count++ {
		sg := told(&found{changes: []cluster.Remedy{added(m, count)}})
		if s.wouldPlace(&sg, members) >= size {
			return &sg
		}
	}
	return nil
}

// addUp makes the smallest change for one member after the other until all find places.
func (s *search) addUp(members []cluster.Pending, size int) *cluster.Suggestion {
	var sum cluster.Suggestion
	var undos []func()
	defer func() {
		for _, undo := range slices.Backward(undos) {
			undo()
		}
		s.byNode = nil
	}()
	now := slices.Clone(members)
	for len(sum.Changes) < mostChanges {
		r := s.lacking(now)
		if len(r.Suggestions) == 0 {
			return nil
		}
		next := r.Suggestions[0]
		for i := range next.Changes {
			undos = append(undos, toFleet(&next.Changes[i], s.fleet))
		}
		for i := range now {
			ApplyToTask(&next, &now[i])
		}
		sum.Changes = append(sum.Changes, next.Changes...)
		if s.placed(now, size) {
			sum = told(&found{changes: sum.Changes})
			return &sum
		}
	}
	return nil
}
