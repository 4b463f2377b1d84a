package sim

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/fake"
	"github.com/berthd/berth/internal/store"
)

// historyWriter writes impossible histories.
type historyWriter struct {
	v        *checker
	revision uint64
	node     *node
}

func newHistoryWriter(servers int) *historyWriter {
	h := &historyWriter{v: newChecker(&Story{Seed: 1, Servers: servers, Nodes: 1})}
	for _, d := range definitions() {
		h.v.cpu[d.Ref()], h.v.definitions[d.Ref()] = d.Demand().CPU, d
	}
	h.node = &node{name: "n1"}
	h.leader(1, "s1")
	return h
}

// put writes records at one revision: keys and values in turn; a nil value deletes.
func (h *historyWriter) put(pairs ...any) {
	h.revision++
	var changes []store.Change
	for i := 0; i < len(pairs); i += 2 {
		key := pairs[i].(string) //nolint:forcetypeassert // of the tests below
		c := store.Change{
			Record:  store.Record{Key: key, Created: h.revision, Modified: h.revision},
			Deleted: pairs[i+1] == nil,
		}
		if !c.Deleted {
			value, err := store.Encode(pairs[i+1])
			if err != nil {
				panic(err)
			}
			c.Value = value
		}
		changes = append(changes, c)
	}
	h.v.observe(changes, h.revision, false)
}

func (h *historyWriter) leader(epoch uint64, holder string) {
	h.put(prefix.Leader(cluster.DefaultDomain), &cluster.Leader{Epoch: epoch, Holder: holder, Incarnation: 1})
}

var web = cluster.OwnerRef{Kind: cluster.KindService, Cluster: inCluster, Name: "web"}

// desired is an attempt of the service web on n1, or of the job batch.
func desired(uuid string, index, number int, change ...func(*cluster.Desired)) *cluster.Desired {
	d := &cluster.Desired{
		Task: cluster.ServiceTask(inCluster, "web", 1, index), Attempt: number, UUID: uuid, Node: "n1", Owner: web,
		Definition: cluster.Ref{Name: "web", Version: 1}, Token: cluster.Token{Incarnation: 1, Epoch: 1},
	}
	for _, c := range change {
		c(d)
	}
	return d
}

func batch(d *cluster.Desired) {
	d.Owner = cluster.OwnerRef{Kind: cluster.KindJob, Cluster: inCluster, Name: "batch"}
	d.Task = cluster.JobTask(inCluster, "batch", 1, "work", 0)
	d.Definition = cluster.Ref{Name: "work", Version: 1}
}

func stopped(reason cluster.ReasonCode) func(*cluster.Desired) {
	return func(d *cluster.Desired) {
		d.Stop = &cluster.Stop{Class: cluster.StopVoluntary, Reason: reason}
	}
}

// plan is a plan record of attempts of the service web.
func plan(seq uint64, placed ...cluster.Placed) *cluster.PlanRecord {
	return &cluster.PlanRecord{Seq: seq, Token: cluster.Token{Incarnation: 1, Epoch: 1}, Owners: []cluster.PlanOwner{{
		Owner: web, Generation: 1, Definition: cluster.Ref{Name: "web", Version: 1}, Tasks: placed,
	}}}
}

func (h *historyWriter) want(d *cluster.Desired) { h.put(prefix.Desired(d.Node, d.Task), d) }

func (h *historyWriter) saw(d *cluster.Desired, state cluster.State, change ...func(*cluster.Observed)) {
	o := &cluster.Observed{Task: d.Task, Attempt: d.Attempt, UUID: d.UUID, Node: d.Node, State: state}
	for _, c := range change {
		c(o)
	}
	h.put(prefix.Observed(o.Node, o.Task), o)
}

