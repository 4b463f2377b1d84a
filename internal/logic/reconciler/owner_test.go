package reconciler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/logic/watcher"
)

// TestSpare: a service can give up its healthy tasks beyond its minimum for more urgent ones. One that wants no tasks,
// and a daemon, whose tasks are not preempted for their places, can give up all. After that many ends the minimum is
// still healthy, and one more would break it.
func TestSpare(t *testing.T) {
	some, none := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		c := chaos{T: t, world: newWorld(), seen: map[string]int{}}
		ref := c.define("web@1", nil)
		n := rapid.IntRange(1, 5).Draw(t, "count")
		c.service = &cluster.Service{
			Name: "web", Definition: ref, Count: n, Lifespan: cluster.Lifespan{Generation: 1},
			Update: cluster.Update{MinHealthy: &cluster.Portion{N: rapid.IntRange(0, 5).Draw(t, "least")}},
		}
		c.service.SetDefaults()
		c.owner = c.service.Owner()
		for i := range rapid.IntRange(0, 6).Draw(t, "tasks") {
			c.put(1, i, ref)
		}
		c.absent["n2"] = []watcher.Absence{watcher.Present, watcher.Suspected, watcher.Silent}[c.choose("absence", 3)]
		c.unreported["n3"] = c.coin("unreported")
		counted := 0
		for id := range c.healthyTasks() {
			for _, r := range c.records {
				if r.id == id && !c.unreported[r.node()] {
					counted++
				}
			}
		}
		got := reconciler.Spare(c.input(c.tasks()))
		if want := max(0, counted-c.limits().MinHealthy); got != want {
			t.Fatalf("%d to spare, want %d of %d healthy with a minimum of %d:\n%s", got, want, counted,
				c.limits().MinHealthy, c.listAttempts())
		}
		if got > 0 {
			some++
		} else {
			none++
		}
		for _, change := range []func(*cluster.Service){
			func(s *cluster.Service) { s.Stopped = true }, func(s *cluster.Service) { s.Deleted = true },
			func(s *cluster.Service) { s.Count = 0 }, func(s *cluster.Service) { s.Mode = cluster.ModeDaemon },
		} {
			in := c.input(c.tasks())
			spec := *c.service
			change(&spec)
			in.Spec = &spec
			if got := reconciler.Spare(in); got != len(c.records) {
				t.Fatalf("%d to spare of %d tasks that are not wanted", got, len(c.records))
			}
		}
	})
	if some == 0 || none == 0 {
		t.Errorf("%d services had some to spare, %d none", some, none)
	}
}

