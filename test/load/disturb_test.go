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
func (fl *loadFleet) roll(ctx context.Context, length time.Duration) {
	rest := min(length/20, rollEvery)
	for ctx.Err() == nil && !fl.t.Failed() {
		began := time.Now()
		generation := fl.put(ctx)
		limit, cancel := context.WithTimeout(fl.t.Context(), settleLimit)
		err := testkit.Poll(limit, func() error { return fl.rolled(limit, generation) })
		cancel()
		if err != nil {
			fl.t.Errorf("rollout of generation %d, after %v: %v", generation, settleLimit, err)
			return
		}
		fl.mu.Lock()
		fl.rollouts = append(fl.rollouts, generation)
		fl.mu.Unlock()
		fl.note("rollout", began)
		testkit.Pause(ctx, rest)
	}
}

// rolled returns nil once a rollout has ended, and fails the test unless it is complete.
func (fl *loadFleet) rolled(ctx context.Context, generation uint64) error {
	each, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	v, err := fl.client.Rollout(each, cluster.DefaultCluster, service)
	switch {
	case err != nil:
		return err
	case v.Generation != generation:
		fl.t.Errorf("want generation %d, got %d: %s", generation, v.Generation, v.Message)
	case !v.State.Ended():
		return fmt.Errorf("it is %s, %d of %d were healthy: %v", v.State, newest(v).Healthy, v.Desired, v.Waits)
	case v.State != cluster.RolloutComplete:
		fl.t.Errorf("the rollout of generation %d is %s: %s", generation, v.State, v.Message)
	}
	return nil
}

func newest(v api.RolloutView) api.VersionCount {
	if len(v.Versions) == 0 {
		return api.VersionCount{}
	}
	return v.Versions[0]
}

// disturb applies one disturbance after the other to the fleet until ctx ends. The seed decides their order. All are
// equally frequent.
func (fl *loadFleet) disturb(ctx context.Context) {
	nodes := fl.random.Perm(len(fl.Agents))
	next := func() *harness.Agent {
		a := fl.Agents[nodes[0]]
		nodes = append(nodes[1:], nodes[0])
		return a
	}
	var bag []string
	for ctx.Err() == nil && !fl.t.Failed() {
		if len(bag) == 0 {
			bag = []string{"drain", "leader", "scale", "drain", "node", "drain"}
			fl.random.Shuffle(len(bag), func(i, j int) { bag[i], bag[j] = bag[j], bag[i] })
		}
		testkit.Pause(ctx, time.Duration(fl.random.IntN(3000))*time.Millisecond)
		if ctx.Err() != nil {
			return
		}
		what := bag[0]
		bag = bag[1:]
		switch what {
		case "drain":
			fl.drain(next())
		case "leader":
			fl.killLeader(ctx)
		case "scale":
			fl.scale(ctx)
		case "node":
			fl.killNode(ctx, next())
		}
	}
}

// eventually is Eventually for other goroutines than that of the test. It continues after a failure.
func (fl *loadFleet) eventually(what string, check func(context.Context) error) {
	limit, cancel := context.WithTimeout(fl.t.Context(), settleLimit)
	defer cancel()
	err := testkit.Poll(limit, func() error {
		each, cancel := context.WithTimeout(limit, 10*time.Second)
		defer cancel()
		return check(each)
	})
	if err != nil {
		fl.t.Errorf("%s: after %v: %v", what, settleLimit, err)
	}
}

// drain empties a node and gives it back.
func (fl *loadFleet) drain(a *harness.Agent) {
	began := time.Now()
	fl.eventually("drain "+a.Name, func(ctx context.Context) error {
		_, err := fl.client.DrainNode(ctx, a.Name, api.NodeAction{}, client.Condition{})
		return err
	})
	fl.eventually("drain "+a.Name, func(ctx context.Context) error {
		n, err := fl.client.Node(ctx, a.Name)
		if err == nil && n.State != cluster.NodeDrained {
			err = fmt.Errorf("it is %s: %s", n.State, n.Reason)
		}
		return err
	})
	fl.eventually("give "+a.Name+" back", func(ctx context.Context) error {
		_, err := fl.client.UndrainNode(ctx, a.Name, client.Condition{})
		return err
	})
	fl.eventually("give "+a.Name+" back", func(ctx context.Context) error { return fl.isReady(ctx, a.Name) })
	fl.note("drain of a node", began)
}

func (fl *loadFleet) isReady(ctx context.Context, node string) error {
	n, err := fl.client.Node(ctx, node)
	if err == nil && n.State != cluster.NodeReady {
		err = fmt.Errorf("the node %s is %s: %s", node, n.State, n.Reason)
	}
	return err
}

// killLeader kills the server that leads, and starts it again a little later.
func (fl *loadFleet) killLeader(ctx context.Context) {
	began := time.Now()
	leader := fl.Leader()
	leader.Kill()
	testkit.Pause(ctx, time.Duration(500+fl.random.IntN(3000))*time.Millisecond)
	fl.begin(func() { leader.Begin() })
	leader.Ready()
	fl.Voters(servers)
	fl.note("death of a leader", began)
}

