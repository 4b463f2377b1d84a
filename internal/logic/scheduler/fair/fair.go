// Package fair gives the requests in fair queues their turns. The next request is
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
//
// The scheduler and the forecast of starts take the order from here, so the two cannot differ.
package fair

import (
	"cmp"
	"container/heap"
	"slices"
)

// Source is what the order follows from.
type Source interface {
	// Compare is negative if request a comes before b in the order of decision.
	Compare(a, b int32) int
	// ClusterShare returns the dominant share of what the jobs of a cluster hold now.
	ClusterShare(c *Cluster) float64
	// UserShare returns the dominant share of what the jobs of a user hold now.
	UserShare(u *User) float64
	// Level returns the level of a request, whose user's jobs hold nothing or something.
	Level(request int32, holdsNothing bool) int
}

// Cluster is the requests of one cluster in fair queues. The caller sets the exported fields before Turns.Start.
type Cluster struct {
	ID     int32 // for the source
	Weight int   // at least 1
	Users  []*User

	share float64 // divided by the weight
	all   int     // the number of users at the start
}

// User is the requests of one user of a cluster in fair queues. The caller sets the exported fields before Turns.Start.
type User struct {
	ID       int32   // for the source
	Requests []int32 // those that had no turn yet, in the order of decision; at least one

	share float64
	level int // of the first request
}

// Turns yields requests in the order of their turns. It is for one goroutine. The zero value has none.
type Turns struct {
	source   Source
	clusters []*Cluster // those with requests that had no turn yet
	all      []*Cluster
	from     *Cluster // that of the last request
}

// Start begins with the requests of all clusters. Turns changes their fields from then on: Cluster.Users loses the
// users whose requests all had their turns.
func (t *Turns) Start(s Source, clusters []*Cluster) {
	t.source, t.from = s, nil
	t.clusters, t.all = append(t.clusters[:0], clusters...), append(t.all[:0], clusters...)
	for _, c := range clusters {
		c.all = len(c.Users)
		t.measureCluster(c)
		for _, u := range c.Users {
			t.measureUser(u)
		}
		heap.Init(order{t, c})
	}
}

func (t *Turns) measureCluster(c *Cluster) { c.share = t.source.ClusterShare(c) / float64(c.Weight) }

func (t *Turns) measureUser(u *User) {
	u.share = t.source.UserShare(u)
	u.level = t.source.Level(u.Requests[0], u.share == 0)
}

// Next returns the user whose first request is next, or nil once all had their turns. The caller then calls Placed or
// Done, unless it places another request first and calls Next again.
func (t *Turns) Next() *User {
	t.from = nil
	for _, c := range t.clusters {
		if t.from == nil || t.compare(c, t.from) < 0 {
			t.from = c
		}
	}
	if t.from == nil {
		return nil
	}
	return t.from.Users[0]
}

// Placed notes that a task of the last request was placed, and that the request stands for others.
func (t *Turns) Placed() {
	t.measureCluster(t.from)
	t.measureUser(t.from.Users[0])
	heap.Fix(order{t, t.from}, 0)
}

// Done notes that the last request and the ones behind it of its user, so many together, had their turn.
func (t *Turns) Done(requests int) {
	c := t.from
	t.measureCluster(c)
	u := c.Users[0]
	if u.Requests = u.Requests[requests:]; len(u.Requests) > 0 {
		t.measureUser(u)
		heap.Fix(order{t, c}, 0)
		return
	}
	if heap.Pop(order{t, c}); len(c.Users) == 0 {
		t.clusters = slices.DeleteFunc(t.clusters, func(other *Cluster) bool { return other == c })
	}
}

// maxOwed is the largest number of promises that a user gets in a cycle.
const maxOwed = 64

// Owed returns for how many tasks of the last request's user, each of a dominant share, its jobs hold too little: at
// least 1. So the room that comes free is kept for them, even if it is too small until more comes free there. Otherwise
// others with smaller tasks, who hold more than their part, would take it piece by piece.
//
// The part of a cluster is its weight's part of what all clusters with requests hold, and the part of a user is an
// equal one of that.
func (t *Turns) Owed(each float64) int {
	c := t.from
	held, weights := 0.0, 0.0
	for _, other := range t.all {
		held, weights = held+other.share*float64(other.Weight), weights+float64(other.Weight)
	}
	part := held * float64(c.Weight) / weights / float64(c.all)
	if each <= 0 {
		return 1
	}
	return max(min(int((part-c.Users[0].share)/each), maxOwed), 1)
}

// compare orders clusters by their first requests.
func (t *Turns) compare(c, o *Cluster) int {
	a, b := c.Users[0], o.Users[0]
	return cmp.Or(cmp.Compare(b.level, a.level), cmp.Compare(c.share, o.share),
		t.source.Compare(a.Requests[0], b.Requests[0]))
}

// order is a heap of the users of a cluster, as container/heap wants it.
type order struct {
	turns *Turns
	*Cluster
}

func (o order) Len() int { return len(o.Users) }

func (o order) Less(i, j int) bool {
	a, b := o.Users[i], o.Users[j]
	return cmp.Or(cmp.Compare(b.level, a.level), cmp.Compare(a.share, b.share),
		o.turns.source.Compare(a.Requests[0], b.Requests[0])) < 0
}

func (o order) Swap(i, j int) { o.Users[i], o.Users[j] = o.Users[j], o.Users[i] }

func (o order) Push(x any) {
	if u, ok := x.(*User); ok {
		o.Users = append(o.Users, u)
	}
}

func (o order) Pop() any {
	last := len(o.Users) - 1
	u := o.Users[last]
	o.Users = o.Users[:last]
	return u
}
