package e2e_test

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
	"github.com/berthd/berth/test/load"
)

// Limits of the time from the verdict on a node until its tasks run elsewhere, without the start of a task, and of the
// time between the starts. The first is for an idle machine, the lax one for a machine with other tests.
const (
	replaceLimit    = time.Second
	laxReplaceLimit = 10 * time.Second
	spreadLimit     = time.Second
)

// silenceVariable makes the test wait until a node is down because of its silence, which takes more than a minute.
// Otherwise the test declares the node gone, which has the same effect except for tasks that wait for their node.
const silenceVariable = "BERTH_SERVICES_SILENCE"

// TestHostFails kills a machine with ten tasks, and only the agent of another machine.
func TestHostFails(t *testing.T) {
	t.Parallel()
	silence := testkit.Setting(t, silenceVariable, 0) != 0
	w := newServiceFleet(t, harness.Process, 1, 3)
	putWait := func() {
		w.put(served{name: "wait", version: 1, count: 6, more: func(_ *api.TaskDefinition, s *api.Service) {
			s.OnDisconnect = cluster.DisconnectWait
		}})
		w.completes("wait", 1)
	}
	if silence {
		putWait()
	}
	w.put(served{name: "keep", version: 1, count: 24})
	w.completes("keep", 1)
	own := w.startTime("keep")

	// Only the agent dies. Its tasks continue, and are replaced once the node is down.
	a := w.Agents[0]
	keep, wait := w.on("keep", a.Name), w.on("wait", a.Name)
	if len(keep) == 0 || silence && len(wait) == 0 {
		t.Fatalf("%d and %d tasks are on %s, want some of both", len(keep), len(wait), a.Name)
	}
	before := w.attempts("keep")
	a.Kill()
	given := time.Now()
	if silence {
		w.Eventually(4*soon, func() error { return w.is(a.Name, cluster.NodeDown) })
		down := w.awaitEvent("node.down", a.Name).At
		t.Logf("the node was given up %v after its agent was killed", down.Sub(given).Round(time.Second))
		given = down
	} else {
		w.Berth("node", "forget", a.Name, "--force").Want(t, 0)
	}
	w.Eventually(soon, func() error { return w.elsewhere("keep", 24, a.Name) })
	w.checkReplaced("keep", before, given, own)
	for _, task := range slices.Concat(keep, wait) {
		if harness.StartOf(task.Containers[0].Pid) != task.Containers[0].PidStart {
			t.Errorf("%s was left behind, and its process has ended", task.ID)
		}
	}
	w.checkSingle("wait")

	// The host returns: it gives up what was replaced, and keeps what waited.
	a.Begin()
	w.NodeIs(a.Name, cluster.NodeReady)
	w.Eventually(soon, func() error {
		for _, task := range keep {
			if harness.StartOf(task.Containers[0].Pid) == task.Containers[0].PidStart {
				return fmt.Errorf("%s was replaced, and its process lives", task.ID)
			}
		}
		return nil
	})
	samePids(t, wait, w.on("wait", a.Name))
	running(t, w.Site, "keep", 24)
	if !silence {
		putWait()
	}
	running(t, w.Site, "wait", 6)

	// A host dies with all its tasks, and is declared gone. All tasks then run elsewhere.
	b := w.Agents[1]
	before = w.attempts("keep")
	b.Kill()
	w.killTasks(b)
	given = time.Now()
	w.Berth("node", "forget", b.Name, "--force").Want(t, 0)
	w.Eventually(soon, func() error {
		return errors.Join(w.elsewhere("keep", 24, b.Name), w.elsewhere("wait", 6, b.Name))
	})
	w.checkReplaced("keep", before, given, own)
	w.checkSingle("wait")
	b.Begin() // with nothing, as a new machine of that name
	w.NodeIs(b.Name, cluster.NodeReady)
	w.checkSingle("wait")
}

// checkSingle demands that no task of a service has two living processes.
func (w *serviceFleet) checkSingle(service string) {
	w.t.Helper()
	if doubled := w.doubled(service); len(doubled) > 0 {
		w.t.Errorf("doubled, although they wait for their node: %v", doubled)
	}
}

// startTime is the most that the way of a task from its placing to its first answer took.
func (w *serviceFleet) startTime(service string) (most time.Duration) {
	w.t.Helper()
	up := w.ups(service)
	for _, task := range w.Tasks(client.TaskFilter{Service: service}) {
		if r, ok := up[task.UUID]; ok {
			most = max(most, r.At.Sub(task.Placed))
		}
	}
	if most == 0 {
		w.t.Fatalf("no task of %s was seen to start", service)
	}
	return most
}

