package fair_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/logic/scheduler/fair"
)

// request is a request of a model of fair queues.
type request struct {
	priority int
	waited   int // levels that it gained by waiting
	tasks    int // that wait
}

// model holds the requests of users in plain lists, and what the jobs of users hold. Requests are ordered by number.
type model struct {
	requests []request
	queue    [][]int32 // by user
	cluster  []int     // by user
	weight   []int     // by cluster
	held     []float64 // by user
}

func (m *model) Compare(a, b int32) int { return cmp.Compare(a, b) }

func (m *model) UserShare(u *fair.User) float64 { return m.held[u.ID] }

func (m *model) ClusterShare(c *fair.Cluster) float64 { return m.clusterShare(int(c.ID)) }

func (m *model) clusterShare(cluster int) (sum float64) {
	for user, held := range m.held {
		if m.cluster[user] == cluster {
			sum += held
		}
	}
	return sum
}

func (m *model) Level(request int32, holdsNothing bool) int {
	r := m.requests[request]
	if holdsNothing {
		return r.priority + r.waited
	}
	return r.priority
}

// turns begins the turns of all requests.
func (m *model) turns() *fair.Turns {
	clusters := make([]*fair.Cluster, len(m.weight))
	for i, weight := range m.weight {
		clusters[i] = &fair.Cluster{ID: int32(i), Weight: weight}
	}
	for user, requests := range m.queue {
		if len(requests) > 0 {
			c := clusters[m.cluster[user]]
			c.Users = append(c.Users, &fair.User{ID: int32(user), Requests: slices.Clone(requests)})
		}
	}
	clusters = slices.DeleteFunc(clusters, func(c *fair.Cluster) bool { return len(c.Users) == 0 })
	t := &fair.Turns{}
	t.Start(m, clusters)
	return t
}

// next returns the user whose turn is next, by the rules in the comment of the package; -1 if no request is left.
func (m *model) next() int {
	level := func(user int) int { return m.Level(m.queue[user][0], m.held[user] == 0) }
	first := func(a, b int) int { // of two users of one cluster
		return cmp.Or(cmp.Compare(level(b), level(a)), cmp.Compare(m.held[a], m.held[b]),
			cmp.Compare(m.queue[a][0], m.queue[b][0]))
	}
	best := -1
	for cluster, weight := range m.weight {
		of := -1
		for user := range m.queue {
			if m.cluster[user] == cluster && len(m.queue[user]) > 0 && (of < 0 || first(user, of) < 0) {
				of = user
			}
		}
		if of < 0 {
			continue
		}
		share := func(user, weight int) float64 { return m.clusterShare(m.cluster[user]) / float64(weight) }
		if best < 0 || cmp.Or(cmp.Compare(level(best), level(of)),
			cmp.Compare(share(of, weight), share(best, m.weight[m.cluster[best]])),
			cmp.Compare(m.queue[of][0], m.queue[best][0])) < 0 {
			best = of
		}
	}
	return best
}

func drawModel(t *rapid.T) *model {
	m := &model{}
	for range rapid.IntRange(1, 3).Draw(t, "clusters") {
		m.weight = append(m.weight, rapid.IntRange(1, 3).Draw(t, "weight"))
	}
	for range rapid.IntRange(1, 5).Draw(t, "users") {
		m.cluster = append(m.cluster, rapid.IntRange(0, len(m.weight)-1).Draw(t, "cluster"))
		m.held = append(m.held, float64(rapid.IntRange(0, 3).Draw(t, "held"))/16)
		m.queue = append(m.queue, nil)
	}
	for i := range rapid.IntRange(0, 12).Draw(t, "requests") {
		m.requests = append(m.requests, request{
			priority: rapid.IntRange(0, 1).Draw(t, "priority"), waited: rapid.IntRange(0, 2).Draw(t, "waited"),
			tasks: rapid.IntRange(1, 3).Draw(t, "tasks"),
		})
		user := rapid.IntRange(0, len(m.queue)-1).Draw(t, "user")
		m.queue[user] = append(m.queue[user], int32(i))
	}
	return m
}

