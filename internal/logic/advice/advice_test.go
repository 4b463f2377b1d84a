package advice_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/advice"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// state returns all nodes and reservations of a fleet.
func state(f *scheduler.Fleet) (nodes []scheduler.Node, held []scheduler.Reservation) {
	for _, name := range f.Nodes() {
		n, _, _ := f.Node(name)
		nodes = append(nodes, n)
	}
	for r := range f.Held {
		held = append(held, r)
	}
	slices.SortFunc(held, func(a, b scheduler.Reservation) int { return strings.Compare(a.UUID, b.UUID) })
	return nodes, held
}

// TestSuggestionsPlace applies more than a thousand suggestions on random fleets: all place the task. Find restores the
// fleet, and finds something for nearly every task.
func TestSuggestionsPlace(t *testing.T) {
	applied, kinds, without, waiting, several := 0, map[cluster.ChangeKind]int{}, 0, 0, 0
	for seed := 0; applied < 3000; seed++ {
		d := seeded(seed, 1+seed%2)
		f, names := d.fleet(8)
		p := d.task(names)
		if seed%16 == 0 {
			d.bind(f, &p)
		}
		nodes, held := state(f)
		r := advice.Find(advice.Input{Options: options(), Fleet: f, Task: p, MaxSuggestions: 20})
		nodesAfter, heldAfter := state(f)
		if diff := cmp.Diff(nodes, nodesAfter, cmpopts.EquateEmpty()) +
			cmp.Diff(held, heldAfter, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("seed %d: the fleet was changed:\n%s", seed, diff)
		}
		if r.Placed != places(f, p) || r.Placed && len(r.Suggestions) > 0 {
			t.Fatalf("seed %d: placed is %v, with %d suggestions", seed, r.Placed, len(r.Suggestions))
		}
		if !r.Placed {
			waiting++
			if len(r.Suggestions) == 0 {
				without++
			}
		}
		if r.Bounded {
			t.Errorf("seed %d: a small fleet is not searched to the end", seed)
		}
		for i := range r.Suggestions {
			sg := &r.Suggestions[i]
			g, q := f.Clone(), p
			advice.Apply(sg, g, &q)
			if !places(g, q) {
				t.Fatalf("seed %d: %q does not place it: %s", seed, sg.Text,
					scheduler.Schedule(g, []cluster.Pending{q}, options()).Waiting[0].Sentence)
			}
			applied++
			if len(sg.Changes) > 1 {
				several++
			}
			for _, c := range sg.Changes {
				kinds[c.Kind]++
			}
		}
	}
	t.Logf("%d tasks wait, %d of them without a suggestion; %d suggestions, %d of several changes: %v", waiting,
		without, applied, several, kinds)
	if 10*without > waiting { // some request the impossible, or for one node with five blockers
		t.Errorf("there is no suggestion for %d of %d waiting tasks", without, waiting)
	}
	for _, k := range []cluster.ChangeKind{
		cluster.ChangeRelease, cluster.ChangeWait, cluster.ChangeUncordon, cluster.ChangeRevive, cluster.ChangePort,
		cluster.ChangeFree, cluster.ChangeLower,
		cluster.ChangeModel, cluster.ChangeDevices, cluster.ChangeLoosen, cluster.ChangeWish, cluster.ChangeApart,
		cluster.ChangeDistinct, cluster.ChangeSkew,
		cluster.ChangeTolerate, cluster.ChangeUntaint, cluster.ChangeDrop, cluster.ChangeEnd, cluster.ChangePool,
		cluster.ChangeUnasked, cluster.ChangeJoin, cluster.ChangeUnreserve, cluster.ChangeExecutor,
		cluster.ChangeAdd,
	} {
		if kinds[k] == 0 {
			t.Errorf("nothing of the kind %q was suggested", k)
		}
	}
}

// brute is the smallest amount of each kind of single change that places a task, found by trying.
type brute map[string]int

func (b brute) add(kind string, amount int) {
	if old, found := b[kind]; !found || amount < old {
		b[kind] = amount
	}
}

