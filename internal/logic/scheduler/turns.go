package scheduler

import (
	"cmp"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/admission"
	"github.com/berthd/berth/internal/logic/scheduler/cycle"
	"github.com/berthd/berth/internal/logic/scheduler/fair"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
)

// turns yields requests in the order in which they are to be placed. That is their order of decision, but for the
// requests in fair queues, whose turns are in package fair.
type turns struct {
	now      time.Time
	limits   *admission.Draft
	capacity admission.Capacity
	task     func(position int32) *cluster.Pending
	plain    []int32 // the positions that are in no fair queue
	fair     fair.Turns
	from     *fair.User  // that of the last request, if that is in a fair queue
	names    [][2]string // cluster and user, by the ID of a user
}

// newTurns returns the turns of the requests at the positions, which are in the order of decision.
func newTurns(f *fleet.Fleet, limits *admission.Draft, now time.Time, positions []int32,
	task func(position int32) *cluster.Pending,
) *turns {
	t := &turns{now: now, limits: limits, task: task}
	if !slices.ContainsFunc(positions, func(i int32) bool { return isFair(task(i)) }) {
		t.plain = positions
		return t
	}
	t.capacity = f.Capacity()
	var all []*fair.Cluster
	clusters, users := map[string]*fair.Cluster{}, map[[2]string]*fair.User{}
	for _, i := range positions {
		p := task(i)
		if !isFair(p) {
			t.plain = append(t.plain, i)
			continue
		}
		key := [2]string{p.Owner.Cluster, p.User}
		u := users[key]
		if u == nil {
			u = &fair.User{ID: int32(len(t.names))}
			t.names = append(t.names, key)
			c := clusters[p.Owner.Cluster]
			if c == nil { // its ID is that of its first user
				c = &fair.Cluster{ID: u.ID, Weight: max(p.Weight, 1)}
				clusters[p.Owner.Cluster] = c
				all = append(all, c)
			}
			users[key] = u
			c.Users = append(c.Users, u)
		}
		u.Requests = append(u.Requests, i)
	}
	t.fair.Start(t, all)
	return t
}

// isFair reports whether a request is in a fair queue.
func isFair(p *cluster.Pending) bool {
	return p.Queue == cluster.QueueFair && p.Owner.Kind == cluster.KindJob
}

// Compare implements fair.Source.
func (t *turns) Compare(a, b int32) int { return cmp.Compare(a, b) }

// ClusterShare implements fair.Source.
func (t *turns) ClusterShare(c *fair.Cluster) float64 {
	return t.limits.Share(&t.capacity, t.names[c.ID][0], "")
}

// UserShare implements fair.Source.
func (t *turns) UserShare(u *fair.User) float64 {
	return t.limits.Share(&t.capacity, t.names[u.ID][0], t.names[u.ID][1])
}

// Level implements fair.Source.
func (t *turns) Level(position int32, holdsNothing bool) int {
	return cycle.LevelOf(t.task(position), t.now, holdsNothing)
}

// next returns the position of the next request, those of the other members of its gang, and whether it is in a fair
// queue and only one task of it is to be placed. The caller then calls placed, or done for the request and all members.
// It returns nothing once all requests are done.
func (t *turns) next() (members []int32, isFair bool) {
	t.from = t.fair.Next()
	switch {
	case t.from == nil:
		return t.gang(t.plain), false
	case len(t.plain) > 0 && t.plain[0] < t.from.Requests[0]:
		t.from = nil
		return t.gang(t.plain), false
	}
	return t.gang(t.from.Requests), true
}

// gang returns the first of the positions, with those of the other members of its gang.
func (t *turns) gang(positions []int32) []int32 {
	if len(positions) == 0 {
		return nil
	}
	members, gang := 1, t.task(positions[0]).Gang
	for gang != "" && members < len(positions) && t.task(positions[members]).Gang == gang {
		members++
	}
	return positions[:members]
}

// placed notes that a task of the last request was placed, and that the request stands for others.
func (t *turns) placed() { t.fair.Placed() }

// done notes that the last request and all members of its gang had their turn.
func (t *turns) done(members int) {
	if t.from == nil {
		t.plain = t.plain[members:]
		return
	}
	t.fair.Done(members)
}

