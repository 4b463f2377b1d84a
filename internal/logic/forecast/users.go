package forecast

import (
	"cmp"
	"slices"

	"github.com/berthd/berth/internal/logic/admission"
	"github.com/berthd/berth/internal/logic/scheduler/fair"
)

// User is a user of a cluster with tasks of jobs.
type User struct {
	Cluster int32 // index into Input.Clusters
	// Unnamed says that the name of the user is not known. What its jobs hold counts for the cluster alone, and its
	// share is that of the cluster.
	Unnamed bool
}

// Cluster is a cluster with tasks of jobs.
type Cluster struct {
	Weight int // in fair queues; at least 1
}

// fairQueues are the waiting requests of fair queues, and what the jobs of users and clusters hold.
type fairQueues struct {
	turns    fair.Turns
	waiting  [][]int32 // by user, in the order of decision
	users    []fair.User
	clusters []fair.Cluster
	present  []*fair.Cluster // those with requests in this moment's turns
	held     []Amounts       // by user
	heldBy   []Amounts       // by cluster
}

func newFairQueues(p *plan) fairQueues {
	q := fairQueues{
		waiting: make([][]int32, len(p.Users)), users: make([]fair.User, len(p.Users)),
		clusters: make([]fair.Cluster, len(p.Clusters)), held: make([]Amounts, len(p.Users)),
		heldBy: make([]Amounts, len(p.Clusters)),
	}
	for i := range q.users {
		q.users[i].ID = int32(i)
	}
	for i := range q.clusters {
		q.clusters[i].ID, q.clusters[i].Weight = int32(i), max(p.Clusters[i].Weight, 1)
	}
	return q
}

// isFair reports whether a request is in a fair queue.
func (f *future) isFair(q int32) bool {
	return f.Lines[f.classes[f.queue[q].class].line].Policy == Fair
}

// countHeld adds a demand to what the jobs of a user hold, or takes it.
func (f *future) countHeld(user int32, demand *Amounts, sign int64) {
	if int(user) >= len(f.fair.held) {
		return
	}
	held, heldBy := &f.fair.held[user], &f.fair.heldBy[f.Users[user].Cluster]
	for d := range demand {
		held[d] += sign * demand[d]
		heldBy[d] += sign * demand[d]
	}
}

// startFair begins the turns of the chosen requests of fair queues, or of all that wait.
func (f *future) startFair(chosen []int32) {
	q := &f.fair
	if len(q.users) == 0 {
		return
	}
	for i := range q.users {
		q.users[i].Requests = nil
		if chosen == nil {
			q.users[i].Requests = q.waiting[i]
		}
	}
	for _, r := range chosen {
		if f.isFair(r) {
			u := &q.users[f.queue[r].user]
			u.Requests = append(u.Requests, r)
		}
	}
	for i := range q.clusters {
		q.clusters[i].Users = q.clusters[i].Users[:0]
	}
	q.present = q.present[:0]
	for i := range q.users {
		if u := &q.users[i]; len(u.Requests) > 0 {
			f.work -= workPerFairTurn
			c := &q.clusters[f.Users[i].Cluster]
			if len(c.Users) == 0 {
				q.present = append(q.present, c)
			}
			c.Users = append(c.Users, u)
		}
	}
	q.turns.Start(f, q.present)
}

// arrive puts a request into the queue of its user.
func (q *fairQueues) arrive(f *future, r int32) {
	waiting := &q.waiting[f.queue[r].user]
	i, _ := slices.BinarySearchFunc(*waiting, r, f.Compare)
	*waiting = slices.Insert(*waiting, i, r)
}

// Compare implements fair.Source: it is the order of decision.
func (f *future) Compare(a, b int32) int {
	return cmp.Or(cmp.Compare(f.queue[a].order, f.queue[b].order), cmp.Compare(a, b))
}

// ClusterShare implements fair.Source.
func (f *future) ClusterShare(c *fair.Cluster) float64 { return f.shareOf(&f.fair.heldBy[c.ID]) }

// UserShare implements fair.Source.
func (f *future) UserShare(u *fair.User) float64 {
	if user := f.Users[u.ID]; user.Unnamed {
		return f.shareOf(&f.fair.heldBy[user.Cluster])
	}
	return f.shareOf(&f.fair.held[u.ID])
}

// shareOf returns the dominant share of an amount.
func (f *future) shareOf(a *Amounts) (share float64) {
	for d := range a {
		share = max(share, admission.Part(a[d], f.Capacity[d]))
	}
	return share
}

// Level implements fair.Source.
func (f *future) Level(q int32, holdsNothing bool) int {
	return f.queue[q].wait.Level(f.at(), holdsNothing)
}