// bruteForce tries every single change without an amount, and every amount of the others.
func bruteForce(f *scheduler.Fleet, p cluster.Pending) brute {
	b := brute{}
	with := func(kind string, amount int, change func(*scheduler.Fleet, *cluster.Pending)) bool {
		g, q := f.Clone(), p
		change(g, &q)
		if places(g, q) {
			b.add(kind, amount)
			return true
		}
		return false
	}
	for i := range p.Placement.Constraints {
		with(fmt.Sprint("drop ", i), 0, func(_ *scheduler.Fleet, q *cluster.Pending) {
			q.Placement.Constraints = slices.Delete(slices.Clone(q.Placement.Constraints), i, i+1)
		})
	}
	for i := range p.Placement.Relations {
		with("wish", 0, func(_ *scheduler.Fleet, q *cluster.Pending) {
			q.Placement.Relations = slices.Clone(q.Placement.Relations)
			q.Placement.Relations[i].Required = false
		})
	}
	for most := range 12 {
		if len(p.Placement.Distinct) > 0 {
			with("distinct", most, func(_ *scheduler.Fleet, q *cluster.Pending) {
				q.Placement.Distinct = []cluster.Distinct{{Attribute: q.Placement.Distinct[0].Attribute, Most: most}}
			})
		}
		if len(p.Placement.Spread) > 0 {
			with("skew", most, func(_ *scheduler.Fleet, q *cluster.Pending) {
				q.Placement.Spread = []cluster.Spread{
					{Attribute: q.Placement.Spread[0].Attribute, MaxSkew: max(most, 1)},
				}
			})
		}
	}
	with("pool", 0, func(_ *scheduler.Fleet, q *cluster.Pending) { q.Placement.Pool = "" })
	with("apart", 0, func(_ *scheduler.Fleet, q *cluster.Pending) {
		q.Placement.AntiAffinity = cluster.AntiAffinityPrefer
	})
	with("unasked", 0, func(_ *scheduler.Fleet, q *cluster.Pending) { q.Placement.Reservation = "" })
	with("unreserve", 0, func(g *scheduler.Fleet, _ *cluster.Pending) {
		for _, name := range g.Nodes() {
			n, _, _ := g.Node(name)
			n.Reserved = nil
			g.SetNode(n)
		}
	})
	with("wait", 0, func(_ *scheduler.Fleet, q *cluster.Pending) { q.ExcludedNodes = nil })
	with("port", 0, func(_ *scheduler.Fleet, q *cluster.Pending) { q.Ports = []cluster.Port{{Name: "http"}} })
	for _, name := range f.Nodes() {
		b.node(f, p, name, with)
	}
	return b
}