// owed returns the position of the last request, which found no room, and those of as many further tasks of its user
// with the same request as the user's jobs hold too little for (fair.Turns.Owed).
func (t *turns) owed() []int32 {
	u := t.from
	first := t.task(u.Requests[0])
	most := t.fair.Owed(t.capacity.Share(first.Demand, first.Devices))
	var owed []int32
	for _, i := range u.Requests {
		p := t.task(i)
		if p.Demand != first.Demand || p.Gang != "" || len(p.Devices)+len(first.Devices) > 0 ||
			p.Placement.Pool != first.Placement.Pool {
			break
		}
		for range p.Tasks() {
			if len(owed) == most {
				return owed
			}
			owed = append(owed, i)
		}
	}
	if len(owed) == 0 { // it requests devices
		return u.Requests[:1]
	}
	return owed
}

// maxCountedTasks is the largest number of tasks of one request that Order counts one after the other.
const maxCountedTasks = 10_000

// Turn is the place of a request in the order of placement.
type Turn struct {
	Pending int // index of the request
	Ahead   int // the number of tasks whose turn is before that of its first task
}

// Order returns the pending requests in the order in which Schedule places them, as far as each finds room, and the
// indices of those that are held. In fair queues the tasks of several requests take turns. The order is then that of
// their first tasks, and counts the first 10,000 tasks of each request. Requests whose first tasks exceed the quota of
// their cluster come last if it may borrow.
func Order(f *fleet.Fleet, pending []cluster.Pending, now time.Time) (order []Turn, held []int32) {
	by, held := cycle.Order(pending, now)
	positions := make([]int32, len(by))
	for i := range positions {
		positions[i] = int32(i)
	}
	task := func(position int32) *cluster.Pending { return &pending[by[position]] }
	limits := admission.NewDraft(&f.Limits)
	t := newTurns(f, &limits, now, positions, task)
	ahead, counted := 0, map[int32]int{} // how many tasks of a request had their turn
	var deferred []int32
	for members, isFair := t.next(); len(members) > 0; members, isFair = t.next() {
		if counted[members[0]] == 0 && borrowsAny(&limits, members, task) {
			deferred = append(deferred, members...)
			t.done(len(members))
			continue
		}
		for _, m := range members {
			if counted[m] == 0 {
				order = append(order, Turn{int(by[m]), ahead})
			}
			p := task(m)
			turn := p.Tasks() - counted[m]
			if single := len(members) == 1 && isFair && counted[m] < maxCountedTasks; single {
				turn = min(turn, max(1, min(p.Tasks(), maxCountedTasks)/64))
			}
			if isFair || limits.MayBorrow(p) {
				countTurn(&limits, p, counted[m], min(turn, maxCountedTasks))
			}
			ahead, counted[m] = ahead+turn, counted[m]+turn
		}
		if p := task(members[0]); len(members) == 1 && isFair && counted[members[0]] < p.Tasks() {
			t.placed()
			continue
		}
		t.done(len(members))
	}
	slices.Sort(deferred)
	for _, m := range deferred {
		order = append(order, Turn{int(by[m]), ahead})
		ahead += task(m).Tasks()
	}
	return order, held
}

// borrowsAny reports whether the cluster of a request, or of the members of a gang, borrows for the first task of one
// of them.
func borrowsAny(limits *admission.Draft, members []int32, task func(position int32) *cluster.Pending) (found bool) {
	if !limits.MayBorrow(task(members[0])) {
		return false
	}
	n := 0
	for ; n < len(members) && !found; n++ {
		found = limits.Judge(task(members[n])) == admission.Borrows
		limits.Add(task(members[n]), 1)
	}
	for _, m := range members[:n] {
		limits.Add(task(m), -1)
	}
	return found
}

// countTurn counts tasks of a request as placed, from the one of that number on.
func countTurn(limits *admission.Draft, p *cluster.Pending, from, turn int) {
	one := p.Single()
	for n := range turn {
		one.Task = p.Task.Offset(from + n)
		limits.Add(&one, 1)
	}
}
