package controlplane_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/scheduling"
	"github.com/berthd/berth/internal/store"
)

// outside is a scheduler outside of the control plane, named "tray", that a test drives.
type outside struct {
	w *world
	// revision is that of the domain's record when the scheduler claimed it, base the last revision of the state.
	revision uint64
	base     string
	nodes    map[string]*cluster.SchedulingNode
	groups   map[string]*cluster.SchedulingGroup
	close    func()
}

// external gives the default domain an external scheduler that takes over after 10 s, and waits until the leader of the
// world knows.
func (w *world) external() *outside {
	w.t.Helper()
	w.put(p.Domain(cluster.DefaultDomain), &cluster.Domain{
		Name: cluster.DefaultDomain,
		Scheduler: &cluster.DomainScheduler{
			Type: cluster.SchedulerExternal, Name: "tray", TakeOver: cluster.Duration(10 * time.Second),
		},
	})
	w.until(10*time.Second, "a leader", func(s *store.Snapshot) bool {
		_, ok := s.Domain(cluster.DefaultDomain)
		return ok && w.server.plane.SchedulingState() != nil
	})
	return w.newOutside()
}

func (w *world) newOutside() *outside {
	return &outside{w: w, nodes: map[string]*cluster.SchedulingNode{}, groups: map[string]*cluster.SchedulingGroup{}}
}

// claim claims the domain, as the API server does.
func (o *outside) claim() {
	o.w.t.Helper()
	e, _ := o.w.server.tables.Snapshot().Domain(cluster.DefaultDomain)
	next := *e.Value
	next.Claim = &cluster.SchedulerClaim{Holder: "tray", Instance: rand.Text(), Since: time.Now()}
	o.w.put(p.Domain(cluster.DefaultDomain), &next)
	o.w.until(5*time.Second, "the claim", func(s *store.Snapshot) bool {
		e, _ := s.Domain(cluster.DefaultDomain)
		o.revision = e.Modified
		return e.Value.Claim != nil && e.Value.Claim.Instance == next.Claim.Instance
	})
	o.read()
}

// read reads the state of the domain up to the last change.
func (o *outside) read() {
	o.w.t.Helper()
	feed := o.w.server.plane.SchedulingState()
	if o.close == nil {
		o.close = feed.Open()
		o.w.t.Cleanup(o.close)
	}
	var lines scheduling.Lines
	o.w.until(5*time.Second, "the state", func(*store.Snapshot) bool {
		lines = feed.Read(o.base)
		return lines.Revision != ""
	})
	if lines.Reset {
		clear(o.nodes)
		clear(o.groups)
	}
	o.base = lines.Revision
	for _, text := range lines.Texts {
		var l cluster.SchedulingLine
		if err := json.Unmarshal(text, &l); err != nil {
			o.w.t.Fatal(err)
		}
		switch {
		case l.Node != nil:
			o.nodes[l.Node.Name] = l.Node
		case l.Group != nil:
			o.groups[l.Group.ID] = l.Group
		case l.RemovedNode != "":
			delete(o.nodes, l.RemovedNode)
		case l.RemovedGroup != "":
			delete(o.groups, l.RemovedGroup)
		}
	}
}

// pending returns the pending tasks of the state, ordered.
func (o *outside) pending() (tasks []cluster.TaskID) {
	for _, g := range o.groups {
		for _, q := range g.Pending {
			for i := range 1 + q.Further {
				tasks = append(tasks, q.Task.Offset(i))
			}
		}
	}
	slices.Sort(tasks)
	return tasks
}

// awaitPending reads the state until it has a number of pending tasks.
func (o *outside) awaitPending(n int) []cluster.TaskID {
	o.w.t.Helper()
	o.w.until(10*time.Second, "pending tasks in the state", func(*store.Snapshot) bool {
		o.read()
		return len(o.pending()) == n
	})
	return o.pending()
}

// running returns the tasks on a node by the state, with their UUIDs.
func (o *outside) running(node string) map[cluster.TaskID]string {
	out := map[cluster.TaskID]string{}
	if n := o.nodes[node]; n != nil {
		for _, t := range n.Tasks {
			out[t.Task] = t.UUID
		}
	}
	return out
}

// propose sends a proposal with the present claim and base.
func (o *outside) propose(dry bool, commands ...cluster.ProposalCommand) (cluster.ProposalAnswer, error) {
	ctx, cancel := context.WithTimeout(o.w.t.Context(), 10*time.Second)
	defer cancel()
	return o.w.server.plane.Propose(ctx, &scheduling.Request{
		Proposal: &cluster.Proposal{DomainRevision: o.revision, Base: o.base, Commands: commands},
		DryRun:   dry,
	})
}