// node tries every single change of a node.
func (b brute) node(f *scheduler.Fleet, p cluster.Pending, name string,
	with func(string, int, func(*scheduler.Fleet, *cluster.Pending)) bool,
) {
	set := func(kind string, change func(n *scheduler.Node)) {
		with(kind, 0, func(g *scheduler.Fleet, _ *cluster.Pending) {
			n, _, _ := g.Node(name)
			change(&n)
			g.SetNode(n)
		})
	}
	n, _, _ := f.Node(name)
	if n.State == cluster.NodeDown || n.State == cluster.NodeSuspect || n.State == cluster.NodeJoining {
		set("revive", func(n *scheduler.Node) { n.State = cluster.NodeReady })
	} else {
		set("uncordon", func(n *scheduler.Node) { n.State, n.Cordon, n.Drain = cluster.NodeReady, false, false })
	}
	set("executor", func(n *scheduler.Node) { n.Executors = []string{"containerd", "process"} })
	if n.Pool == "" {
		set("join", func(n *scheduler.Node) { n.Pool = p.Placement.Pool })
	}
	for i, taint := range n.Taints {
		set("untaint", func(n *scheduler.Node) { n.Taints = slices.Delete(slices.Clone(n.Taints), i, i+1) })
		with("tolerate", 0, func(_ *scheduler.Fleet, q *cluster.Pending) {
			q.Placement.Tolerations = []cluster.Toleration{{Key: taint.Key, Value: taint.Value, Effect: taint.Effect}}
		})
	}
	var others []scheduler.Reservation
	for r := range f.Held {
		if r.Node == name && !strings.HasPrefix(string(r.Task), "c.web.") {
			others = append(others, r)
		}
	}
	// All amounts are multiples of 100 MiB and 100m. Less memory and less CPU are tried separately.
	freed := func(memory cluster.Bytes, cpu cluster.MilliCPU) func(*scheduler.Fleet, *cluster.Pending) {
		return func(g *scheduler.Fleet, _ *cluster.Pending) {
			memory, cpu := memory, cpu
			for _, r := range others {
				less := cluster.Demand{Memory: min(memory, r.Demand.Memory), CPU: min(cpu, r.Demand.CPU)}
				memory, cpu, r.Demand = memory-less.Memory, cpu-less.CPU, r.Demand.Sub(less)
				g.Reserve(r)
			}
		}
	}
	const most = 100
	if with("free memory", most, freed(most*100*cluster.MiB, 0)) {
		for amount := 1; !with("free memory", amount, freed(cluster.Bytes(amount)*100*cluster.MiB, 0)); {
			amount++
		}
	}
	if with("free cpu", most, freed(0, most*100)) {
		for amount := 1; !with("free cpu", amount, freed(0, cluster.MilliCPU(amount)*100)); {
			amount++
		}
	}
	lowest := func(_ *scheduler.Fleet, q *cluster.Pending) { q.Demand.Memory = 100 * cluster.MiB }
	for amount := cluster.Bytes(1); amount*100*cluster.MiB < p.Demand.Memory &&
		with("lower memory", most, lowest); amount++ {
		if with("lower memory", int(amount), func(_ *scheduler.Fleet, q *cluster.Pending) {
			q.Demand.Memory -= amount * 100 * cluster.MiB
		}) {
			break
		}
	}
}

// TestSuggestionsAreMinimal compares Find with all changes on small fleets. If one change suffices, Find suggests no
// pairs. It omits no kind that suffices, and no smaller amount suffices.
func TestSuggestionsAreMinimal(t *testing.T) {
	singles, pairs, bound := 0, 0, 0
	for seed := range 2500 {
		d := seeded(1_000_000+seed, 2)
		f, names := d.fleet(4)
		p := d.task(names)
		p.Priority, p.OnlyNode = 5, ""
		if seed%2 == 0 {
			d.bind(f, &p)
		}
		if places(f, p) {
			continue
		}
		r := advice.Find(advice.Input{Options: options(), Fleet: f, Task: p, MaxSuggestions: 100})
		want := bruteForce(f, p)
		got := brute{}
		for _, sg := range r.Suggestions {
			if sg.Changes[0].Kind == cluster.ChangeAdd {
				continue
			}
			if len(sg.Changes) > 1 {
				pairs++
				if len(want) > 0 {
					t.Fatalf("seed %d: %q, and one change is enough: %v", seed, sg.Text, want)
				}
				continue
			}
			tally(got, &sg.Changes[0])
		}
		if q := p; len(p.Volumes) > 0 && len(want) > 0 {
			if q.Volumes = nil; places(f, q) { // only the place of its volumes blocks it
				bound++
			}
		}
		for kind, amount := range want {
			singles++
			found, ok := got[kind]
			if !ok && strings.HasPrefix(kind, "drop ") { // adding one more value does as much
				_, ok = got[strings.Replace(kind, "drop", "loosen", 1)]
			}
			if !ok || found > amount {
				t.Errorf("seed %d: %q would do with %d, got %v", seed, kind, amount, texts(r))
			}
		}
	}
	t.Logf("%d single changes, %d suggestions of several, %d tasks wait for a node with their volumes", singles, pairs,
		bound)
	if singles < 300 || pairs < 100 || bound < 15 {
		t.Errorf("the worlds show %d single changes, %d suggestions of several, %d tasks that wait for a "+
			"node with their volumes", singles, pairs, bound)
	}
}

