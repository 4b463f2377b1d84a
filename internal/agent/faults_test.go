package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/agent/task"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/fake"
	"github.com/berthd/berth/internal/transport"
)

// faultyWorld is a world in which the executor fails, hangs and lies, the server comes and goes, and the agent dies.
type faultyWorld struct {
	*world
	machine *fake.Machine
	mu      sync.Mutex
	random  *rand.Rand
	calm    bool
}

func (n *faultyWorld) chance(percent int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.calm && n.random.IntN(100) < percent
}

func (n *faultyWorld) below(most int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.random.IntN(most)
}

func (n *faultyWorld) seconds(most int) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Duration(n.random.IntN(most*1000)) * time.Millisecond
}

func (n *faultyWorld) fault(c fake.Call) (f fake.Fault) {
	if n.chance(15) {
		f.Delay = n.seconds(5)
	}
	if n.chance(15) {
		f.Late = n.seconds(5)
	}
	switch {
	case n.chance(8):
		f.Err = executor.ErrUnavailable
	case n.chance(4):
		f.Lose = executor.ErrUnavailable
	case c.Op == fake.OpStart && n.chance(3):
		f.Lose = errors.New("an odd answer")
	case n.chance(3):
		f.Hang = c.Op != fake.OpWait // that is what it does anyway
	case n.chance(5):
		f.Twice = true
	case n.chance(4):
		f.Dies = true
	}
	return f
}

func TestNastyWorld(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &faultyWorld{
					world: newWorld(t), machine: fake.NewMachine(), random: rand.New(rand.NewPCG(seed, 1)),
				}
				n.machine.SetTrouble(n.fault)
				n.attach = func() executor.Executor { return fake.New(n.machine) }
				n.run(t)
			})
		})
	}
}

// run injects faults for some minutes, then stops them, and checks the result.
func (n *faultyWorld) run(t *testing.T) {
	n.start()
	defer n.stop()
	n.server.answer = func(s *server, r transport.Report) (transport.ReportReply, error) {
		if n.chance(10) {
			return transport.ReportReply{}, errDown
		}
		if n.chance(20) {
			for i := range r.Tasks {
				s.see(&r.Tasks[i]) // accepted, and the reply is lost
			}
			return transport.ReportReply{}, errDown
		}
		return transport.ReportReply{}, nil
	}
	var all []cluster.Desired
	stopped := map[string]bool{}
	words := [][]string{
		{"run"},
		{"exit", "0", "after", "40s"},
		{"exit", "1", "after", "90s"},
		{"ignore-term"},
		{"run", "prepare-delay", "10s"},
	}
	begin := func(i int) {
		def := definition(fmt.Sprint("d", i), "init", "app")
		def.Containers[0].Init = true
		def.Containers[0].Command = []string{"exit", "0", "after", "1s"}
		def.Containers[1].Command = words[i%len(words)]
		def.Restart.Limit = 100
		kind := cluster.KindService
		if i%10 >= 5 {
			kind = cluster.KindJob
		}
		d := n.desired(fmt.Sprint("u", i), def, kind)
		d.Task = cluster.ServiceTask("default", fmt.Sprint("t", i), 1, 0)
		all = append(all, d)
		n.assign(d, def)
		n.pass(n.seconds(5))
	}
	for i := range 10 {
		begin(i)
	}
	for range 40 {
		n.pass(n.seconds(10))
		switch {
		case n.chance(20):
			n.agent.parts.Store.Abandon()
			n.restart()
		case n.chance(10):
			n.restart()
		case n.chance(10):
			n.server.cut(false)
		case n.chance(10):
			n.server.mu.Lock()
			n.server.live = 0 // it has forgotten the session
			n.server.mu.Unlock()
		case n.chance(50):
			n.server.cut(true)
		case n.chance(20):
			d := all[n.below(len(all))]
			stopped[d.UUID] = true
			n.stopTask(d, false)
		}
	}
	begin(10) // in the session before the last
	begin(15)
	n.mu.Lock()
	n.calm = true
	n.mu.Unlock()
	n.server.mu.Lock()
	n.server.live = 0
	n.server.mu.Unlock()
	n.server.cut(true)
	n.pass(40 * time.Minute) // a preparation that hangs is given up after 30 minutes
	n.judge(t, all, stopped)
	for _, d := range all {
		n.stopTask(d, true)
	}
	n.pass(20 * time.Minute)
	left, err := fake.New(n.machine).List(context.Background())
	if err != nil || len(left) != 0 {
		t.Errorf("at the end %d containers are left, %v", len(left), err)
	}
	for _, d := range all {
		if o := n.server.seen[d.UUID]; !o.Gone {
			t.Errorf("%s is not gone: %s %s", d.UUID, o.State, o.Message)
		}
	}
}

// judge checks what ran and what was reported.
func (n *faultyWorld) judge(t *testing.T, all []cluster.Desired, stopped map[string]bool) {
	history := n.machine.History()
	live := map[string]int{}
	starts := map[string]int{}
	for i, r := range history {
		key := r.Labels[task.LabelUUID] + "/" + r.Labels[task.LabelContainer]
		starts[key]++
		if r.Ended.IsZero() {
			live[r.Labels[task.LabelUUID]]++
		}
		for _, q := range history[:i] {
			if q.Labels[task.LabelUUID]+"/"+q.Labels[task.LabelContainer] == key &&
				(q.Ended.IsZero() || q.Ended.After(r.Started)) {
				t.Errorf("%s: run %s began at %v while %s lived until %v", key, r.ID, r.Started, q.ID, q.Ended)
			}
		}
	}
	states := map[string]int{}
	for i := range all {
		d := &all[i]
		o := n.server.seen[d.UUID]
		states[string(d.Owner.Kind)+" "+string(o.State)+" "+string(o.Reason)]++
		for _, c := range []string{"init", "app"} {
			if d.Batch() && starts[d.UUID+"/"+c] > 1 {
				t.Errorf("batch %s started its %s %d times", d.UUID, c, starts[d.UUID+"/"+c])
			}
		}
		switch {
		case stopped[d.UUID] && !o.State.Terminal():
			t.Errorf("%s was stopped and is %s (%s)", d.UUID, o.State, o.Message)
		case o.State == cluster.StateRunning && live[d.UUID] == 0:
			t.Errorf("%s is reported as running and nothing runs", d.UUID)
		case o.State.Terminal() && live[d.UUID] > 0:
			t.Errorf("%s is %s and %d programs run", d.UUID, o.State, live[d.UUID])
		case !o.State.Terminal() && o.State != cluster.StateRunning && o.State != cluster.StateStarting:
			t.Errorf("%s is still %s (%s)", d.UUID, o.State, o.Message)
		}
	}
	t.Logf("%d runs, %d sessions, %d reports; ended as %v", len(history), n.server.sessions, len(n.server.reports),
		states)
}
