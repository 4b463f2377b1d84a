package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/test/harness"
	"github.com/berthd/berth/test/load"
)

// shallow is a policy that gives up a healthy task before the next one is there, so that each step needs a permit. Its
// deadlines are those of good versions, which must not fail on a busy machine.
func shallow() cluster.Update {
	return cluster.Update{
		MaxSurge: portion(0), MinHealthy: portion(3), Parallelism: portion(1), Order: cluster.StopFirst,
		HealthyDeadline: cluster.Duration(10 * time.Minute), ProgressDeadline: cluster.Duration(time.Hour),
	}
}

// careful is a policy that begins a task more first.
func careful() cluster.Update {
	u := shallow()
	u.MaxSurge, u.MinHealthy, u.Order = portion(1), portion(4), cluster.StartFirst
	return u
}

// badBuilds is a fleet on which version 1 of the service web is healthy.
type badBuilds struct {
	*serviceFleet
	t *testing.T
}

func newBadBuilds(t *testing.T) badBuilds {
	t.Helper()
	b := badBuilds{newServiceFleet(t, harness.Containerd, 3, 2), t}
	b.put(served{name: "web", version: 1, count: 4, update: careful()})
	b.completes("web", 1)
	return b
}

// bad rolls out a version whose tasks become ill, and waits for a record of one of its tasks. The test waits for the
// deadline of health in full, so it is short. A rollout that failed before a task came so far, on a busy machine, shows
// nothing, and is repeated with a longer one.
func (b badBuilds) bad(what string, version int, update cluster.Update) {
	b.t.Helper()
	update.HealthyDeadline = harness.Scaled(3 * time.Second)
	for range 5 {
		update.ProgressDeadline = 10 * update.HealthyDeadline
		before, err := b.rolledBack("web", version)
		if err != nil {
			b.t.Fatal(err)
		}
		b.put(served{name: "web", version: version, count: 4, env: map[string]string{"ILL": "1"}, update: update})
		b.Eventually(2*soon, func() error {
			after, err := b.rolledBack("web", version)
			if err == nil && after == before && !b.recorded(what, version) {
				err = fmt.Errorf("no task of version %d is %s, and it is not rolled back", version, what)
			}
			return err
		})
		if b.recorded(what, version) {
			return
		}
		b.t.Logf("version %d was rolled back after %s, before a task was %s: once more", version,
			update.HealthyDeadline, what)
		update.HealthyDeadline *= 2
	}
	b.t.Fatalf("no task of version %d was %s", version, what)
}

// back returns nil once the version before a bad one runs again.
func (b badBuilds) back(bad, good int) func() error {
	return func() error {
		v, err := b.rollout("web")
		switch {
		case err != nil:
			return err
		case v.Reverted == 0 || v.Definition.Version != good || v.State != cluster.RolloutComplete:
			return fmt.Errorf("version %d is not taken back: %s is %s: %s %v", bad, v.Definition, v.State,
				v.Message, v.Waits)
		}
		return b.wasRolledBack("web", bad)
	}
}

// TestBadBuild rolls out builds whose check fails, on real containers.
func TestBadBuild(t *testing.T) {
	t.Parallel()
	w := newBadBuilds(t)
	for n, update := range []cluster.Update{careful(), shallow()} {
		version := 2 + n
		stop := w.sendRequests("web", update.Limits(4, false).MinHealthy, nil)
		w.bad(load.Ill, version, update)
		w.Eventually(2*soon, w.back(version, 1))
		stop()
		w.awaitEvent(
			"service.rollout-failed",
			fmt.Sprintf("web@%d", version),
			"did not become healthy within ",
			"answered 500",
		)
		w.awaitEvent("service.rolled-back", fmt.Sprintf("web@%d", version), "rolled back to web@1")
	}
	w.Berth("rollout", "status", "web").Want(t, 1, "web@1", "web@3")
	w.Berth("rollout", "history", "web").Want(t, 0, "rolled-back", "web@2", "web@3", "complete")
	w.Berth("events", "--tail", "-1").Want(t, 0, "service.rolled-back", "answered 500")
}