// tally counts a change as bruteForce does.
func tally(got brute, c *cluster.Remedy) {
	memory, cpu := c.Demand.Memory, c.Demand.CPU
	switch {
	case c.Kind == cluster.ChangeDrop, c.Kind == cluster.ChangeLoosen:
		got.add(fmt.Sprint(c.Kind, " ", c.Number), 0)
	case c.Kind == cluster.ChangeFree && cpu == 0:
		got.add("free memory", int(memory/(100*cluster.MiB)))
	case c.Kind == cluster.ChangeFree && memory == 0:
		got.add("free cpu", int(cpu/100))
	case c.Kind == cluster.ChangeLower && cpu == 0:
		got.add("lower memory", int(memory/(100*cluster.MiB)))
	default:
		got.add(string(c.Kind), c.Limit)
	}
}

func texts(r advice.Result) (all []string) {
	for _, sg := range r.Suggestions {
		all = append(all, sg.Text)
	}
	return all
}

// TestFewestConstraints compares the number of dropped constraints with all subsets of them.
func TestFewestConstraints(t *testing.T) {
	several := 0
	for seed := range 400 {
		d := seeded(2_000_000+seed, 1)
		f := scheduler.NewFleet()
		for i := range 1 + d.IntN(4) {
			n := ready(fmt.Sprint("n", i), 4000, cluster.GiB)
			n.Labels = cluster.Labels{"zone": pick(d, "a", "b", "c"), "rack": pick(d, "1", "2", "3")}
			n.Arch, n.Kernel = pick(d, "amd64", "arm64"), pick(d, "6.1", "5.10")
			f.SetNode(n)
		}
		p := cluster.Pending{Task: "c.web.1.0", Priority: 1, Demand: cluster.Demand{CPU: 100}}
		for range 1 + d.IntN(4) {
			p.Placement.Constraints = append(p.Placement.Constraints, pick(d, constraints()[:7]...))
		}
		if places(f, p) {
			continue
		}
		fewest := len(p.Placement.Constraints)
		for set := range 1 << len(p.Placement.Constraints) {
			q, dropped := p, 0
			q.Placement.Constraints = nil
			for i, c := range p.Placement.Constraints {
				if set&(1<<i) != 0 {
					dropped++
				} else {
					q.Placement.Constraints = append(q.Placement.Constraints, c)
				}
			}
			if dropped < fewest && places(f, q) {
				fewest = dropped
			}
		}
		r := advice.Find(advice.Input{Options: options(), Fleet: f, Task: p, MaxSuggestions: 100})
		least := len(p.Placement.Constraints) + 1
		for _, sg := range r.Suggestions {
			if sg.Changes[0].Kind != cluster.ChangeAdd {
				least = min(least, len(sg.Changes))
			}
		}
		if least != fewest {
			t.Errorf("seed %d: %d constraints are in the way, got %q", seed, fewest, texts(r))
		}
		if fewest > 1 {
			several++
		}
	}
	if several < 50 {
		t.Errorf("in %d worlds several constraints are in the way", several)
	}
}