// ended writes an outcome with its event.
func (h *historyWriter) ended(d *cluster.Desired, state cluster.State) {
	out := &cluster.Outcome{
		Task: d.Task, Attempt: d.Attempt, UUID: d.UUID, Node: d.Node, Owner: d.Owner, State: state,
		Reason: cluster.ReasonNodeDown,
	}
	h.put(prefix.Event(d.UUID+string(state)),
		&cluster.EventBatch{
			ID:     d.UUID,
			Events: []cluster.Event{{Type: "task." + string(state), Task: d.Task, Attempt: d.Attempt}},
		},
		prefix.Outcome(d.Task, d.Attempt), out)
}

func (h *historyWriter) runs(uuid string)  { h.v.programs.checkProgram(h.node, run1(uuid)) }
func (h *historyWriter) stops(uuid string) { h.v.programs.checkProgram(h.node, ended1(uuid)) }

func run1(uuid string) fake.Run {
	return fake.Run{ID: executor.ID(uuid), Labels: map[string]string{"berth.uuid": uuid}, Started: time.Now()}
}

func ended1(uuid string) fake.Run {
	r := run1(uuid)
	r.Ended, r.Exit = time.Now(), cluster.Exit{Code: 143, Signal: 15}
	return r
}

func healthyNow(o *cluster.Observed) { o.Health = cluster.HealthHealthy }

