package forecast_test

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/logic/forecast"
	"github.com/berthd/berth/internal/logic/scheduler/cycle"
)

// model is a queue of one node with known run times, simulated without any index. Times are minutes from noon.
type model struct {
	policy  forecast.Policy
	now     int
	free    forecast.Amounts
	running []modelTask
	waiting []*modelRequest
	hidden  []hiddenArrival
}

type modelTask struct {
	demand        forecast.Amounts
	ends, limitAt int
}

type modelRequest struct {
	forecast.Request
	run, limit, left int
	key              time.Duration // of the order among arrivals
	first, last      int           // -1 for not yet
}

// hiddenArrival is a request that arrives each day.
type hiddenArrival struct {
	at int
	modelRequest
}

const unlimited = math.MaxInt

func times(a forecast.Amounts, n int) forecast.Amounts {
	for d := range a {
		a[d] *= int64(n)
	}
	return a
}

func plus(a, b forecast.Amounts) forecast.Amounts {
	for d := range a {
		a[d] += b[d]
	}
	return a
}

func minus(a, b forecast.Amounts) forecast.Amounts { return plus(a, times(b, -1)) }

func covers(a, b forecast.Amounts) bool {
	for d := range a {
		if b[d] > a[d] {
			return false
		}
	}
	return true
}

// simulate runs models of lines until all requests have started. Each event is one of all lines, as each decision
// of the scheduler is for all of them.
func simulate(models []*model, requests []*modelRequest) {
	for {
		next := unlimited
		for _, m := range models {
			m.start()
			next = min(next, m.nextEvent())
		}
		if !slices.ContainsFunc(requests, func(r *modelRequest) bool { return r.last < 0 }) {
			return
		}
		for _, m := range models {
			m.advance(next)
		}
	}
}

const minutesPerDay = 24 * 60

// nextEvent returns the time of the next end or arrival.
func (m *model) nextEvent() int {
	next := unlimited
	for _, t := range m.running {
		next = min(next, t.ends)
	}
	for _, a := range m.hidden {
		at := m.now/minutesPerDay*minutesPerDay + a.at
		if at <= m.now {
			at += minutesPerDay
		}
		next = min(next, at)
	}
	return next
}

// advance ends the tasks that end at a time, and adds the requests that arrive then.
func (m *model) advance(now int) {
	m.now = now
	m.running = slices.DeleteFunc(m.running, func(t modelTask) bool {
		if t.ends <= m.now {
			m.free = plus(m.free, t.demand)
		}
		return t.ends <= m.now
	})
	for _, a := range m.hidden {
		if m.now%minutesPerDay == a.at {
			r := a.modelRequest
			r.key = time.Duration(m.now)*time.Minute - time.Duration(r.Priority)*cycle.AgeStep
			i := len(m.waiting)
			for i > 0 && m.waiting[i-1].key > r.key {
				i--
			}
			m.waiting = slices.Insert(m.waiting, i, &r)
		}
	}
}

// start starts what may start now.
func (m *model) start() {
	var spare forecast.Amounts // what the promise leaves, from until on
	until := -1                // -1 without a promise
	for _, r := range m.waiting {
		limitAt := unlimited
		if r.limit > 0 {
			limitAt = m.now + r.limit
		}
		together := 1
		if r.Gang {
			together = r.Tasks
		}
		need := times(r.Demand, together)
		for r.left > 0 && covers(m.free, need) {
			if isLate := until >= 0 && (limitAt > until || until == unlimited); isLate && !covers(spare, need) {
				break
			} else if isLate {
				spare = minus(spare, need)
			}
			m.free = minus(m.free, need)
			for range together {
				m.running = append(m.running, modelTask{r.Demand, min(m.now+r.run, limitAt), limitAt})
			}
			if r.left -= together; r.first < 0 {
				r.first = m.now
			}
		}
		switch {
		case r.left == 0:
			r.last = m.now
		case m.policy == forecast.FIFO:
			m.removeStarted()
			return
		case m.policy == forecast.EASY && until < 0:
			until, spare = m.promise(need, together > 1)
		}
	}
	m.removeStarted()
}

func (m *model) removeStarted() {
	m.waiting = slices.DeleteFunc(m.waiting, func(r *modelRequest) bool { return r.left == 0 })
}

// promise returns when there is room by the limits of the running tasks, and what it leaves then. For a gang all tasks
// count that end at that time.
func (m *model) promise(need forecast.Amounts, isGang bool) (until int, spare forecast.Amounts) {
	byLimit := slices.Clone(m.running)
	slices.SortStableFunc(byLimit, func(a, b modelTask) int { return cmp.Compare(a.limitAt, b.limitAt) })
	spare, until = m.free, -1
	for _, t := range byLimit {
		if until >= 0 && (until == unlimited || t.limitAt > until) {
			break
		}
		if spare = plus(spare, t.demand); until < 0 && covers(spare, need) {
			until = t.limitAt
			if !isGang {
				break
			}
		}
	}
	return until, minus(spare, need)
}

// drawMinutes draws one of few times, because equal ends and limits are the difficult ones.
func drawMinutes(t *rapid.T, name string, least int) int {
	return 10 * rapid.IntRange(least, 6).Draw(t, name)
}