// mustPropose sends a proposal and returns the codes of the results; "" for accepted ones.
func (o *outside) mustPropose(commands ...cluster.ProposalCommand) (codes []cluster.ReasonCode) {
	o.w.t.Helper()
	a, err := o.propose(false, commands...)
	if err != nil {
		o.w.t.Fatal(err)
	}
	for _, r := range a.Results {
		if r.Accepted == (r.Code != "") || r.Accepted == (r.Message != "") {
			o.w.t.Errorf("an unclear result: %+v", r)
		}
		codes = append(codes, r.Code)
	}
	return codes
}

func place(task cluster.TaskID, node string) cluster.ProposalCommand {
	return cluster.ProposalCommand{Action: cluster.ProposePlace, Task: task, Node: node}
}

// TestExternalSchedulerPlaces has an external scheduler place a service. Tasks run where it proposes, and nowhere else.
// What does not fit is refused with the reason of the built-in scheduler, and the rest of the proposal is placed.
func TestExternalSchedulerPlaces(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.node("n2")
		w.definition(1, 1500) // two of them fill a node
		o := w.external()
		w.service(4, 1, 1)
		o.claim()
		tasks := o.awaitPending(4)
		if len(o.nodes) != 2 || o.nodes["n1"].Free.CPU != 4000 || !o.nodes["n1"].Accepts {
			t.Fatalf("the state has the nodes %+v", o.nodes)
		}
		g := o.groups["c/web/d@1"]
		if g == nil || g.Demand.CPU != 1500 || g.Owner.Name != "web" {
			t.Fatalf("the state has the groups %+v", o.groups)
		}
		codes := o.mustPropose(
			place(tasks[0], "n2"), place(tasks[1], "n2"), place(tasks[2], "n2"), place(tasks[3], "n3"))
		want := []cluster.ReasonCode{"", "", cluster.ReasonShortCPU, cluster.ReasonStale}
		if diff := cmp.Diff(want, codes); diff != "" {
			t.Fatalf("results (-want +got):\n%s", diff)
		}
		w.until(10*time.Second, "2 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 2 })
		o.read()
		if n := len(o.running("n2")); n != 2 || len(o.running("n1")) != 0 || o.nodes["n2"].Free.CPU != 1000 {
			t.Errorf("the state has %d tasks on n2, with %v CPU free", n, o.nodes["n2"].Free.CPU)
		}
		for task, want := range map[cluster.TaskID]string{
			tasks[2]: "tray proposed n2: CPU short", tasks[3]: "tray of the domain has not placed it",
		} {
			if reason, _ := w.server.plane.Waiting(task); !strings.Contains(reason.Sentence, want) {
				t.Errorf("it waits because %q", reason.Sentence)
			}
		}
		codes = o.mustPropose(
			cluster.ProposalCommand{Action: cluster.ProposeWait, Task: tasks[3], Reason: "n1 is for the night"},
			place(tasks[2], "n1"))
		if codes[0] != "" || codes[1] != "" {
			t.Fatalf("refused: %v", codes)
		}
		w.until(10*time.Second, "3 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 3 })
		if reason, _ := w.server.plane.Waiting(tasks[3]); reason.Sentence != "the scheduler tray: n1 is for the night" {
			t.Errorf("it waits because %q", reason.Sentence)
		}
		if codes := o.mustPropose(place(tasks[2], "n1")); codes[0] != cluster.ReasonStale {
			t.Errorf("a task that runs: %v, want stale", codes)
		}
	})
}

// TestSilentExternalScheduler has a scheduler fall silent. The silence is reported, the built-in scheduler takes over,
// and the old one is refused with the name of the new one, until it claims the domain again.
func TestSilentExternalScheduler(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.definition(1, 100)
		o := w.external()
		o.claim()
		for range 3 { // empty proposals are signs of life
			if a, err := o.propose(false); err != nil || len(a.Results) != 0 {
				t.Fatal(a, err)
			}
			time.Sleep(4 * time.Second) // in-bubble: inWorld makes one
		}
		w.service(2, 1, 1)
		w.until(11*time.Second, "the take-over", func(s *store.Snapshot) bool { return healthy(s, 1) == 2 })
		var events []string
		for b := range w.server.tables.Snapshot().EventBatches() {
			for _, e := range b.Value.Events {
				if strings.HasPrefix(e.Type, "domain.") {
					events = append(events, e.Type)
				}
			}
		}
		if diff := cmp.Diff([]string{"domain.scheduler-silent", "domain.taken-over"}, events); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		_, err := o.propose(false)
		fenced, ok := errors.AsType[*scheduling.FencedError](err)
		if !ok || fenced.Holder != cluster.BuiltinScheduler || !strings.Contains(err.Error(), "silent for 10s") {
			t.Fatalf("the old scheduler got %v", err)
		}
		o.claim()
		w.service(3, 1, 1)
		tasks := o.awaitPending(1)
		if codes := o.mustPropose(place(tasks[0], "n1")); codes[0] != "" {
			t.Errorf("refused: %v", codes)
		}
		w.until(5*time.Second, "3 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 3 })
	})
}