// brokenHistories are histories by the invariant that they break.
var brokenHistories = map[string]func(h *historyWriter){
	"capacity": func(h *historyWriter) {
		h.put(prefix.Plan(1), plan(1, cluster.Placed{Index: 0, Attempt: 1, UUID: "a", Node: "n1"},
			cluster.Placed{Index: 1, Attempt: 1, UUID: "b", Node: "n1"},
			cluster.Placed{Index: 2, Attempt: 1, UUID: "c", Node: "n1"},
			cluster.Placed{Index: 3, Attempt: 1, UUID: "d", Node: "n1"},
			cluster.Placed{Index: 4, Attempt: 1, UUID: "e", Node: "n1"}))
	},
	"ports": func(h *historyWriter) {
		port := func(d *cluster.Desired) { d.Ports = map[string]int{"http": 30000} }
		h.want(desired("a", 0, 1, port))
		h.want(desired("b", 1, 1, port))
	},
	"one-attempt": func(h *historyWriter) {
		h.want(desired("a", 0, 1))
		h.put(prefix.Desired("n2", desired("b", 0, 2).Task), desired("b", 0, 2, func(d *cluster.Desired) {
			d.Node = "n2"
		}))
	},
	"placed-twice": func(h *historyWriter) {
		h.put(prefix.Plan(1), plan(1, cluster.Placed{Attempt: 1, UUID: "a", Node: "n1"}))
		h.put(prefix.Plan(2), plan(2, cluster.Placed{Attempt: 1, UUID: "b", Node: "n2"}))
	},
	"unclean-node": func(h *historyWriter) {
		h.want(desired("a", 0, 1))
		h.ended(desired("a", 0, 1), cluster.StateLost)
		h.put(prefix.Plan(1), plan(1, cluster.Placed{Attempt: 2, UUID: "b", Node: "n1"}))
	},
	"no-prior": func(h *historyWriter) {
		h.put(prefix.Plan(1), plan(1, cluster.Placed{Attempt: 2, UUID: "b", Node: "n1"}))
	},
	"needs": func(h *historyWriter) {
		h.put(prefix.Job(inCluster, "batch"), &cluster.Job{
			Cluster: inCluster, Name: "batch", Lifespan: cluster.Lifespan{Generation: 1}, Steps: []cluster.Step{
				{Name: "first", Count: 1}, {Name: "work", Count: 1, Needs: []string{"first"}},
			},
		})
		p := plan(1, cluster.Placed{Attempt: 1, UUID: "a", Node: "n1"})
		p.Owners[0].Owner.Kind, p.Owners[0].Owner.Name, p.Owners[0].Step = cluster.KindJob, "batch", "work"
		h.put(prefix.Plan(1), p)
	},
	"owner-needs": func(h *historyWriter) {
		h.put(prefix.Job(inCluster, "batch"), &cluster.Job{
			Cluster: inCluster, Name: "batch", Lifespan: cluster.Lifespan{Generation: 1},
			Needs: []string{"service/web"}, Steps: []cluster.Step{{Name: "work", Count: 1}},
		})
		p := plan(1, cluster.Placed{Attempt: 1, UUID: "a", Node: "n1"})
		p.Owners[0].Owner.Kind, p.Owners[0].Owner.Name, p.Owners[0].Step = cluster.KindJob, "batch", "work"
		h.put(prefix.Plan(1), p)
	},
	"parallelism": func(h *historyWriter) {
		h.put(prefix.Job(inCluster, "batch"), &cluster.Job{
			Cluster: inCluster, Name: "batch", Lifespan: cluster.Lifespan{Generation: 1}, Steps: []cluster.Step{
				{Name: "work", Count: 2, Parallelism: 1},
			},
		})
		p := plan(1, cluster.Placed{Attempt: 1, UUID: "a", Node: "n1"},
			cluster.Placed{Index: 1, Attempt: 1, UUID: "b", Node: "n1"})
		p.Owners[0].Owner.Kind, p.Owners[0].Owner.Name, p.Owners[0].Step = cluster.KindJob, "batch", "work"
		h.put(prefix.Plan(1), p)
	},
	"concurrency": func(h *historyWriter) {
		step := cluster.Step{Name: "work", Count: 1, Concurrency: &cluster.Concurrency{Group: "g", Limit: 1}}
		for i, name := range []string{"batch", "other"} {
			h.put(prefix.Job(inCluster, name), &cluster.Job{
				Cluster: inCluster, Name: name, Lifespan: cluster.Lifespan{Generation: 1}, Steps: []cluster.Step{step},
			})
			p := plan(uint64(i+1), cluster.Placed{Attempt: 1, UUID: fmt.Sprint("a", i), Node: "n1"})
			p.Owners[0].Owner.Kind, p.Owners[0].Owner.Name, p.Owners[0].Step = cluster.KindJob, name, "work"
			h.put(prefix.Plan(uint64(i+1)), p)
		}
	},
	"lent-twice":     func(h *historyWriter) { h.loan(41) },
	"over-reclaimed": func(h *historyWriter) { h.loan(22); h.reclaimed(0, 0); h.reclaimed(1, 0) },
	"reclaim-late": func(h *historyWriter) {
		h.put(prefix.Job(lender, lender), &cluster.Job{
			Cluster: lender, Name: lender, Lifespan: cluster.Lifespan{Generation: 1},
			Steps: []cluster.Step{{Name: "work", Count: 2}},
		})
		h.loan(30)
		time.Sleep(reclaimLimit + time.Second) // in-bubble: TestEveryInvariantFires makes one
		h.reclaimed(0, 0)
	},
	"job-group": func(h *historyWriter) {
		steps := []cluster.Step{{Name: "work", Count: 1}, {Name: "gather", Count: 1, Needs: []string{"work"}}}
		for i, name := range []string{"batch", "other"} {
			h.put(prefix.Job(inCluster, name), &cluster.Job{
				Cluster: inCluster, Name: name, Lifespan: cluster.Lifespan{Generation: 1}, Steps: steps,
				Concurrency: &cluster.Concurrency{Group: "g", Limit: 1},
			})
			p := plan(uint64(i+1), cluster.Placed{Attempt: 1, UUID: fmt.Sprint("a", i), Node: "n1"})
			p.Owners[0].Owner.Kind, p.Owners[0].Owner.Name, p.Owners[0].Step = cluster.KindJob, name, "work"
			h.put(prefix.Plan(uint64(i+1)), p)
		}
	},
	"quota": func(h *historyWriter) {
		h.put(prefix.Cluster(inCluster), &cluster.Cluster{Name: inCluster, Quota: &cluster.Quota{Jobs: maxJobs}})
		for i := range maxJobs + 1 {
			name := fmt.Sprint("job", i)
			h.put(prefix.Job(inCluster, name), &cluster.Job{
				Cluster: inCluster, Name: name, Lifespan: cluster.Lifespan{Generation: 1},
				Steps: []cluster.Step{{Name: "work", Count: 1}},
			})
			p := plan(uint64(i+1), cluster.Placed{Attempt: 1, UUID: fmt.Sprint("a", i), Node: "n1"})
			p.Owners[0].Owner.Kind, p.Owners[0].Owner.Name, p.Owners[0].Step = cluster.KindJob, name, "work"
			h.put(prefix.Plan(uint64(i+1)), p)
		}
	},
	"projected-late": func(h *historyWriter) {
		h.put(prefix.Domain(cluster.DefaultDomain),
			&cluster.Domain{Name: cluster.DefaultDomain, Projection: cluster.ProjectionImmediate})
		h.put(prefix.Plan(1), plan(1, cluster.Placed{Attempt: 1, UUID: "a", Node: "n1"}))
	},
	"uncommanded": func(h *historyWriter) {
		h.put(prefix.Domain(cluster.DefaultDomain), &cluster.Domain{
			Name: cluster.DefaultDomain, Scheduler: &cluster.DomainScheduler{Type: cluster.SchedulerKV},
		})
		h.put(prefix.Plan(1), plan(1, cluster.Placed{Attempt: 1, UUID: "a", Node: "n1"}))
	},
	"plan-vanished": func(h *historyWriter) {
		h.put(prefix.Plan(1), plan(1, cluster.Placed{Attempt: 1, UUID: "a", Node: "n1"}))
		h.put(prefix.Plan(1), nil)
	},
	"revived": func(h *historyWriter) {
		h.want(desired("a", 0, 1))
		h.ended(desired("a", 0, 1), cluster.StateFailed)
		h.put(prefix.Desired("n1", desired("a", 0, 1).Task), nil)
		h.want(desired("a", 0, 1))
	},
	"late-barrier": func(h *historyWriter) {
		h.want(desired("a", 0, 1, batch, stopped(cluster.ReasonCancelled)))
		h.saw(desired("a", 0, 1, batch), cluster.StateStarting)
	},
	"outcome-fixed": func(h *historyWriter) {
		h.want(desired("a", 0, 1))
		h.ended(desired("a", 0, 1), cluster.StateFailed)
		h.ended(desired("a", 0, 1), cluster.StateSucceeded)
	},
	"events": func(h *historyWriter) {
		h.put(prefix.Outcome("c.web.1.0", 1),
			&cluster.Outcome{Task: "c.web.1.0", Attempt: 1, UUID: "a", State: cluster.StateFailed})
	},
	"spec-lost": func(h *historyWriter) {
		h.put(prefix.Service(inCluster, "web"), &cluster.Service{Cluster: inCluster, Name: "web", Count: 3})
	},
	"report-lost": func(h *historyWriter) {
		h.want(desired("a", 0, 1))
		h.v.lifecycle.checkAcknowledgedReport(h.node, []cluster.Observed{
			{Task: "c.web.1.0", Attempt: 1, UUID: "a", State: cluster.StateFailed},
		}, func(string) bool { return false })
	},
	"fenced": func(h *historyWriter) {
		h.leader(2, "s2")
		h.put(prefix.Plan(1), plan(1, cluster.Placed{Attempt: 1, UUID: "a", Node: "n1"}))
	},
	"usurped": func(h *historyWriter) {
		h.want(desired("a", 0, 1))
		h.put(prefix.Observed("n2", "c.web.1.0"),
			&cluster.Observed{Task: "c.web.1.0", Attempt: 1, UUID: "a", Node: "n2", State: cluster.StateFailed})
	},
	"session-back": func(h *historyWriter) {
		h.v.liveness.checkRegistration("n1", 0, 1)
		h.v.liveness.checkRegistration("n1", 0, 2)
	},
	"owner-changed": func(h *historyWriter) {
		h.put(prefix.Node("n1"), &cluster.Node{Name: "n1", Domain: "default"})
		h.want(desired("a", 0, 1))
		h.put(prefix.Node("n1"), &cluster.Node{Name: "n1", Domain: "other"})
	},
	"two-drivers": func(h *historyWriter) {
		h.put(prefix.Node("n1"), &cluster.Node{Name: "n1", Domain: "default", Generation: 1})
		h.put(prefix.Node("n1"), &cluster.Node{Name: "n1", Generation: 1})
		h.put(prefix.Node("n1"), &cluster.Node{Name: "n1", Domain: "elsewhere", Generation: 1})
	},
	"claim-fenced": func(h *historyWriter) {
		h.v.story.Events = []Event{{Fault: Scheduler, Target: cluster.DefaultDomain}}
		h.put(prefix.Domain(cluster.DefaultDomain), &cluster.Domain{Name: cluster.DefaultDomain})
		claim := h.revision
		h.put(prefix.Domain(cluster.DefaultDomain), &cluster.Domain{Name: cluster.DefaultDomain})
		h.put(prefix.Plan(1), plan(1, cluster.Placed{Attempt: 1, UUID: "a", Node: "n1"}))
		h.v.proposals.checkAnswer(cluster.DefaultDomain,
			&cluster.Proposal{DomainRevision: claim, Commands: []cluster.ProposalCommand{
				{Action: cluster.ProposePlace}, {Action: cluster.ProposeEvict, UUID: "b"},
			}},
			&cluster.ProposalAnswer{Results: []cluster.ProposalResult{{Accepted: true, UUID: "a"}, {Accepted: true}}})
		h.want(desired("b", 1, 1, stopped(cluster.ReasonRebalance), func(d *cluster.Desired) {
			d.Stop.Message = "the scheduler " + proposerName + " evicts it"
		}))
		if len(h.v.breaches) != 2 {
			h.v.breaches = nil // the placement and the eviction are one breach each
		}
	},
	"epoch-back": func(h *historyWriter) { h.leader(1, "s2") },
	"below-minimum": func(h *historyWriter) {
		s := &cluster.Service{Cluster: inCluster, Name: "web", Count: 2}
		value, _ := store.Encode(s)
		h.v.specs.noteWanted(prefix.Service(inCluster, "web"), value)
		h.put(prefix.Service(inCluster, "web"), s)
		for i, id := range []string{"a", "b"} {
			h.want(desired(id, i, 1))
			h.saw(desired(id, i, 1), cluster.StateRunning, healthyNow)
		}
		time.Sleep(2 * decisionLag) // in-bubble: the test makes one
		h.want(desired("a", 0, 1, stopped(cluster.ReasonRollout)))
		h.want(desired("b", 1, 1, stopped(cluster.ReasonRollout)))
	},
	"moment-twice": func(h *historyWriter) {
		j := &cluster.Job{Cluster: inCluster, Name: "tick-202611201200", Cron: "tick"}
		h.put(prefix.Job(inCluster, j.Name), j)
		h.put(prefix.Job(inCluster, j.Name), nil)
		h.put(prefix.Job(inCluster, j.Name), j)
	},
	"scaled-out": func(h *historyWriter) {
		s := &cluster.Service{Cluster: inCluster, Name: "web", Count: 2, Scaling: &cluster.Scaling{Min: 1, Max: 3}}
		value, _ := store.Encode(s)
		h.v.specs.noteWanted(prefix.Service(inCluster, "web"), value)
		h.put(prefix.Service(inCluster, "web"), s)
		time.Sleep(2 * decisionLag) // in-bubble: the test makes one
		h.put(prefix.Scale(inCluster, "web"), &cluster.Scale{Count: 4, From: 2})
	},
	"daemon-twice": func(h *historyWriter) {
		s := &cluster.Service{Cluster: inCluster, Name: "web", Mode: cluster.ModeDaemon}
		value, _ := store.Encode(s)
		h.v.specs.noteWanted(prefix.Service(inCluster, "web"), value)
		h.put(prefix.Service(inCluster, "web"), s)
		h.want(desired("a", 0, 1))
		h.want(desired("b", 1, 1))
	},
	"ring": func(h *historyWriter) {
		for epoch := range uint64(maxTakeovers + 1) {
			h.leader(epoch+2, "s2")
		}
	},
	"down-late": func(h *historyWriter) {
		h.v.noteRequest("n1")
		h.put(prefix.NodeStatus("n1"), &cluster.NodeStatus{Name: "n1", Session: 1})
		time.Sleep(2 * time.Minute) // in-bubble: the test makes one
		h.v.liveness.checkDeadNodes()
	},
	"down-unjust": func(h *historyWriter) {
		h.put(prefix.NodeStatus("n1"), &cluster.NodeStatus{Name: "n1", Session: 1, Registered: time.Now()})
		h.put(prefix.Node("n1"), &cluster.Node{Name: "n1", State: cluster.NodeDown, Session: 1})
	},
	"lost-unjust": func(h *historyWriter) {
		h.want(desired("a", 0, 1))
		time.Sleep(3 * time.Minute) // in-bubble: the test makes one
		h.v.noteAnswer("n1")
		h.ended(desired("a", 0, 1), cluster.StateLost)
	},
	"two-live": func(h *historyWriter) {
		h.want(desired("a", 0, 1))
		h.runs("a")
		h.want(desired("b", 0, 2))
		h.runs("b")
	},
	"started-twice": func(h *historyWriter) {
		h.want(desired("a", 0, 1, batch))
		h.runs("a")
		h.stops("a")
		h.runs("a")
	},
	"start-after": func(h *historyWriter) {
		h.want(desired("a", 0, 1, batch))
		h.ended(desired("a", 0, 1, batch), cluster.StateLost)
		h.runs("a")
	},
	"start-unasked": func(h *historyWriter) { h.runs("a") },
	"stop-released": func(h *historyWriter) {
		h.put(prefix.Host("n1"), &cluster.Host{Name: "n1", Gone: true, Released: 1})
		h.want(desired("a", 0, 1))
		h.runs("a")
		h.stops("a")
	},
	"stop-unasked": func(h *historyWriter) {
		h.want(desired("a", 0, 1))
		h.runs("a")
		h.stops("a")
	},
	"outcome-true": func(h *historyWriter) {
		h.want(desired("a", 0, 1, batch))
		h.runs("a")
		h.ended(desired("a", 0, 1, batch), cluster.StateLost) // the outcome says that it was not started
	},
	"run-again": func(h *historyWriter) {
		h.put(prefix.Job(inCluster, "batch"), &cluster.Job{
			Cluster: inCluster, Name: "batch", Lifespan: cluster.Lifespan{Generation: 1},
			Steps: []cluster.Step{{Name: "work", Count: 1}},
		})
		h.want(desired("a", 0, 1, batch))
		h.runs("a")
		h.stops("a")
		h.ended(desired("a", 0, 1, batch), cluster.StateFailed)
		h.want(desired("b", 0, 2, batch))
		h.runs("b")
	},
	"gone-but-runs": func(h *historyWriter) {
		h.want(desired("a", 0, 1))
		h.runs("a")
		h.saw(desired("a", 0, 1), cluster.StateLost, func(o *cluster.Observed) { o.Gone = true })
	},
	"machine-packed": func(h *historyWriter) {
		for i, id := range []string{"a", "b", "c", "d", "e"} {
			h.want(desired(id, i, 1))
			h.runs(id)
		}
	},
}

