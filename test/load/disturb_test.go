package load_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
	"github.com/berthd/berth/test/load"
)

// rollEvery is how long the service rests between two rollouts, at most.
const rollEvery = 3 * time.Minute

// roll rolls the service out again and again until ctx ends, and to the end each time.
func (w *world) roll(ctx context.Context, length time.Duration) {
	rest := min(length/20, rollEvery)
	for ctx.Err() == nil && !w.t.Failed() {
		began := time.Now()
		generation := w.put(ctx)
		limit, cancel := context.WithTimeout(w.t.Context(), settleLimit)
		err := testkit.Poll(limit, func() error { return w.rolled(limit, generation) })
		cancel()
		if err != nil {
			w.t.Errorf("rollout of generation %d, after %v: %v", generation, settleLimit, err)
			return
		}
		w.mu.Lock()
		w.rollouts = append(w.rollouts, generation)
		w.mu.Unlock()
		w.note("rollout", began)
		testkit.Pause(ctx, rest)
	}
}

// rolled returns nil once a rollout has ended, and fails the test unless it is complete.
func (w *world) rolled(ctx context.Context, generation uint64) error {
	each, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	v, err := w.client.Rollout(each, cluster.DefaultCluster, service)
	switch {
	case err != nil:
		return err
	case v.Generation != generation:
		w.t.Errorf("generation %d was asked for, and %d is there: %s", generation, v.Generation, v.Message)
	case !v.State.Ended():
		return fmt.Errorf("it is %s, %d of %d were healthy: %v", v.State, newest(v).Healthy, v.Desired, v.Waits)
	case v.State != cluster.RolloutComplete:
		w.t.Errorf("the rollout of generation %d is %s: %s", generation, v.State, v.Message)
	}
	return nil
}

func newest(v api.RolloutView) api.VersionCount {
	if len(v.Versions) == 0 {
		return api.VersionCount{}
	}
	return v.Versions[0]
}

// disturb does one thing after the other to the fleet until ctx ends, each of them as often as the others, in an order
// by the seed.
func (w *world) disturb(ctx context.Context) {
	nodes := w.random.Perm(len(w.Agents))
	next := func() *harness.Agent {
		a := w.Agents[nodes[0]]
		nodes = append(nodes[1:], nodes[0])
		return a
	}
	var bag []string
	for ctx.Err() == nil && !w.t.Failed() {
		if len(bag) == 0 {
			bag = []string{"drain", "leader", "scale", "drain", "node", "drain"}
			w.random.Shuffle(len(bag), func(i, j int) { bag[i], bag[j] = bag[j], bag[i] })
		}
		testkit.Pause(ctx, time.Duration(w.random.IntN(3000))*time.Millisecond)
		if ctx.Err() != nil {
			return
		}
		what := bag[0]
		bag = bag[1:]
		switch what {
		case "drain":
			w.drain(next())
		case "leader":
			w.killLeader(ctx)
		case "scale":
			w.scale(ctx)
		case "node":
			w.killNode(ctx, next())
		}
	}
}

// eventually is Eventually for a goroutine that is not the test's own: it goes on.
func (w *world) eventually(what string, look func(context.Context) error) {
	limit, cancel := context.WithTimeout(w.t.Context(), settleLimit)
	defer cancel()
	err := testkit.Poll(limit, func() error {
		each, cancel := context.WithTimeout(limit, 10*time.Second)
		defer cancel()
		return look(each)
	})
	if err != nil {
		w.t.Errorf("%s: after %v: %v", what, settleLimit, err)
	}
}

// drain empties a node and gives it back.
func (w *world) drain(a *harness.Agent) {
	began := time.Now()
	w.eventually("drain "+a.Name, func(ctx context.Context) error {
		_, err := w.client.DrainNode(ctx, a.Name, api.NodeAction{}, client.Condition{})
		return err
	})
	w.eventually("drain "+a.Name, func(ctx context.Context) error {
		n, err := w.client.Node(ctx, a.Name)
		if err == nil && n.State != cluster.NodeDrained {
			err = fmt.Errorf("it is %s: %s", n.State, n.Reason)
		}
		return err
	})
	w.eventually("give "+a.Name+" back", func(ctx context.Context) error {
		_, err := w.client.UndrainNode(ctx, a.Name, client.Condition{})
		return err
	})
	w.eventually("give "+a.Name+" back", func(ctx context.Context) error { return w.isReady(ctx, a.Name) })
	w.note("drain of a node", began)
}

func (w *world) isReady(ctx context.Context, node string) error {
	n, err := w.client.Node(ctx, node)
	if err == nil && n.State != cluster.NodeReady {
		err = fmt.Errorf("the node %s is %s: %s", node, n.State, n.Reason)
	}
	return err
}