// steered is a service whose rollouts people steer.
const steered = `
kind: TaskDefinition
name: hello
version: %[1]d
containers:
  - name: main
    command: [sh, -c, 'while :; do sleep 1000; done']
    resources: {cpu: 10m, memory: 16MiB}
min_healthy_time: 100ms
grace: 1s
---
kind: Service
name: hello
definition: hello@%[1]d
count: 3
update: %[2]s
`

// TestRolloutsThatPeopleSteer goes through canaries, promotion, pause, undo, and blue/green.
func TestRolloutsThatPeopleSteer(t *testing.T) {
	t.Parallel()
	s := harness.New(t, harness.Process)
	s.Dev()
	run := func(version int, update string, flags ...string) harness.Result {
		t.Helper()
		file := s.Write(fmt.Sprintf("v%d.yaml", version), fmt.Sprintf(steered, version, update))
		return s.Berth(append([]string{"run", file}, flags...)...)
	}
	// versions waits until that many tasks of each version run, and no other.
	versions := func(want map[int]int) {
		t.Helper()
		s.Eventually(soon, func() error {
			got := map[int]int{}
			for _, task := range alive(s, "hello") {
				if task.State != cluster.StateRunning || task.Health != cluster.HealthHealthy {
					return fmt.Errorf("%s is %s, %s: %s", task.ID, task.State, task.Health, task.Message)
				}
				got[task.Definition.Version]++
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				return fmt.Errorf("%v run, want %v", got, want)
			}
			return nil
		})
	}
	status := func(words ...string) {
		t.Helper()
		s.Eventually(soon, func() error {
			r := s.Berth("rollout", "status", "hello")
			for _, word := range words {
				if !strings.Contains(r.Stdout+r.Stderr, word) {
					return fmt.Errorf("want %q:\n%v", word, r)
				}
			}
			return nil
		})
	}
	run(1, "{}").Want(t, 0, "3/3")
	versions(map[int]int{1: 3})

	// One canary beside all old tasks, until its promotion.
	run(2, "{canaries: 1}", "--detach").Want(t, 0)
	status("canary", "hello@2")
	versions(map[int]int{1: 3, 2: 1})
	s.Berth("explain", "hello").Want(t, 0, "promote")
	s.Berth("promote", "hello").Want(t, 0, "promoted hello@2")
	versions(map[int]int{2: 3})
	status("complete")
	s.Berth("promote", "hello").Want(t, 0)

	// A rollout that is paused, and continues.
	s.Berth("rollout", "pause", "hello").Want(t, 0, "paused")
	run(3, "{}", "--detach").Want(t, 0)
	status("paused")
	versions(map[int]int{2: 3})
	s.Berth("rollout", "resume", "--detach", "hello").Want(t, 0, "is resumed")
	versions(map[int]int{3: 3})
	status("complete")

	// Back by hand.
	s.Berth("rollout", "undo", "hello").Want(t, 0, "hello@3 → hello@2")
	versions(map[int]int{2: 3})
	s.Berth("rollout", "undo", "hello", "--to", "1").Want(t, 0, "hello@2 → hello@1")
	versions(map[int]int{1: 3})

	// As many canaries as tasks: blue and green.
	run(4, "{canaries: 3}", "--detach").Want(t, 0)
	status("canary", "hello@4")
	versions(map[int]int{1: 3, 4: 3})
	s.Berth("promote", "hello").Want(t, 0)
	versions(map[int]int{4: 3})
	s.Berth("rollout", "history", "hello", "--diff").Want(t, 0, "hello@4", "hello@3", "hello@2", "hello@1", "complete")
	s.Berth("events", "--tail", "-1").Want(t, 0, "service.rollout-started", "service.canary-healthy",
		"service.promoted",
		"service.rollout-complete", "service.rollout-paused", "service.rollout-resumed")
}
