package scheduler

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/admission"
	"github.com/berthd/berth/internal/logic/scheduler/cycle"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
)

// turns yields requests in the order in which they are to be placed. That is their order of decision, but for the
// requests in fair queues. Among these, the next is
//
//   - of the highest level of priority (see cycle.Level),
//   - then of the cluster whose jobs have the least dominant share for its weight,
//   - then of the user of that cluster whose jobs have the least,
//   - then the first in the order of decision.
//
// So each placement may change which request is next: this is progressive filling (Ghodsi et al., "Dominant Resource
// Fairness", 2011), first between clusters and then between the users of one.
//
// Nothing starves. A user whose jobs hold nothing rises to a higher level by waiting, as requests in other queues do
// (cycle.Rank), until one of them starts. The requests of one user are in the order of decision, in which they rise.
type turns struct {
	now      time.Time
	limits   *admission.Draft
	capacity admission.Capacity
	task     func(position int32) *cluster.Pending
	plain    []int32        // the positions that are in no fair queue
	clusters []*fairCluster // those with requests that had no turn yet
	all      []*fairCluster
	from     *fairCluster // that of the last request, if that is in a fair queue
}

// fairCluster is the requests of one cluster in fair queues.
type fairCluster struct {
	name   string
	weight float64
	share  float64     // divided by the weight
	users  []*fairUser // those with requests that had no turn yet
	all    int         // the number of all users
}

// fairUser is the requests of one user of a cluster in fair queues, in the order of decision. There is at least one.
type fairUser struct {
	name      string
	share     float64
	level     int // of the first request
	positions []int32
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
	clusters, users := map[string]*fairCluster{}, map[[2]string]*fairUser{}
	for _, i := range positions {
		p := task(i)
		if !isFair(p) {
			t.plain = append(t.plain, i)
			continue
		}
		key := [2]string{p.Owner.Cluster, p.User}
		u := users[key]
		if u == nil {
			c := clusters[p.Owner.Cluster]
			if c == nil {
				c = &fairCluster{name: p.Owner.Cluster, weight: float64(max(p.Weight, 1))}
				clusters[p.Owner.Cluster] = c
				t.clusters = append(t.clusters, c)
			}
			u = &fairUser{name: p.User}
			users[key] = u
			c.users = append(c.users, u)
		}
		u.positions = append(u.positions, i)
	}
	t.all = slices.Clone(t.clusters)
	for _, c := range t.clusters {
		c.all = len(c.users)
		t.measureCluster(c)
		for _, u := range c.users {
			t.measureUser(c, u)
		}
		heap.Init(c)
	}
	return t
}

// isFair reports whether a request is in a fair queue.
func isFair(p *cluster.Pending) bool {
	return p.Queue == cluster.QueueFair && p.Owner.Kind == cluster.KindJob
}

func (t *turns) measureCluster(c *fairCluster) {
	c.share = t.limits.Share(&t.capacity, c.name, "") / c.weight
}

func (t *turns) measureUser(c *fairCluster, u *fairUser) {
	u.share = t.limits.Share(&t.capacity, c.name, u.name)
	p := t.task(u.positions[0])
	if u.level = cycle.Level(p.Priority); u.share == 0 {
		u.level = cycle.Level(cycle.Rank(p, t.now))
	}
}

// next returns the position of the next request, those of the other members of its gang, and whether it is in a fair
// queue and only one task of it is to be placed. The caller then calls placed, or done for the request and all members.
// It returns nothing once all requests are done.
func (t *turns) next() (members []int32, isFair bool) {
	t.from = nil
	for _, c := range t.clusters {
		if t.from == nil || c.compare(t.from) < 0 {
			t.from = c
		}
	}
	switch {
	case t.from == nil:
		return t.gang(t.plain), false
	case len(t.plain) > 0 && t.plain[0] < t.from.users[0].positions[0]:
		t.from = nil
		return t.gang(t.plain), false
	}
	return t.gang(t.from.users[0].positions), true
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
func (t *turns) placed() {
	t.measureCluster(t.from)
	t.measureUser(t.from, t.from.users[0])
	heap.Fix(t.from, 0)
}

// done notes that the last request and all members of its gang had their turn.
func (t *turns) done(members int) {
	if t.from == nil {
		t.plain = t.plain[members:]
		return
	}
	c := t.from
	t.measureCluster(c)
	u := c.users[0]
	if u.positions = u.positions[members:]; len(u.positions) > 0 {
		t.measureUser(c, u)
		heap.Fix(c, 0)
		return
	}
	if heap.Pop(c); len(c.users) == 0 {
		t.clusters = slices.DeleteFunc(t.clusters, func(other *fairCluster) bool { return other == c })
	}
}

// maxOwed is the largest number of promises that a user gets in a cycle.
const maxOwed = 64

// owed returns the position of the last request, which found no room, and those of as many further tasks of its user
// with the same request as the user's jobs hold too little for. So the room that comes free is kept for them, even if
// it is too small until more comes free there. Otherwise others with smaller tasks, who hold more than their part,
// would take it piece by piece.
//
// The part of a cluster is its weight's part of what all clusters with requests hold, and the part of a user is an
// equal one of that.
func (t *turns) owed() []int32 {
	c, u := t.from, t.from.users[0]
	held, weights := 0.0, 0.0
	for _, other := range t.all {
		held, weights = held+other.share*other.weight, weights+other.weight
	}
	first := t.task(u.positions[0])
	part := held * c.weight / weights / float64(c.all)
	most := 1
	if each := t.capacity.Share(first.Demand, first.Devices); each > 0 {
		most = max(min(int((part-u.share)/each), maxOwed), 1)
	}
	var owed []int32
	for _, i := range u.positions {
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
		return u.positions[:1]
	}
	return owed
}

// compare orders clusters by their first requests.
func (c *fairCluster) compare(o *fairCluster) int {
	a, b := c.users[0], o.users[0]
	return cmp.Or(cmp.Compare(b.level, a.level), cmp.Compare(c.share, o.share),
		cmp.Compare(a.positions[0], b.positions[0]))
}

// A fairCluster is a heap of its users, as container/heap wants it.

func (c *fairCluster) Len() int { return len(c.users) }

func (c *fairCluster) Less(i, j int) bool {
	a, b := c.users[i], c.users[j]
	return cmp.Or(cmp.Compare(b.level, a.level), cmp.Compare(a.share, b.share),
		cmp.Compare(a.positions[0], b.positions[0])) < 0
}

func (c *fairCluster) Swap(i, j int) { c.users[i], c.users[j] = c.users[j], c.users[i] }

func (c *fairCluster) Push(x any) {
	if u, ok := x.(*fairUser); ok {
		c.users = append(c.users, u)
	}
}

func (c *fairCluster) Pop() any {
	last := len(c.users) - 1
	u := c.users[last]
	c.users = c.users[:last]
	return u
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