// begin restarts a process under the lock, so that the memory sampler never reads a half-started process.
func (fl *loadFleet) begin(start func()) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	start()
}

// scale goes down to few tasks, and up to all of them again.
func (fl *loadFleet) scale(ctx context.Context) {
	began := time.Now()
	fl.scaleTo(ctx, fewest)
	testkit.Pause(ctx, time.Duration(fl.random.IntN(3000))*time.Millisecond)
	fl.scaleTo(ctx, most)
	fl.note("scaling down and up", began)
}

func (fl *loadFleet) scaleTo(ctx context.Context, count int) {
	fl.askFor(ctx, count)
	fl.eventually(fmt.Sprintf("scale to %d", count), func(ctx context.Context) error {
		v, err := fl.client.Service(ctx, cluster.DefaultCluster, service)
		if s := v.Status; err == nil && (s.Desired != count || s.Healthy != count || s.Running != count) {
			err = fmt.Errorf("%d wanted, %d run, %d are healthy, %s: %s", s.Desired, s.Running, s.Healthy, s.State,
				s.Message)
		}
		return err
	})
}

// askFor writes the count. No version is written meanwhile. A lower minimum holds from before the write on, a higher
// one from after it.
func (fl *loadFleet) askFor(ctx context.Context, count int) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	down := count < fl.count
	if down {
		fl.count = count
		fl.bound(time.Now())
	}
	fl.try(ctx, "scale", func(ctx context.Context) error {
		return fl.client.ScaleService(ctx, cluster.DefaultCluster, service, count, client.Condition{})
	})
	if !down {
		fl.count = count
		fl.bound(time.Now())
	}
}

// killNode kills an agent and all processes of its tasks, as the death of a machine does, and starts the agent again
// later: before Berth gave the node up, or after all its tasks run elsewhere.
func (fl *loadFleet) killNode(ctx context.Context, a *harness.Agent) {
	began := time.Now()
	soon := fl.random.IntN(2) == 0
	a.Kill()
	kill := fl.killTasks(a)
	fl.mu.Lock()
	fl.kills = append(fl.kills, load.Kill{Node: a.Name, At: kill})
	which := len(fl.kills) - 1
	fl.mu.Unlock()
	known := func() {
		fl.mu.Lock()
		defer fl.mu.Unlock()
		if fl.kills[which].Known.IsZero() {
			fl.kills[which].Known = time.Now()
		}
	}
	if soon {
		testkit.Pause(ctx, time.Duration(fl.random.IntN(15_000))*time.Millisecond)
	} else {
		fl.eventually("lose "+a.Name, func(ctx context.Context) error {
			n, err := fl.client.Node(ctx, a.Name)
			if err == nil && n.State == cluster.NodeReady {
				err = errors.New("it is ready, and dead")
			}
			return err
		})
		known()
		fl.eventually("replace the tasks of "+a.Name, func(ctx context.Context) error {
			n, err := fl.client.Node(ctx, a.Name)
			if err != nil || n.State != cluster.NodeDown {
				return fmt.Errorf("it is %s: %w", n.State, err)
			}
			v, err := fl.client.Service(ctx, cluster.DefaultCluster, service)
			if err == nil && v.Status.Healthy < v.Status.Desired {
				err = fmt.Errorf("%d of %d are healthy: %s", v.Status.Healthy, v.Status.Desired, v.Status.Message)
			}
			return err
		})
	}
	fl.begin(func() { a.Begin("--address", a.Host.Address) })
	known()
	fl.eventually("have "+a.Name+" back", func(ctx context.Context) error { return fl.isReady(ctx, a.Name) })
	if soon {
		fl.note("death of a node, and soon back", began)
	} else {
		fl.note("death of a node", began)
	}
}

// killTasks kills everything that a dead agent left, until nothing is there, and returns when the first of it died.
func (fl *loadFleet) killTasks(a *harness.Agent) time.Time {
	began := time.Now()
	fl.eventually("kill the tasks of "+a.Name, func(context.Context) error {
		pids := harness.ProcessesOf(a.Dir + "/")
		pids = slices.DeleteFunc(pids, func(pid int) bool { return fl.daemon(pid) })
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
func (fl *loadFleet) daemon(pid int) bool {
	for _, s := range fl.Servers {
		if s.Alive() && s.Pid() == pid {
			return true
		}
	}
	return slices.ContainsFunc(fl.Agents, func(a *harness.Agent) bool { return a.Alive() && a.Pid() == pid })
}

// sentence joins several descriptions to one.
func sentence(list []string, most int) string {
	more := ""
	if len(list) > most {
		more = fmt.Sprintf("\n… and %d more", len(list)-most)
		list = list[:most]
	}
	return strings.Join(list, "\n") + more
}