// TestNodesOfADaemon: a daemon belongs on each node that its own constraints and those of its cluster allow. It begins
// nothing on a node that is silent or left to daemons, but an existing task stays there. A node that is gone does not
// count, whatever is there.
func TestNodesOfADaemon(t *testing.T) {
	arch := []cluster.Constraint{{Attribute: "node.arch", Op: cluster.OpEqual, Value: "amd64"}}
	taint := func(e cluster.TaintEffect) []cluster.Taint { return []cluster.Taint{{Key: "gpu", Effect: e}} }
	for name, c := range map[string]struct {
		node      reconciler.DaemonNode
		fact      scheduler.Node
		own       cluster.Placement
		common    []cluster.Constraint
		new, held bool // whether it belongs there without a task, and with one
	}{
		"any":             {new: true, held: true},
		"gone":            {node: reconciler.DaemonNode{Gone: true}},
		"silent":          {node: reconciler.DaemonNode{Silent: true}, held: true},
		"left to daemons": {node: reconciler.DaemonNode{Alone: true}, held: true},
		"gone and silent": {node: reconciler.DaemonNode{Gone: true, Silent: true}},
		"cordoned":        {fact: scheduler.Node{Cordon: true}, new: true, held: true},
		"its constraint": {
			fact: scheduler.Node{Arch: "amd64"}, own: cluster.Placement{Constraints: arch}, new: true, held: true,
		},
		"not its constraint": {fact: scheduler.Node{Arch: "arm64"}, own: cluster.Placement{Constraints: arch}},
		"not the cluster's":  {fact: scheduler.Node{Arch: "arm64"}, common: arch},
		"its pool": {
			fact: scheduler.Node{Pool: "a"}, own: cluster.Placement{Pool: "a"}, new: true, held: true,
		},
		"another pool":            {fact: scheduler.Node{Pool: "b"}, own: cluster.Placement{Pool: "a"}},
		"a taint for new tasks":   {fact: scheduler.Node{Taints: taint(cluster.TaintNoSchedule)}, held: true},
		"a taint that evicts":     {fact: scheduler.Node{Taints: taint(cluster.TaintEvict)}},
		"a taint that is avoided": {fact: scheduler.Node{Taints: taint(cluster.TaintAvoid)}, new: true, held: true},
		"a tolerated taint": {
			fact: scheduler.Node{Taints: taint(cluster.TaintEvict)}, new: true, held: true, common: nil,
			own: cluster.Placement{Tolerations: []cluster.Toleration{{Key: "gpu"}}},
		},
		"a tolerated taint, and the cluster's constraint": {
			fact: scheduler.Node{Arch: "amd64", Taints: taint(cluster.TaintEvict)}, new: true, held: true, common: arch,
			own: cluster.Placement{Tolerations: []cluster.Toleration{{Key: "gpu"}}},
		},
	} {
		for _, held := range []bool{false, true} {
			in := reconciler.ServiceInput{
				Spec:    &cluster.Service{Name: "log", Mode: cluster.ModeDaemon, Placement: c.own},
				Cluster: &cluster.Cluster{Name: "c", Constraints: c.common},
			}
			if held {
				in.Tasks = []reconciler.Task{{Attempt: cluster.Attempt{Desired: &cluster.Desired{
					Task: "c.log.1.0", Attempt: 1, Node: "n1",
				}}}}
			}
			fact, node, want := c.fact, c.node, []string{}
			fact.Name = "n1"
			node.Node = &fact
			if c.new && !held || c.held && held {
				want = append(want, "n1")
			}
			in.SetNodes(slices.Values([]reconciler.DaemonNode{node}))
			if diff := cmp.Diff(want, in.Nodes); diff != "" || in.Alone["n1"] != c.node.Alone {
				t.Errorf("%s, with a task: %t (-want +got):\n%s alone: %v", name, held, diff, in.Alone)
			}
		}
	}
	stays := reconciler.ServiceInput{Now: time.Unix(1000, 0), Spec: &cluster.Service{
		Name: "log", Mode: cluster.ModeDaemon, Placement: cluster.Placement{
			Constraints: arch, Tolerations: []cluster.Toleration{{Key: "gpu", For: cluster.Duration(time.Minute)}},
		},
	}}
	var tainted []reconciler.DaemonNode
	for name, c := range map[string]struct {
		arch string
		ago  time.Duration
		gone bool
	}{
		"n1": {"amd64", 59 * time.Second, false}, "n2": {"amd64", time.Minute, false}, "n3": {"arm64", 0, false},
		"n4": {"amd64", 0, true}, "n5": {"amd64", 0, false},
	} {
		taint := cluster.Taint{Key: "gpu", Effect: cluster.TaintEvict, Since: stays.Now.Add(-c.ago)}
		tainted = append(tainted, reconciler.DaemonNode{Gone: c.gone, Node: &scheduler.Node{
			Name: name, Arch: c.arch, Taints: []cluster.Taint{taint},
		}})
		if name != "n5" {
			stays.Tasks = append(stays.Tasks, reconciler.Task{Attempt: cluster.Attempt{Desired: &cluster.Desired{
				Task: cluster.ServiceTask("c", "log", 1, len(stays.Tasks)), Attempt: 1, Node: name,
			}}})
		}
	}
	stays.SetNodes(slices.Values(tainted))
	if diff := cmp.Diff(map[string]time.Time{"n1": time.Unix(1001, 0)}, stays.Staying); diff != "" ||
		len(stays.Nodes) > 0 {
		t.Errorf("tolerated for a minute (-want +got):\n%s belongs on %v", diff, stays.Nodes)
	}
	seen := reconciler.ServiceInput{
		Spec: &cluster.Service{Name: "log", Mode: cluster.ModeDaemon},
		Tasks: []reconciler.Task{
			{Attempt: cluster.Attempt{Observed: &cluster.Observed{Task: "c.log.1.0", Attempt: 1, Node: "n1"}}},
			{Attempt: cluster.Attempt{Outcome: &cluster.Outcome{Task: "c.log.1.1", Attempt: 1, Node: "n2"}}},
		},
	}
	seen.SetNodes(slices.Values([]reconciler.DaemonNode{
		{Node: &scheduler.Node{Name: "n1"}, Silent: true}, {Node: &scheduler.Node{Name: "n2"}, Silent: true},
	}))
	if diff := cmp.Diff([]string{"n1"}, seen.Nodes); diff != "" {
		t.Errorf("a task that only its agent knows holds its node, one that has ended does not (-want +got):\n%s", diff)
	}
}