// TestEveryInvariantFires plants a breach of each invariant, by records and programs, or at the end of a story.
func TestEveryInvariantFires(t *testing.T) {
	inStories := []string{"converges", "leaked"}
	for _, name := range slices.Sorted(maps.Keys(Invariants)) {
		plant := brokenHistories[name]
		if brokenDays[name] != nil {
			plant = brokenDays[name]
		}
		if plant == nil {
			if !slices.Contains(inStories, name) {
				t.Errorf("%s: nothing shows that it fires", name)
			}
			continue
		}
		synctest.Test(t, func(*testing.T) {
			h := newHistoryWriter(3)
			plant(h)
			if !slices.ContainsFunc(h.v.breaches, func(v Violation) bool { return v.Invariant == name }) {
				t.Errorf("%s was broken and did not fire: %v", name, h.v.breaches)
			}
		})
	}
	// The correct history at the start of the others breaks nothing.
	synctest.Test(t, func(*testing.T) {
		h := newHistoryWriter(3)
		h.want(desired("a", 0, 1))
		h.runs("a")
		h.saw(desired("a", 0, 1), cluster.StateRunning, healthyNow)
		h.want(desired("a", 0, 1, stopped(cluster.ReasonScaleDown)))
		h.stops("a")
		h.saw(desired("a", 0, 1), cluster.StateCancelled)
		h.ended(desired("a", 0, 1), cluster.StateCancelled)
		if len(h.v.breaches) > 0 {
			t.Errorf("a good history: %v", h.v.breaches)
		}
	})
}