// TestTurnsSameAsModel compares the turns with the model, which looks at all requests for each turn. Some tasks are
// placed, which changes shares, and some find no room. Each request has its turns until it is done.
func TestTurnsSameAsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		turns := m.turns()
		left := len(m.requests)
		for left > 0 {
			want, u := m.next(), turns.Next()
			if u == nil || int(u.ID) != want || u.Requests[0] != m.queue[want][0] {
				t.Fatalf("the next user is %+v, want user %d with %v, of %+v", u, want, m.queue[want], m)
			}
			if rapid.IntRange(0, 4).Draw(t, "ask again") == 0 {
				continue
			}
			r := &m.requests[m.queue[want][0]]
			if rapid.IntRange(0, 2).Draw(t, "placed") > 0 {
				m.held[want] += 1.0 / 16
				if r.tasks--; r.tasks > 0 {
					turns.Placed()
					continue
				}
			}
			done := rapid.IntRange(1, len(m.queue[want])).Draw(t, "done")
			m.queue[want] = m.queue[want][done:]
			left -= done
			turns.Done(done)
		}
		if u := turns.Next(); u != nil {
			t.Fatalf("user %d has a turn, though all requests are done", u.ID)
		}
	})
}

// TestProgressiveFilling places equal tasks one by one until they hold everything: clusters then hold parts by their
// weights, and users equal parts of their cluster, up to one task.
func TestProgressiveFilling(t *testing.T) {
	m := &model{weight: []int{1, 3}, cluster: []int{0, 0, 1}, held: make([]float64, 3)}
	for range 3 {
		m.queue = append(m.queue, []int32{int32(len(m.requests))})
		m.requests = append(m.requests, request{tasks: 1000})
	}
	const tasks = 64
	turns := m.turns()
	for range tasks {
		m.held[turns.Next().ID] += 1.0 / tasks
		turns.Placed()
	}
	if got, want := fmt.Sprint(m.held), "[0.125 0.125 0.75]"; got != want {
		t.Errorf("users hold %s, want %s", got, want)
	}
}

// TestWaitingHelpsWhoHoldsNothing checks that a request of a user without running tasks rises by waiting, and that the
// user has the level of its priority from its first task on.
func TestWaitingHelpsWhoHoldsNothing(t *testing.T) {
	m := &model{
		weight: []int{1, 1}, cluster: []int{0, 1}, held: []float64{0, 0},
		requests: []request{{priority: 5, tasks: 9}, {priority: 3, waited: 4, tasks: 9}}, queue: [][]int32{{0}, {1}},
	}
	turns := m.turns()
	var order []int32
	for range 4 {
		u := turns.Next()
		order = append(order, u.ID)
		m.held[u.ID] += 0.01
		turns.Placed()
	}
	if want := []int32{1, 0, 0, 0}; !slices.Equal(order, want) {
		t.Errorf("turns of the users %v, want %v", order, want)
	}
}

// TestOwed checks for how many tasks a user gets promises: those by which its jobs hold less than the user's part.
func TestOwed(t *testing.T) {
	for name, c := range map[string]struct {
		weight []int
		held   []float64 // by user: the first is next
		each   float64
		want   int
	}{
		// Both clusters hold 0.8 together, of which the first user's part is a half.
		"nothing is held by it":          {[]int{1, 1}, []float64{0, 0.8}, 0.1, 4},
		"it holds something":             {[]int{1, 1}, []float64{0.1, 0.7}, 0.1, 3},
		"less than one task":             {[]int{1, 1}, []float64{0.3, 0.5}, 0.2, 1},
		"by weight":                      {[]int{3, 1}, []float64{0, 0.8}, 0.1, 6},
		"nothing is held":                {[]int{1, 1}, []float64{0, 0}, 0.1, 1},
		"tasks that count for nothing":   {[]int{1, 1}, []float64{0, 0.8}, 0, 1},
		"tiny tasks, up to the most":     {[]int{1, 1}, []float64{0, 0.8}, 1e-9, 64},
		"tasks larger than its own part": {[]int{1, 1}, []float64{0, 0.8}, 0.5, 1},
	} {
		m := &model{
			weight: c.weight, cluster: []int{0, 1}, held: c.held,
			requests: []request{{priority: 1, tasks: 1}, {tasks: 1}}, queue: [][]int32{{0}, {1}},
		}
		turns := m.turns()
		if u := turns.Next(); u.ID != 0 {
			t.Fatalf("%s: user %d is next", name, u.ID)
		}
		const rounding = 1e-12
		if got := turns.Owed(c.each - c.each*rounding); got != c.want {
			t.Errorf("%s: %d promises, want %d", name, got, c.want)
		}
	}
}