// drawModel draws a node with running and waiting tasks as an input and as a model. Both get the line.
func drawModel(t *rapid.T, in *forecast.Input, policy forecast.Policy) (*model, []*modelRequest) {
	line, node := len(in.Lines), int32(len(in.Nodes))
	capacity := forecast.Amounts{8, 6}
	m := &model{policy: policy, free: capacity}
	for range rapid.IntRange(0, 8).Draw(t, "running") {
		d := forecast.Amounts{rapid.Int64Range(0, 4).Draw(t, "cpu"), rapid.Int64Range(0, 1).Draw(t, "memory")}
		if !covers(m.free, d) {
			continue
		}
		run, limit := drawMinutes(t, "run", 1), drawMinutes(t, "limit", 0)
		m.free = minus(m.free, d)
		task := modelTask{d, run, unlimited}
		if limit > 0 {
			task.ends, task.limitAt = min(run, limit), limit
		}
		m.running = append(m.running, task)
		in.Running = append(in.Running, forecast.Running{
			Node: node, Demand: d, Started: in.Now, Limit: time.Duration(limit) * time.Minute,
			Runs: forecast.Fixed(time.Duration(run) * time.Minute),
		})
	}
	in.Nodes = append(in.Nodes, m.free)
	in.Lines = append(in.Lines, forecast.Line{Nodes: []int32{node}, Policy: policy})
	draw := func() *modelRequest {
		r := &modelRequest{
			run: drawMinutes(t, "run", 1), limit: drawMinutes(t, "limit", 0), first: -1, last: -1,
		}
		r.Request = forecast.Request{
			Demand: forecast.Amounts{rapid.Int64Range(1, 9).Draw(t, "cpu"), rapid.Int64Range(0, 2).Draw(t, "memory")},
			Tasks:  rapid.IntRange(1, 3).Draw(t, "tasks"), Gang: rapid.Bool().Draw(t, "gang"), Line: line,
			Limit: time.Duration(r.limit) * time.Minute, Runs: forecast.Fixed(time.Duration(r.run) * time.Minute),
		}
		r.left = r.Tasks
		return r
	}
	var requests []*modelRequest
	for range rapid.IntRange(4, 14).Draw(t, "waiting") {
		r := draw()
		requests = append(requests, r)
		in.Waiting = append(in.Waiting, r.Request)
		if need := times(r.Demand, r.Tasks); covers(capacity, need) || !r.Gang && covers(capacity, r.Demand) {
			m.waiting = append(m.waiting, r)
		}
	}
	return m, requests
}

// TestSameAsModel compares forecasts with known run times with the model: of one to three lines that share nothing, and
// with arrivals of a recorded day.
func TestSameAsModel(t *testing.T) {
	behind := 0
	rapid.Check(t, func(t *rapid.T) {
		in := &forecast.Input{Now: noon(), Seed: rapid.Uint64().Draw(t, "seed"), Past: 24 * time.Hour}
		var models []*model
		var requests []*modelRequest
		for range rapid.IntRange(1, 3).Draw(t, "lines") {
			m, own := drawModel(t, in, rapid.SampledFrom(
				[]forecast.Policy{forecast.EASY, forecast.FIFO, forecast.Greedy},
			).Draw(t, "policy"))
			models, requests = append(models, m), append(requests, own...)
		}
		at := 10
		for range rapid.IntRange(0, 4).Draw(t, "arrivals") {
			line := rapid.IntRange(0, len(models)-1).Draw(t, "line")
			a := hiddenArrival{at: at, modelRequest: modelRequest{run: 25, limit: 30, left: 1, first: -1, last: -1}}
			a.Request = forecast.Request{
				Demand: forecast.Amounts{rapid.Int64Range(1, 6).Draw(t, "cpu")}, Tasks: 1, Line: line,
				Limit: 30 * time.Minute, Runs: forecast.Fixed(25 * time.Minute),
				Priority: rapid.IntRange(0, 3).Draw(t, "priority"),
			}
			at += rapid.SampledFrom([]int{0, 5, 10}).Draw(t, "until the next")
			models[line].hidden = append(models[line].hidden, a)
			in.Arrivals = append(in.Arrivals, forecast.Arrival{
				Request: a.Request, At: time.Duration(a.at) * time.Minute,
			})
		}
		want := make([]forecast.Start, len(requests))
		var queues [][]*modelRequest
		for _, m := range models {
			queues = append(queues, slices.Clone(m.waiting))
		}
		simulate(models, slices.Concat(queues...))
		for _, queue := range queues {
			for _, r := range queue {
				i := slices.Index(requests, r)
				if want[i] = (forecast.Start{First: exact(r.first), Last: exact(r.last)}); r.first > 0 {
					want[i].Nodes = in.Lines[r.Line].Nodes
				}
				if i > 0 && r.first < requests[i-1].first && r.Line == requests[i-1].Line {
					behind++ // it started before one ahead of it
				}
			}
		}
		if diff := gocmp.Diff(want, forecast.Forecast(in)); diff != "" {
			t.Fatalf("starts (-model +forecast):\n%s", diff)
		}
	})
	if behind == 0 {
		t.Error("no task started before one ahead of it: nothing was tried")
	}
}
