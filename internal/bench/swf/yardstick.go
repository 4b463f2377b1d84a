package main

import (
	"cmp"
	"slices"
)

// yardstick is a policy of the literature: the queue in order of arrival, with backfill behind the head in the same
// order or shortest first. It is independent of Berth's policy. It agrees, ties included, with the program of the
// published figures. If several jobs end at the time of the head's reservation, it counts only the needed ones.
type yardstick struct {
	backfill, shortest bool
}

func (y yardstick) start(s *state) []int {
	line := slices.Clone(s.waiting)
	free := s.free
	var start []int
	type ending struct {
		at int64
		i  int
	}
	var ends []ending
	for _, r := range s.running {
		ends = append(ends, ending{max(r.limit, s.now), r.job})
	}
	run := func(i int) {
		free -= s.jobs[i].procs
		ends = append(ends, ending{s.now + s.jobs[i].limit, i})
		start = append(start, i)
	}
	for len(line) > 0 && s.jobs[line[0]].procs <= free {
		run(line[0])
		line = line[1:]
	}
	if len(line) == 0 || !y.backfill || free == 0 {
		return start
	}
	slices.SortFunc(ends, func(a, b ending) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.i, b.i)) })
	reserved, spare := int64(0), free
	for _, e := range ends {
		if spare += s.jobs[e.i].procs; spare >= s.jobs[line[0]].procs {
			reserved = e.at
			break
		}
	}
	spare -= s.jobs[line[0]].procs
	rest := line[1:]
	if y.shortest {
		slices.SortFunc(rest, func(a, b int) int {
			return cmp.Or(cmp.Compare(s.jobs[a].limit, s.jobs[b].limit), cmp.Compare(a, b))
		})
	}
	for _, i := range rest {
		late := s.now+s.jobs[i].limit > reserved
		if p := s.jobs[i].procs; p <= free && (!late || p <= spare) {
			if late {
				spare -= p
			}
			run(i)
		}
	}
	return start
}
