package agent

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/state"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// wantCounts compares the counts of the task of all tests.
func (w *world) wantCounts(when string, want Counts) {
	w.t.Helper()
	o := w.agent.Observe()
	if got, _ := o.CountsOf(cluster.ServiceTask("default", "web", 7, 0)); got != want {
		w.t.Errorf("%s: the counts are %+v, want %+v", when, got, want)
	}
}

// leave has an ended attempt removed from the node.
func (w *world) leave(d cluster.Desired) {
	w.t.Helper()
	w.stopTask(d, true)
	w.server.say(transport.Message{Forget: &transport.Forget{Task: d.Task, UUID: d.UUID}})
	w.pass(time.Minute)
	w.server.mu.Lock() // a server sends nothing about it any more
	w.server.sent = slices.DeleteFunc(w.server.sent, func(m transport.Message) bool {
		return m.Assignment != nil && m.Assignment.UUID == d.UUID || m.Forget != nil && m.Forget.UUID == d.UUID
	})
	w.server.mu.Unlock()
	if w.agent.attempts.has(d.UUID) {
		w.t.Fatalf("the attempt %s is still on the node", d.UUID)
	}
}

// The counters of a task outlive its attempts, the generations of its service, and the agent. A service that was
// deleted and made again begins at 0.
func TestCountersOutliveAttemptsAndAgents(t *testing.T) {
	inWorld(t, func(w *world) {
		w.executor.programs["app"] = program{Runs: time.Second, Code: 1, OOM: true}
		def := definition("web", "app")
		def.Restart = cluster.Restart{
			Mode: cluster.RestartOnFailure, Limit: 2, Window: cluster.Duration(time.Hour),
			Delay: cluster.Duration(time.Second), MaxDelay: cluster.Duration(time.Second),
		}
		first := w.service("s1", def)
		w.pass(time.Minute)
		w.want("s1", cluster.StateFailed, cluster.ReasonRestartLimit)
		w.wantCounts("after 2 restarts", Counts{2, 3})
		w.leave(first)
		w.wantCounts("once the attempt has left", Counts{3, 3})
		w.restart()
		w.wantCounts("after a restart of the agent", Counts{3, 3})

		w.executor.programs["app"] = program{}
		second := w.desired("s2", def, cluster.KindService)
		second.Attempt = 2
		w.assign(second, def)
		w.wantCounts("with the next attempt", Counts{3, 3})
		w.stopTask(second, false)
		w.leave(second)
		w.wantCounts("after a stop", Counts{3, 3})
		w.restart()
		third := w.desired("s3", def, cluster.KindService)
		third.Task = cluster.ServiceTask("default", "web", 2, 0)
		w.assign(third, def)
		w.wantCounts("in the next generation", Counts{3, 3})
		w.stopTask(third, false)
		w.leave(third)

		again := w.desired("s4", def, cluster.KindService)
		w.assign(again, def)
		w.wantCounts("of a service that was made again", Counts{})
		w.restart()
		w.wantCounts("of it after a restart of the agent", Counts{})
	})
}

// An attempt that leaves the node twice, since the agent crashed between its two writes, counts once.
func TestAttemptThatLeavesTwiceCountsOnce(t *testing.T) {
	store, err := state.Open("", nil)
	if err != nil {
		t.Fatal(err)
	}
	var c counters
	c.begin(store, nil)
	s := attempt.Status{ID: attempt.ID{Task: cluster.ServiceTask("c", "web", 1, 0), Attempt: 1, UUID: "u1"}}
	s.View = &attempt.View{}
	s.View.Record.Restarts.Total = 4
	c.add(&s, time.Now())
	want := Counts{Restarts: 4}
	key := state.CounterKey(s.Task)
	if got := c.all([]attempt.Status{s})[key]; got != want {
		t.Errorf("with the attempt still there: got %+v, want %+v", got, want)
	}
	c.add(&s, time.Now())
	if got := c.all(nil)[key]; got != want {
		t.Errorf("after it left again: got %+v, want %+v", got, want)
	}
}

// The number of counters is limited, and the oldest go first.
func TestCountersAreLimited(t *testing.T) {
	store, err := state.Open("", nil)
	if err != nil {
		t.Fatal(err)
	}
	var c counters
	c.begin(store, nil)
	began := time.Now()
	for i := range maxCounters + 3 {
		id := attempt.ID{Task: cluster.ServiceTask("c", "web", 1, i), Attempt: 1, UUID: fmt.Sprint(i)}
		s := attempt.Status{ID: id, View: &attempt.View{}}
		s.View.Record.Restarts.Total = 1
		c.add(&s, began.Add(time.Duration(i)))
	}
	all := c.all(nil)
	for i, want := range map[int]bool{0: false, 2: false, 3: true, maxCounters + 2: true} {
		if _, has := all[state.CounterKey(cluster.ServiceTask("c", "web", 1, i))]; has != want {
			t.Errorf("task %d has counters: %t, want %t", i, has, want)
		}
	}
	if len(all) != maxCounters {
		t.Errorf("%d tasks have counters, want %d", len(all), maxCounters)
	}
}