// TestLimitsAreRaised suggests the least larger limits of a cluster, alone and beside another change. The fleet keeps
// its quota.
func TestLimitsAreRaised(t *testing.T) {
	for name, c := range map[string]struct {
		quota       *cluster.Quota
		concurrency *cluster.Concurrency
		demand      cluster.Demand
		gang        int
		want        string
	}{
		"quota": {
			&cluster.Quota{CPU: 1500, Tasks: 9}, nil,
			cluster.Demand{CPU: 1000},
			0,
			"raise the quota of cluster c to cpu 2",
		},
		"a size that is rounded up": {
			&cluster.Quota{Memory: cluster.GiB}, nil,
			cluster.Demand{Memory: 1249 * cluster.MiB},
			0,
			"raise the quota of cluster c to memory 1.3 GiB",
		},
		"several limits": {
			&cluster.Quota{CPU: 1000, Memory: cluster.GiB, Tasks: 1, Jobs: 1}, nil,
			cluster.Demand{CPU: 1000, Memory: 2 * cluster.GiB},
			0,
			"raise the quota of cluster c to cpu 2, memory 2 GiB, tasks 2, jobs 2",
		},
		"group": {
			nil, &cluster.Concurrency{Group: "x", Limit: 1},
			cluster.Demand{CPU: 1000},
			0,
			"raise its limit of concurrency group x to 2",
		},
		"quota and room": {
			&cluster.Quota{Tasks: 1}, nil,
			cluster.Demand{CPU: 3500},
			0,
			"raise the quota of cluster c to tasks 2, and lower its request to 3 CPU (it asks for 3500m CPU)",
		},
		"gang": {
			&cluster.Quota{Tasks: 2}, &cluster.Concurrency{Group: "x", Limit: 3},
			cluster.Demand{CPU: 1000},
			3,
			"raise the quota of cluster c to tasks 4, and raise its limit of concurrency group x to 4",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := scheduler.NewFleet()
			f.SetNode(ready("n1", 4000, 8*cluster.GiB))
			f.Limits.SetQuota("c", c.quota)
			f.Reserve(scheduler.Reservation{
				UUID: "u1", Task: "c.old.1.work.0", Node: "n1", Demand: cluster.Demand{CPU: 1000}, Group: "x",
				Priority: 1,
			})
			var members []cluster.Pending
			for i := range max(c.gang, 1) {
				p := cluster.Pending{
					Owner: cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "new"}, Priority: 1,
					Task: cluster.JobTask("c", "new", 1, "work", i), Demand: c.demand, Concurrency: c.concurrency,
				}
				if c.gang > 0 {
					p.Gang, p.GangSize = "g", c.gang
				}
				members = append(members, p)
			}
			in := advice.Input{Options: options(), Fleet: f, Task: members[0]}
			if c.gang > 0 {
				in.Gang = members
			}
			r := advice.Find(in)
			var texts []string
			for i := range r.Suggestions {
				texts = append(texts, r.Suggestions[i].Text)
			}
			if !slices.Contains(texts, c.want) {
				t.Fatalf("suggestions %q, want one of them to be %q", texts, c.want)
			}
			if f.Limits.Quotas()["c"] != c.quota {
				t.Error("the fleet has another quota")
			}
			if c.gang == 0 {
				q := members[0]
				advice.Apply(&r.Suggestions[0], f, &q)
				if !places(f, q) {
					t.Errorf("%q does not place it", r.Suggestions[0].Text)
				}
			}
		})
	}
}

// TestLimitOfJobsIsRaised suggests the least larger limit of the concurrency group of a job, alone and beside that of
// its tasks.
func TestLimitOfJobsIsRaised(t *testing.T) {
	for _, c := range []struct {
		tasks *cluster.Concurrency
		want  string
	}{
		{nil, "raise the job's limit of concurrency group deploy to 3"},
		{
			&cluster.Concurrency{Group: "x", Limit: 1},
			"raise its limit of concurrency group x to 2, and raise the job's limit of concurrency group deploy to 3",
		},
	} {
		f := scheduler.NewFleet()
		f.SetNode(ready("n1", 4000, 8*cluster.GiB))
		f.Limits.SetBegun("c", "between", 1, "deploy")
		f.Reserve(scheduler.Reservation{
			UUID: "old", Task: cluster.JobTask("c", "old", 1, "s", 0), Node: "n1", Group: "x", JobGroup: "deploy",
		})
		p := cluster.Pending{
			Owner: cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "new"}, Attempt: 1, Priority: 500,
			Task: cluster.JobTask("c", "new", 1, "s", 0), Concurrency: c.tasks,
			JobConcurrency: &cluster.Concurrency{Group: "deploy", Limit: 1},
		}
		r := advice.Find(advice.Input{Options: options(), Fleet: f, Task: p})
		if got := texts(r); len(got) == 0 || got[0] != c.want {
			t.Errorf("suggestions %q, want %q first", got, c.want)
		}
	}
}