// TestMemoryTrouble: two kills or moves for want of memory within an hour are trouble. Whether the limit is too small
// or the tasks leak follows from how long they lived.
func TestMemoryTrouble(t *testing.T) {
	now := time.Unix(1e9, 0)
	type end struct {
		ago, lived time.Duration
		reason     cluster.ReasonCode
	}
	killed := func(ago, lived time.Duration) end { return end{ago, lived, cluster.ReasonOOM} }
	moved := func(ago time.Duration) end { return end{ago, time.Hour, cluster.ReasonPressure} }
	for name, c := range map[string]struct {
		ends []end
		want string
	}{
		"nothing": {},
		"once":    {ends: []end{killed(time.Minute, time.Minute)}},
		"soon": {
			[]end{killed(time.Minute, time.Minute), killed(2*time.Minute, 9*time.Minute)},
			"memory limit reached: tasks killed 2 times within 1h, soon after their start; raise the limit",
		},
		"one of them late": {
			[]end{killed(time.Minute, time.Minute), killed(2*time.Minute, 10*time.Minute)},
			"memory limit reached: tasks killed 2 times within 1h, after up to 10m: a memory leak",
		},
		"long ago": {ends: []end{killed(time.Minute, time.Minute), killed(time.Hour, time.Minute)}},
		"almost too long ago": {
			[]end{killed(time.Minute, time.Minute), killed(time.Hour-1, time.Minute)},
			"memory limit reached: tasks killed 2 times within 1h, soon after their start; raise the limit",
		},
		"moved": {
			[]end{moved(time.Minute), moved(2 * time.Minute), moved(3 * time.Minute)},
			"nodes short of memory: tasks moved 3 times within 1h; raise the memory request or fix a leak",
		},
		"killed and moved": {
			[]end{killed(time.Minute, time.Minute), moved(2 * time.Minute)},
			"memory limit reached: tasks killed once and moved once within 1h, soon after their start; raise the limit",
		},
		"another end": {ends: []end{killed(time.Minute, time.Minute), {time.Minute, 0, cluster.ReasonExit}}},
	} {
		in := reconciler.ServiceInput{
			Spec: &cluster.Service{Name: "web", Count: 1, Lifespan: cluster.Lifespan{Generation: 1}}, Now: now,
		}
		for i, e := range c.ends {
			in.Tasks = append(in.Tasks, reconciler.Task{Attempt: cluster.Attempt{Outcome: &cluster.Outcome{
				Task: "c.web.1.0", Attempt: i + 1, UUID: fmt.Sprint(i), State: cluster.StateFailed, Reason: e.reason,
				Begun: now.Add(-e.ago - e.lived), Ended: now.Add(-e.ago),
			}}})
		}
		if got := reconciler.StatusOfService(in).MemoryTrouble; got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestMemoryTroubleOfARunningTask: an attempt that its agent restarted after kills counts each of them.
func TestMemoryTroubleOfARunningTask(t *testing.T) {
	now := time.Unix(1e9, 0)
	for name, c := range map[string]struct {
		ooms int
		ago  time.Duration
		want string
	}{
		"once": {ooms: 1, ago: time.Minute},
		"three times": {
			3, time.Minute,
			"memory limit reached: tasks killed 3 times within 1h, soon after their start; raise the limit",
		},
		"long ago": {ooms: 3, ago: time.Hour},
	} {
		o := &cluster.Observed{
			Task: "c.web.1.0", Attempt: 1, UUID: "u", State: cluster.StateRunning,
			Started:    now.Add(-c.ago - time.Minute),
			Containers: []cluster.ContainerStatus{{OOMs: c.ooms, Exit: &cluster.Exit{OOM: true, At: now.Add(-c.ago)}}},
		}
		in := reconciler.ServiceInput{
			Spec: &cluster.Service{Name: "web", Count: 1, Lifespan: cluster.Lifespan{Generation: 1}}, Now: now,
			Tasks: []reconciler.Task{{Attempt: cluster.Attempt{Observed: o}}},
		}
		if got := reconciler.StatusOfService(in).MemoryTrouble; got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestReasonsToLeave: what is told of a task that ends for another one, or for want of memory.
func TestReasonsToLeave(t *testing.T) {
	since := time.Unix(1e9, 0)
	v := cluster.Victim{Node: "n1", For: "b.db.1.0", ForAttempt: 2, Priority: 800, Since: since}
	want := &reconciler.Leave{
		Reason: cluster.ReasonPreempted, Since: since, Now: true, For: "b.db.1.0", ForAttempt: 2,
		Message: "preempted by b.db.1.0 (priority 800) on node n1",
	}
	if diff := cmp.Diff(want, reconciler.PreemptedLeave(&v)); diff != "" {
		t.Errorf("by priority (-want +got):\n%s", diff)
	}
	v.Reclaims = true
	want.Message = "preempted by b.db.1.0 on node n1: cluster b reclaims its quota, and this task is beyond the " +
		"quota of its own cluster"
	if diff := cmp.Diff(want, reconciler.PreemptedLeave(&v)); diff != "" {
		t.Errorf("by quota (-want +got):\n%s", diff)
	}
	p := cluster.Pressure{Since: since, Message: "97% is used", Why: "it uses 1 GiB"}
	want = &reconciler.Leave{
		Reason: cluster.ReasonPressure, Since: since,
		Message: "node n1 is short of memory (97% is used): it uses 1 GiB",
	}
	if diff := cmp.Diff(want, reconciler.PressedLeave("n1", &p)); diff != "" {
		t.Errorf("for want of memory (-want +got):\n%s", diff)
	}
}

// TestRecoveryOf: unknown attempts are stopped only if the operator decided so, and only those from before that.
func TestRecoveryOf(t *testing.T) {
	at := time.Unix(1e9, 0)
	for name, c := range map[string]struct {
		decided *cluster.Recovery
		want    reconciler.Recovery
	}{
		"never went back": {nil, reconciler.Recovery{Incarnation: 4}},
		"not decided":     {&cluster.Recovery{State: cluster.RecoveryNeeded}, reconciler.Recovery{Incarnation: 4}},
		"adopt": {
			&cluster.Recovery{State: cluster.RecoveryAdopt, Decided: at}, reconciler.Recovery{Incarnation: 4},
		},
		"stop": {
			&cluster.Recovery{State: cluster.RecoveryStop, Decided: at},
			reconciler.Recovery{Incarnation: 4, StopBefore: at},
		},
	} {
		if diff := cmp.Diff(c.want, reconciler.RecoveryOf(4, c.decided)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// stays lets a daemon's task stay for a time on a node on which it does not belong.
func (s *stage) stays(node, span string) {
	s.Helper()
	d, err := time.ParseDuration(span)
	if err != nil {
		s.Fatal(err)
	}
	s.staying[node] = s.now.Add(d)
}

// obstacles prints what keeps the tasks of each step of the job from beginning.
func (s *stage) obstacles() {
	found := reconciler.StepObstaclesOf(reconciler.JobInput{Spec: s.job, Tasks: s.tasks()})
	for i := range s.job.Steps {
		name := s.job.Steps[i].Name
		o, ok := found.Of(name)
		if !ok {
			fmt.Fprintf(&s.out, "  %s: none\n", name)
			continue
		}
		fmt.Fprintf(&s.out, "  %s %s: %s", name, o.State, strings.ReplaceAll(o.Message, "default.", ""))
		if o.Hold != "" {
			fmt.Fprintf(&s.out, "; held: %s", o.Hold)
		}
		if o.Retries {
			s.out.WriteString("; runs if the failed tasks are tried again")
		}
		s.out.WriteString("\n")
	}
	if o, ok := found.Of("unknown"); ok {
		s.Errorf("a step that does not exist has the obstacle %+v", o)
	}
}

// TestFindViolation: a taint that evicts makes each task leave, after the time that its toleration gives it. A
// constraint or a pool that its node does not meet any more makes only tasks of services leave, and only if they are to
// move. A violation that is merely shown is returned, too.
func TestFindViolation(t *testing.T) {
	since := time.Unix(1e9, 0)
	arch := []cluster.Constraint{{Attribute: "node.arch", Op: cluster.OpEqual, Value: "amd64"}}
	evicts := []cluster.Taint{{Key: "old", Effect: cluster.TaintEvict, Since: since}}
	tolerates := func(span time.Duration) *cluster.Placement {
		return &cluster.Placement{Tolerations: []cluster.Toleration{{Key: "old", For: cluster.Duration(span)}}}
	}
	for name, c := range map[string]struct {
		task   reconciler.PlacedTask
		node   scheduler.Node
		want   *reconciler.Leave
		leaves bool
	}{
		"fits":         {task: reconciler.PlacedTask{Common: arch}, node: scheduler.Node{Arch: "amd64", Pool: "a"}},
		"tolerates it": {task: reconciler.PlacedTask{Placement: tolerates(0)}, node: scheduler.Node{Taints: evicts}},
		"for a while": {
			reconciler.PlacedTask{Placement: tolerates(time.Minute)},
			scheduler.Node{Taints: evicts},
			&reconciler.Leave{
				Reason: cluster.ReasonTaint, Message: "node n1 has the taint old:evict", Since: since,
				From: since.Add(time.Minute),
			}, true,
		},
		"a job's task ends at once": {
			reconciler.PlacedTask{Job: true},
			scheduler.Node{Taints: evicts},
			&reconciler.Leave{
				Reason: cluster.ReasonTaint, Message: "node n1 has the taint old:evict", Since: since, From: since,
				Now: true,
			}, true,
		},
		"its constraint, and it moves": {
			reconciler.PlacedTask{
				Placement: &cluster.Placement{Constraints: arch}, OnViolation: cluster.ViolationMove,
			},
			scheduler.Node{Arch: "arm64"},
			&reconciler.Leave{
				Reason: cluster.ReasonConstraint, Message: `node n1 no longer meets node.arch = amd64`,
			}, true,
		},
		"its cluster's constraint, and it stays": {
			reconciler.PlacedTask{Common: arch, OnViolation: cluster.ViolationKeep},
			scheduler.Node{Arch: "arm64"},
			&reconciler.Leave{
				Reason: cluster.ReasonConstraint, Message: `node n1 no longer meets node.arch = amd64`,
			}, false,
		},
		"its pool": {
			reconciler.PlacedTask{
				Placement: &cluster.Placement{Pool: "a"}, OnViolation: cluster.ViolationMove,
			},
			scheduler.Node{Pool: "b"},
			&reconciler.Leave{Reason: cluster.ReasonConstraint, Message: "node n1 is no longer in pool a"}, true,
		},
		"a job's pool": {
			reconciler.PlacedTask{
				Placement: &cluster.Placement{Pool: "a"}, Job: true, OnViolation: cluster.ViolationMove,
			},
			scheduler.Node{Pool: "b"},
			&reconciler.Leave{Reason: cluster.ReasonConstraint, Message: "node n1 is no longer in pool a"}, false,
		},
		"a taint goes before a constraint": {
			reconciler.PlacedTask{Common: arch, OnViolation: cluster.ViolationKeep},
			scheduler.Node{Arch: "arm64", Taints: evicts},
			&reconciler.Leave{
				Reason: cluster.ReasonTaint, Message: "node n1 has the taint old:evict", Since: since, From: since,
			}, true,
		},
	} {
		if c.task.Placement == nil {
			c.task.Placement = &cluster.Placement{}
		}
		c.node.Name = "n1"
		got, leaves := reconciler.FindViolation(c.task, &c.node)
		if diff := cmp.Diff(c.want, got); diff != "" || leaves != c.leaves {
			t.Errorf("%s: it leaves: %t, want %t (-want +got):\n%s", name, leaves, c.leaves, diff)
		}
	}
}
