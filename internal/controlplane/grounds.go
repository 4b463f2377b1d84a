package controlplane

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

const (
	// groundsKept is how many are kept, the newest: some three megabytes.
	groundsKept = 4096
	// groundsLooks bounds what finding the grounds of one cycle's decisions may cost, in looks at kinds of nodes: about
	// a millisecond. Of the decisions beyond that no grounds are kept, and who asks is told by the fleet of then.
	groundsLooks = 4096
	// groundsMost is of how many groups of tasks, in one cycle, that is tried.
	groundsMost = 512
)

// grounds is why tasks were placed where they are: soft state of a server, of its decisions while it led, a ring of the
// newest.
type grounds struct {
	mu   sync.Mutex
	ring []*ground
	next int                  // of ring, the one to be replaced
	by   map[string][]*ground // by what the ids of tasks have in common, the newest last
}

// ground is the grounds of the first of some tasks, with the tasks that they are kept for.
type ground struct {
	cluster.Grounds
	tasks string // all of their ids but the index
	spans []span
}

// span is tasks with neighbouring indices that got the same attempt.
type span struct{ first, last, attempt int }

func (g *ground) has(index, attempt int) bool {
	return slices.ContainsFunc(g.spans, func(s span) bool {
		return s.first <= index && index <= s.last && s.attempt == attempt
	})
}

// cutIndex splits a task's id; ok is false for what is none.
func cutIndex(id cluster.TaskID) (tasks string, index int, ok bool) {
	dot := strings.LastIndexByte(string(id), '.')
	if dot < 0 || dot+1 == len(id) || len(id)-dot > len("1234567890") {
		return "", 0, false
	}
	for _, digit := range []byte(id[dot+1:]) {
		if digit < '0' || digit > '9' {
			return "", 0, false
		}
		index = index*10 + int(digit-'0')
	}
	return string(id[:dot]), index, true
}

// gathered groups the placements of a cycle by the tasks that are alike, in the order of the decisions.
func gathered(pending []cluster.Pending, placed []scheduler.Placement) (all []*ground, first []int) {
	by := map[string]*ground{}
	var last *ground
	for i := range placed {
		tasks, index, ok := cutIndex(placed[i].Task)
		if !ok {
			continue
		}
		attempt := pending[placed[i].Pending].Attempt
		if last == nil || last.tasks != tasks {
			if last = by[tasks]; last == nil && len(all) == groundsMost {
				continue
			}
			if last == nil {
				last = &ground{tasks: tasks}
				last.Before = i
				by[tasks] = last
				all, first = append(all, last), append(first, i)
			}
		}
		last.Like++
		if n := len(last.spans) - 1; n >= 0 && last.spans[n].last+1 == index && last.spans[n].attempt == attempt {
			last.spans[n].last = index
		} else {
			last.spans = append(last.spans, span{index, index, attempt})
		}
	}
	return all, first
}

// note keeps the grounds of a cycle's placements, as the fleet is before them.
func (g *grounds) note(f *scheduler.Fleet, pending []cluster.Pending, placed []scheduler.Placement, c *Config) {
	if len(placed) == 0 {
		return
	}
	all, first := gathered(pending, placed)
	tasks, nodes := make([]cluster.Pending, 0, len(all)), make([]string, 0, len(all))
	for _, i := range first {
		tasks, nodes = append(tasks, pending[placed[i].Pending]), append(nodes, placed[i].Node)
	}
	g.keep(all, scheduler.Grounds(f, tasks, nodes, groundsLooks, c.Scheduler), c.Now())
}

func (g *grounds) keep(all []*ground, found []cluster.Grounds, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.by == nil {
		g.by = map[string][]*ground{}
	}
	for i := range found {
		at := all[i]
		found[i].At, found[i].Like, found[i].Before = now, at.Like, at.Before
		at.Grounds = found[i]
		if len(g.ring) < groundsKept {
			g.ring = append(g.ring, at)
		} else {
			g.drop(g.ring[g.next])
			g.ring[g.next] = at
			g.next = (g.next + 1) % groundsKept
		}
		g.by[at.tasks] = append(g.by[at.tasks], at)
	}
}

// drop forgets the oldest.
func (g *grounds) drop(old *ground) {
	rest := slices.DeleteFunc(g.by[old.tasks], func(o *ground) bool { return o == old })
	if len(rest) == 0 {
		delete(g.by, old.tasks)
		return
	}
	g.by[old.tasks] = rest
}

// of returns the newest that are kept of an attempt of a task.
func (g *grounds) of(task cluster.TaskID, attempt int) (cluster.Grounds, bool) {
	tasks, index, ok := cutIndex(task)
	if !ok {
		return cluster.Grounds{}, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, at := range slices.Backward(g.by[tasks]) {
		if at.has(index, attempt) {
			return at.Grounds, true
		}
	}
	return cluster.Grounds{}, false
}