// TestFencedScheduler has two instances claim a domain. The proposals of the first are refused from then on. Nothing is
// placed before anybody claims the domain.
func TestFencedScheduler(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.definition(1, 100)
		o := w.external()
		w.service(1, 1, 1)
		o.read()
		w.until(5*time.Second, "a reason", func(*store.Snapshot) bool {
			reason, _ := w.server.plane.Waiting("c.web.1.0")
			return strings.Contains(reason.Sentence, "has not claimed the domain yet")
		})
		if _, err := o.propose(false, place("c.web.1.0", "n1")); err == nil {
			t.Fatal("accepted without a claim")
		}
		o.claim()
		second := w.newOutside()
		second.claim()
		o.awaitPending(1)
		_, err := o.propose(false, place("c.web.1.0", "n1"))
		if _, ok := errors.AsType[*scheduling.FencedError](err); !ok {
			t.Fatalf("the first instance got %v", err)
		}
		if codes := second.mustPropose(place("c.web.1.0", "n1")); codes[0] != "" {
			t.Errorf("refused: %v", codes)
		}
		w.until(5*time.Second, "1 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 1 })
	})
}

// TestStaleProposals has the state change between a read and a proposal. What is stale is refused, the rest is placed.
func TestStaleProposals(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.definition(1, 100)
		w.definition(2, 100)
		o := w.external()
		w.service(2, 1, 1)
		o.claim()
		tasks := o.awaitPending(2)
		old := o.base
		a := place(tasks[1], "n1")
		a.Attempt = 2
		if codes := o.mustPropose(place(tasks[0], "n1"), a, place("c.web.7.9", "n1")); !slices.Equal(codes,
			[]cluster.ReasonCode{"", cluster.ReasonStale, cluster.ReasonStale}) {
			t.Errorf("results: %v", codes)
		}
		w.put(p.Service("c", "web"), &cluster.Service{ // another priority is another demand of the group
			Cluster: "c", Name: "web", Count: 2, Definition: cluster.Ref{Name: "d", Version: 1}, Priority: 900,
			OnDisconnect: cluster.DisconnectKeep, Lifespan: cluster.Lifespan{Generation: 1, Created: time.Now()},
		})
		w.until(5*time.Second, "the new priority in the state", func(*store.Snapshot) bool {
			o.read()
			return o.groups["c/web/d@1"].Priority == 900
		})
		newest := o.base
		o.base = old
		if codes := o.mustPropose(place(tasks[1], "n1")); codes[0] != cluster.ReasonStale {
			t.Errorf("results: %v", codes)
		}
		o.base = "1-0"
		if codes := o.mustPropose(place(tasks[1], "n1")); codes[0] != cluster.ReasonStale {
			t.Errorf("results: %v", codes)
		}
		o.base = newest
		if codes := o.mustPropose(place(tasks[1], "n1")); codes[0] != "" {
			t.Errorf("results: %v", codes)
		}
	})
}