// TestCommitWithoutChangeIsTheLeaders has a leader write what the store holds already, right after its takeover. Some
// engines skip such a write, so that the commit has the revision of the takeover.
func TestCommitWithoutChangeIsTheLeaders(t *testing.T) {
	for writer, breaches := range map[string]int{"s1": 1, "s2": 0} {
		h := newHistoryWriter(2)
		h.leader(2, "s2")
		h.v.leadership.checkCommit(writer, []store.Group{{Ops: []store.Op{{Key: prefix.Plan(1)}}}},
			store.Result{Applied: []bool{true}, Revision: h.revision}, nil)
		if got := len(h.v.breaches); got != breaches {
			t.Errorf("a write of %s: got %d breaches (%v), want %d", writer, got, h.v.breaches, breaches)
		}
	}
}

// TestStatesThatDoNotConverge injects states that must not exist after all faults have ended.
func TestStatesThatDoNotConverge(t *testing.T) {
	plants := map[string]func(*fleet){
		"converges": func(f *fleet) { f.orderUser(Event{Target: "web", Arg: "scale 40"}) },
		"leaked": func(f *fleet) {
			exec := fake.New(f.nodes[0].machine)
			ctx := context.Background()
			spec := executor.Spec{ID: "stray", Container: cluster.Container{Command: []string{"run"}}}
			if err := exec.Prepare(ctx, spec, nil); err != nil {
				t.Error(err)
			}
			if _, err := exec.Start(ctx, "stray"); err != nil {
				t.Error(err)
			}
		},
		"reason": func(f *fleet) {
			s := f.leader().tables.Snapshot()
			idle := controlplane.New(controlplane.Config{Logger: slog.New(slog.DiscardHandler)})
			wrong := convergenceCheck{f}.checkWaiting(&server{plane: idle}, s)
			if name, _, ok := strings.Cut(wrong, ": "); ok {
				f.checker.reportBreach(name, "%s", wrong)
			}
		},
	}
	for name, plant := range plants {
		r := Run(t, parse(t, quietStory), Options{injected: plant})
		if !slices.ContainsFunc(r.Violations, func(v Violation) bool { return v.Invariant == name }) {
			t.Errorf("%s: it was broken and did not fire: %v", name, r.Violations)
		}
	}
}