// killLeader kills the server that leads, and starts it again a little later.
func (w *world) killLeader(ctx context.Context) {
	began := time.Now()
	leader := w.Leader()
	leader.Kill()
	testkit.Pause(ctx, time.Duration(500+w.random.IntN(3000))*time.Millisecond)
	w.begin(func() { leader.Begin() })
	leader.Ready()
	w.Voters(servers)
	w.note("death of a leader", began)
}

// begin starts a process again, which the one who looks at their memory must not see half of.
func (w *world) begin(start func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	start()
}

// scale goes down to few tasks, and up to all of them again.
func (w *world) scale(ctx context.Context) {
	began := time.Now()
	w.scaleTo(ctx, fewest)
	testkit.Pause(ctx, time.Duration(w.random.IntN(3000))*time.Millisecond)
	w.scaleTo(ctx, most)
	w.note("scaling down and up", began)
}

func (w *world) scaleTo(ctx context.Context, count int) {
	w.askFor(ctx, count)
	w.eventually(fmt.Sprintf("scale to %d", count), func(ctx context.Context) error {
		v, err := w.client.Service(ctx, cluster.DefaultCluster, service)
		if s := v.Status; err == nil && (s.Desired != count || s.Healthy != count || s.Running != count) {
			err = fmt.Errorf("%d wanted, %d run, %d are healthy, %s: %s", s.Desired, s.Running, s.Healthy, s.State,
				s.Message)
		}
		return err
	})
}

// askFor writes the count. No version is written meanwhile. A lower minimum holds from before the write on, a higher
// one from after it.
func (w *world) askFor(ctx context.Context, count int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	down := count < w.count
	if down {
		w.count = count
		w.bound(time.Now())
	}
	w.try(ctx, "scale", func(ctx context.Context) error {
		return w.client.ScaleService(ctx, cluster.DefaultCluster, service, count, client.Condition{})
	})
	if !down {
		w.count = count
		w.bound(time.Now())
	}
}

// killNode kills an agent and all processes of its tasks, as the death of a machine does, and starts the agent again
// later: before Berth gave the node up, or after all its tasks run elsewhere.
func (w *world) killNode(ctx context.Context, a *harness.Agent) {
	began := time.Now()
	soon := w.random.IntN(2) == 0
	a.Kill()
	kill := w.killTasks(a)
	w.mu.Lock()
	w.kills = append(w.kills, load.Kill{Node: a.Name, At: kill})
	which := len(w.kills) - 1
	w.mu.Unlock()
	known := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.kills[which].Known.IsZero() {
			w.kills[which].Known = time.Now()
		}
	}
	if soon {
		testkit.Pause(ctx, time.Duration(w.random.IntN(15_000))*time.Millisecond)
	} else {
		w.eventually("lose "+a.Name, func(ctx context.Context) error {
			n, err := w.client.Node(ctx, a.Name)
			if err == nil && n.State == cluster.NodeReady {
				err = errors.New("it is ready, and dead")
			}
			return err
		})
		known()
		w.eventually("replace the tasks of "+a.Name, func(ctx context.Context) error {
			n, err := w.client.Node(ctx, a.Name)
			if err != nil || n.State != cluster.NodeDown {
				return fmt.Errorf("it is %s: %w", n.State, err)
			}
			v, err := w.client.Service(ctx, cluster.DefaultCluster, service)
			if err == nil && v.Status.Healthy < v.Status.Desired {
				err = fmt.Errorf("%d of %d are healthy: %s", v.Status.Healthy, v.Status.Desired, v.Status.Message)
			}
			return err
		})
	}
	w.begin(func() { a.Begin("--address", a.Host.Address) })
	known()
	w.eventually("have "+a.Name+" back", func(ctx context.Context) error { return w.isReady(ctx, a.Name) })
	if soon {
		w.note("death of a node, and soon back", began)
	} else {
		w.note("death of a node", began)
	}
}

// killTasks kills everything that a dead agent left, until nothing is there, and returns when the first of it died.
func (w *world) killTasks(a *harness.Agent) time.Time {
	began := time.Now()
	w.eventually("kill the tasks of "+a.Name, func(context.Context) error {
		pids := harness.ProcessesOf(a.Dir + "/")
		pids = slices.DeleteFunc(pids, func(pid int) bool { return w.daemon(pid) })
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
		if len(pids) > 0 {
			return fmt.Errorf("%d processes live", len(pids))
		}
		return nil
	})
	return began
}

// daemon reports whether a process is a server or an agent, which only names other folders.
func (w *world) daemon(pid int) bool {
	for _, s := range w.Servers {
		if s.Alive() && s.Pid() == pid {
			return true
		}
	}
	return slices.ContainsFunc(w.Agents, func(a *harness.Agent) bool { return a.Alive() && a.Pid() == pid })
}

// sentence joins what is told of many things.
func sentence(list []string, most int) string {
	more := ""
	if len(list) > most {
		more = fmt.Sprintf("\n… and %d more", len(list)-most)
		list = list[:most]
	}
	return strings.Join(list, "\n") + more
}