// TestExternalMovesAndEvictions has a scheduler move and evict tasks. A move ends on the named node, and the service
// keeps its least number of healthy tasks.
func TestExternalMovesAndEvictions(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.node("n2")
		w.definition(1, 1500)
		o := w.external()
		w.service(2, 1, 1)
		o.claim()
		tasks := o.awaitPending(2)
		o.mustPropose(place(tasks[0], "n1"), place(tasks[1], "n1"))
		w.until(10*time.Second, "2 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 2 })
		w.until(10*time.Second, "the rollout ended", func(s *store.Snapshot) bool {
			r, ok := s.Rollout("c", "web")
			return ok && r.Value.State.Ended()
		})
		o.read()
		move := cluster.ProposalCommand{
			Action: cluster.ProposeMove, Task: tasks[0], Node: "n2", UUID: o.running("n1")[tasks[0]], Reason: "quieter",
		}
		wrong := cluster.ProposalCommand{Action: cluster.ProposeMove, Task: tasks[1], Node: "n2", UUID: "no"}
		if codes := o.mustPropose(move, wrong); codes[0] != "" || codes[1] != cluster.ReasonStale {
			t.Fatalf("results: %v", codes)
		}
		least := 2
		alive := func(s *store.Snapshot) int { return healthy(s, 1) }
		stay := func() { _, _ = o.propose(false) }
		w.until(30*time.Second, "the move", func(s *store.Snapshot) bool {
			least = min(least, alive(s))
			stay()
			o.read()
			return slices.Equal(slices.Collect(maps.Keys(o.running("n2"))), tasks[:1]) && len(o.running("n1")) == 1 &&
				alive(s) == 2
		})
		evict := cluster.ProposalCommand{
			Action: cluster.ProposeEvict, Task: tasks[1], UUID: o.running("n1")[tasks[1]],
		}
		if codes := o.mustPropose(evict); codes[0] != cluster.ReasonPermit {
			t.Fatalf("results: %v", codes)
		}
		spec, _ := w.server.tables.Snapshot().Service("c", "web")
		lower := *spec.Value
		lower.Update.MinHealthy = &cluster.Portion{N: 1}
		w.put(p.Service("c", "web"), &lower)
		w.until(10*time.Second, "the lower minimum", func(*store.Snapshot) bool {
			return o.mustPropose(evict)[0] == ""
		})
		other := evict
		other.Task, other.UUID = tasks[0], o.running("n2")[tasks[0]]
		if codes := o.mustPropose(other); codes[0] != cluster.ReasonPermit {
			t.Fatalf("a second eviction: %v", codes)
		}
		w.until(40*time.Second, "the evicted task is pending", func(*store.Snapshot) bool {
			stay()
			o.read()
			return slices.Equal(o.pending(), tasks[1:])
		})
		if codes := o.mustPropose(place(tasks[1], "n2")); codes[0] != "" {
			t.Fatalf("results: %v", codes)
		}
		w.until(10*time.Second, "2 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 2 })
	})
}

// TestDryRun has a proposal checked in a domain that the built-in scheduler places, and in one of an external
// scheduler. Nothing is written.
func TestDryRun(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.definition(1, 3000)
		o := w.external()
		w.service(2, 1, 1)
		o.claim()
		tasks := o.awaitPending(2)
		a, err := o.propose(true, place(tasks[0], "n1"), place(tasks[1], "n1"))
		if err != nil || !a.DryRun || a.Accepted != 1 || a.Refused != 1 || !a.Results[0].Accepted ||
			a.Results[1].Code != cluster.ReasonShortCPU {
			t.Errorf("a dry run: %+v, %v", a, err)
		}
		o.read()
		if len(o.pending()) != 2 {
			t.Errorf("a dry run placed something")
		}
		w.put(p.Domain(cluster.DefaultDomain), &cluster.Domain{Name: cluster.DefaultDomain})
		w.until(10*time.Second, "the built-in scheduler", func(s *store.Snapshot) bool { return healthy(s, 1) == 1 })
		o.awaitPending(1)
		a, err = o.propose(true, place(tasks[1], "n1"))
		if err != nil || a.Results[0].Code != cluster.ReasonShortCPU {
			t.Errorf("a dry run: %+v, %v", a, err)
		}
		if _, err := o.propose(false, place(tasks[1], "n1")); err == nil {
			t.Error("the domain has no external scheduler, and a proposal was accepted")
		}
	})
}

// TestStateAfterTakeover has another leader take the domain. Readers get the whole state again, and a base of the
// earlier leader is stale.
func TestStateAfterTakeover(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.definition(1, 100)
		o := w.external()
		w.service(2, 1, 1)
		o.claim()
		tasks := o.awaitPending(2)
		o.mustPropose(place(tasks[0], "n1"))
		w.until(10*time.Second, "1 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 1 })
		old := o.base
		o.close = nil
		w.server.stop()
		w.start()
		w.until(20*time.Second, "the next leader", func(*store.Snapshot) bool {
			return w.server.plane.SchedulingState() != nil
		})
		if lines := w.server.plane.SchedulingState().Read(old); lines.Revision != "" && !lines.Reset {
			t.Error("the next leader knows a revision of the one before")
		}
		left := o.awaitPending(1)
		w.until(10*time.Second, "the node reported to the next leader", func(*store.Snapshot) bool {
			o.read()
			return o.nodes["n1"].Accepts
		})
		if codes := o.mustPropose(place(left[0], "n1")); codes[0] != "" {
			t.Errorf("results: %v", codes)
		}
		w.until(10*time.Second, "2 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 2 })
		if n := o.groups["c/web/d@1"].Running; n == 0 {
			t.Errorf("the group has %d running tasks", n)
		}
	})
}