// ups is when each attempt of a service first listened.
func (w *serviceFleet) ups(service string) map[string]load.Record {
	up := map[string]load.Record{}
	for _, r := range w.recorder.All() {
		if _, had := up[r.UUID]; !had && r.What == load.Up && w.owner(r) == service {
			up[r.UUID] = r
		}
	}
	return up
}

// on are the tasks of a service that live on a node.
func (w *serviceFleet) on(service, node string) []api.TaskView {
	w.t.Helper()
	return slices.DeleteFunc(alive(w.Site, service), func(t api.TaskView) bool { return t.Node != node })
}

func (w *serviceFleet) is(node string, state cluster.NodeState) error {
	n, err := w.client.Node(w.t.Context(), node)
	if err == nil && n.State != state {
		err = fmt.Errorf("the node %s is %s: %s", node, n.State, n.Reason)
	}
	return err
}

// elsewhere returns nil once that many tasks of a service are healthy on other nodes.
func (w *serviceFleet) elsewhere(service string, count int, node string) error {
	well := 0
	for _, task := range alive(w.Site, service) {
		if task.Node != node && task.Health == cluster.HealthHealthy {
			well++
		}
	}
	if well != count {
		return fmt.Errorf("%d of %d tasks of %s run elsewhere than on %s", well, count, service, node)
	}
	return nil
}

// attempts returns the ids of all attempts of a service.
func (w *serviceFleet) attempts(service string) map[string]bool {
	w.t.Helper()
	known := map[string]bool{}
	for _, task := range w.Tasks(client.TaskFilter{Service: service, All: true}) {
		known[task.UUID] = true
	}
	return known
}

// checkReplaced demands that the attempts that replace those of a node begin together, and soon after the node was
// given up. The attempts of before are not among them.
func (w *serviceFleet) checkReplaced(service string, before map[string]bool, given time.Time, own time.Duration) {
	w.t.Helper()
	up := w.ups(service)
	var first, last, run time.Time
	n := 0
	for _, task := range w.Tasks(client.TaskFilter{Service: service}) {
		r, ok := up[task.UUID]
		if !ok || before[task.UUID] {
			continue
		}
		n++
		if first.IsZero() || task.Placed.Before(first) {
			first = task.Placed
		}
		if task.Placed.After(last) {
			last = task.Placed
		}
		if r.At.After(run) {
			run = r.At
		}
	}
	if n == 0 {
		w.t.Errorf("nothing of %s was placed after %v", service, given)
		return
	}
	over := run.Sub(given) - own
	w.t.Logf("%d tasks of %s run %v after the node was given up, %v above what a start takes; placed within %v",
		n, service, run.Sub(given).Round(time.Millisecond), over.Round(time.Millisecond),
		last.Sub(first).Round(time.Millisecond))
	limit := testkit.Scaled(laxReplaceLimit)
	if testkit.Setting(w.t, silenceVariable, 0) != 0 {
		limit = replaceLimit
	}
	if over > limit {
		w.t.Errorf("the tasks run %v after the node was given up and a start takes %v, want at most %v more",
			run.Sub(given), own, limit)
	}
	if last.Sub(first) > spreadLimit {
		w.t.Errorf("the tasks were placed within %v, not at the same time", last.Sub(first))
	}
}

// doubled returns the tasks of a service that had two living processes at the same time.
func (w *serviceFleet) doubled(service string) (names []cluster.TaskID) {
	live := map[cluster.TaskID][]load.Record{}
	for _, r := range w.recorder.All() {
		if r.What == load.Up && w.owner(r) == service {
			live[r.Task] = append(live[r.Task], r)
		}
	}
	for id, records := range live {
		lives := 0
		for _, r := range records {
			if harness.StartOf(r.Pid) != 0 {
				lives++
			}
		}
		if lives > 1 {
			names = append(names, id)
		}
	}
	return names
}

// killTasks kills all that the agent of a dead machine left behind.
func (w *serviceFleet) killTasks(a *harness.Agent) {
	w.t.Helper()
	w.Eventually(soon, func() error {
		pids := harness.ProcessesOf(a.Dir + "/")
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
		if len(pids) > 0 {
			return fmt.Errorf("%d processes live", len(pids))
		}
		return nil
	})
}
