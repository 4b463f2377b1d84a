package scheduler_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/testkit"
)

// borrowers is full nodes of clusters with quotas of CPUs, as plain lists.
type borrowers struct {
	nodes  []scheduler.Node
	quotas map[string]*cluster.Quota
	held   []scheduler.Reservation
	gone   map[string]bool // by UUID: those that leave, and the victims
}

func drawBorrowers(t *rapid.T) borrowers {
	b := borrowers{quotas: map[string]*cluster.Quota{}, gone: map[string]bool{}}
	for i := range 1 + upTo(t, "nodes", 2) {
		b.nodes = append(b.nodes, scheduler.Node{
			Name: fmt.Sprint("n", i), State: cluster.NodeReady, Executors: []string{"process"},
			Capacity: cluster.Demand{CPU: cluster.MilliCPU(1000 * (1 + upTo(t, "cpus", 5)))},
		})
	}
	for _, name := range []string{"a", "b", "c"} {
		q := &cluster.Quota{CPU: cluster.MilliCPU(1000 * pick(t, "quota", 1, 1, 2, 2, 3, 5))}
		if name == "a" {
			q.CPU += 2000
		}
		if !oneIn(t, "does not borrow", 4) {
			q.Borrow = &cluster.QuotaBorrow{CPU: 9000}
		}
		if !oneIn(t, "no quota", 6) {
			b.quotas[name] = q
		}
	}
	free := map[string]cluster.MilliCPU{}
	for _, n := range b.nodes {
		free[n.Name] = n.Capacity.CPU
	}
	for i := range 5 + upTo(t, "held", 9) {
		node := b.nodes[upTo(t, "node", len(b.nodes)-1)].Name
		r := scheduler.Reservation{
			UUID: fmt.Sprint("held-", i), Node: node, Priority: pick(t, "priority", 1, 500, 1000),
			Demand: cluster.Demand{CPU: min(cluster.MilliCPU(1000*(1+upTo(t, "size", 2))), free[node])},
		}
		name := pick(t, "cluster", "b", "b", "b", "c", "c", "a")
		r.Task = cluster.JobTask(name, fmt.Sprint("j", i), 1, "s", 0)
		if oneIn(t, "service", 5) {
			r.Task = cluster.ServiceTask(name, fmt.Sprint("s", i), 1, 0)
		}
		if !oneIn(t, "not started", 6) {
			r.Started = epoch().Add(time.Duration(upTo(t, "started", 5)) * time.Minute)
		}
		if r.Demand.CPU > 0 {
			free[node] -= r.Demand.CPU
			b.held = append(b.held, r)
			b.gone[r.UUID] = oneIn(t, "leaving", 12)
		}
	}
	return b
}

// input has all attempts as victims. Nothing ends by its priority.
func (b *borrowers) input(waiting []cluster.Pending) scheduler.PreemptInput {
	in := scheduler.PreemptInput{Fleet: scheduler.NewFleet(), Waiting: waiting, Least: 1000}
	for name, q := range b.quotas {
		in.Fleet.Limits.SetQuota(name, q)
	}
	for _, n := range b.nodes {
		in.Fleet.SetNode(n)
	}
	for _, r := range b.held {
		in.Fleet.Reserve(r)
		in.Victims = append(in.Victims, scheduler.Victim{UUID: r.UUID, Priority: r.Priority, Leaving: b.gone[r.UUID]})
	}
	return in
}

func isOfJob(task cluster.TaskID) bool {
	parts, _ := task.Parts()
	return parts.Step != ""
}

func clusterOfTask(task cluster.TaskID) string {
	parts, _ := task.Parts()
	return parts.Cluster
}

// use returns what a cluster holds, or with all also what leaves.
func (b *borrowers) use(name string, all bool) (n cluster.MilliCPU) {
	for _, r := range b.held {
		if clusterOfTask(r.Task) == name && (all || !b.gone[r.UUID]) {
			n += r.Demand.CPU
		}
	}
	return n
}

func (b *borrowers) free(node string) (n cluster.MilliCPU) {
	for i := range b.nodes {
		if b.nodes[i].Name == node {
			n = b.nodes[i].Capacity.CPU
		}
	}
	for _, r := range b.held {
		if r.Node == node && !b.gone[r.UUID] {
			n -= r.Demand.CPU
		}
	}
	return n
}

// mayEnd reports whether the attempts may end for a task of the cluster: each of a job of a cluster that borrowed, and
// all of them leave it its quota, or with beyond, each of them takes a part of what it borrowed after the others.
func (b *borrowers) mayEnd(name string, set []scheduler.Reservation, beyond bool) bool {
	for _, r := range set {
		other := clusterOfTask(r.Task)
		q := b.quotas[other]
		if other == name || q == nil || q.Borrow == nil || !isOfJob(r.Task) {
			return false
		}
		left := b.use(other, false) - q.CPU
		for _, also := range set {
			if clusterOfTask(also.Task) == other && (!beyond || also.UUID != r.UUID) {
				left -= also.Demand.CPU
			}
		}
		if beyond && left <= 0 || !beyond && left < 0 {
			return false
		}
	}
	return true
}

// sets returns all sets of attempts that may end on one node for a task, after which it fits.
func (b *borrowers) sets(p *cluster.Pending, beyond bool) (all [][]scheduler.Reservation) {
	for _, n := range b.nodes {
		var on []scheduler.Reservation
		for _, r := range b.held {
			if r.Node == n.Name && !b.gone[r.UUID] {
				on = append(on, r)
			}
		}
		for set := 1; set < 1<<len(on); set++ {
			var ends []scheduler.Reservation
			free := b.free(n.Name)
			for i := range on {
				if set&(1<<i) != 0 {
					ends, free = append(ends, on[i]), free+on[i].Demand.CPU
				}
			}
			if free >= p.Demand.CPU && b.mayEnd(p.Owner.Cluster, ends, beyond) {
				all = append(all, ends)
			}
		}
	}
	return all
}

// newer orders attempts by their starts, the newest first.
func newer(a, b scheduler.Reservation) int {
	if a.Started.IsZero() || b.Started.IsZero() {
		return cmp.Compare(b2i(!a.Started.IsZero()), b2i(!b.Started.IsZero()))
	}
	return b.Started.Compare(a.Started)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// check compares what Preempt found for a task with all possible sets of victims.
func (b *borrowers) check(t *rapid.T, p *cluster.Pending, got *scheduler.Preemption) string {
	t.Helper()
	fits := slices.ContainsFunc(b.nodes, func(n scheduler.Node) bool { return b.free(n.Name) >= p.Demand.CPU })
	q := b.quotas[p.Owner.Cluster]
	within := q == nil || b.use(p.Owner.Cluster, true)+p.Demand.CPU <= q.CPU
	strict, beyond := b.sets(p, false), b.sets(p, true)
	possible := within && (fits || q != nil && len(strict)+len(beyond) > 0)
	if possible != (got != nil) {
		t.Fatalf("%s (%s): served: %v, want %v: %+v", p.Task, p.Demand.CPU, got != nil, possible, b)
	}
	switch {
	case got == nil:
		return "refused"
	case fits:
		if len(got.Victims) > 0 {
			t.Fatalf("%s fits, and %v end for it", p.Task, got.Victims)
		}
		return "fits"
	}
	var victims []scheduler.Reservation
	for _, r := range b.held {
		if slices.Contains(got.Victims, r.UUID) {
			victims = append(victims, r)
		}
	}
	kind, sets := "within", strict
	if len(strict) == 0 {
		kind, sets = "beyond", beyond
	}
	same := func(set []scheduler.Reservation) bool { return gocmp.Equal(set, victims) }
	if !got.Reclaims || !slices.ContainsFunc(sets, same) {
		t.Fatalf("%s: %+v is none of %+v", p.Task, got, sets)
	}
	for _, set := range sets {
		subset := len(set) < len(victims) && !slices.ContainsFunc(set, func(r scheduler.Reservation) bool {
			return !slices.Contains(got.Victims, r.UUID)
		})
		if subset {
			t.Fatalf("%s: of %+v only %+v need to end", p.Task, got, set)
		}
		if len(set) == 1 && (len(victims) > 1 || newer(set[0], victims[0]) < 0) {
			t.Fatalf("%s: %+v end, and the newest task that suffices is %+v", p.Task, victims, set[0])
		}
	}
	return fmt.Sprintf("%s %d", kind, min(len(victims), 2))
}

// TestReclaimSameAsModel compares Preempt with all sets of tasks that may end for a task within the quota of its
// cluster. Such a task gets room whenever one of them suffices. Only tasks of jobs end of clusters that borrowed, and
// these keep their quotas unless no smaller task suffices. One task ends rather than several, the newest one that
// suffices. Afterwards Schedule places the task.
func TestReclaimSameAsModel(t *testing.T) {
	cases := map[string]int{}
	testkit.CheckRounds(t, 60, func(t *rapid.T) {
		b := drawBorrowers(t)
		var waiting []cluster.Pending
		for i := range 1 + upTo(t, "waiting", 2) {
			owner := cluster.OwnerRef{
				Kind: cluster.KindJob, Name: fmt.Sprint("w", i), Cluster: pick(t, "waits in", "a", "a", "b", "c"),
			}
			waiting = append(waiting, cluster.Pending{
				Owner: owner, Task: cluster.JobTask(owner.Cluster, owner.Name, 1, "s", 0), Attempt: 1, Since: epoch(),
				Priority: 500 - i, Demand: cluster.Demand{CPU: cluster.MilliCPU(1000 * (1 + upTo(t, "demand", 3)))},
			})
		}
		in := b.input(waiting)
		got := scheduler.Preempt(in, scheduler.Options{})
		for name, q := range b.quotas { // the order in which quotas were set does not matter
			in.Fleet.Limits.SetQuota(name, nil)
			in.Fleet.Limits.SetQuota(name, q)
		}
		in.Victims = rapid.Permutation(in.Victims).Draw(t, "victims")
		if diff := gocmp.Diff(got, scheduler.Preempt(in, scheduler.Options{})); diff != "" {
			t.Fatalf("the order matters:\n%s", diff)
		}
		for i := range waiting {
			p := &waiting[i]
			var found *scheduler.Preemption
			if len(got) > 0 && got[0].Pending == i {
				found, got = &got[0], got[1:]
			}
			cases[b.check(t, p, found)]++
			if found == nil {
				continue
			}
			p.Promised = found.Node
			for _, uuid := range found.Victims {
				b.gone[uuid] = true
			}
			b.held = append(b.held, scheduler.Reservation{
				UUID: "new " + string(p.Task), Task: p.Task, Node: found.Node, Demand: p.Demand,
			})
		}
		for uuid, gone := range b.gone {
			if gone {
				in.Fleet.Release(uuid)
			}
		}
		waiting = slices.DeleteFunc(waiting, func(p cluster.Pending) bool { return p.Promised == "" })
		res := scheduler.Schedule(in.Fleet, waiting, scheduler.Options{})
		if len(res.Waiting) > 0 {
			t.Fatalf("a task waits for the room that was made: %+v", res.Waiting)
		}
		for _, pl := range res.Placements {
			if p := waiting[pl.Pending]; p.Promised != pl.Node {
				t.Fatalf("%s is placed on %s, want %s", p.Task, pl.Node, p.Promised)
			}
		}
	}, nil)
	for _, name := range []string{"refused", "fits", "within 1", "within 2", "beyond 1", "beyond 2"} {
		if cases[name] < 5 {
			t.Errorf("%d cases of %q: %v", cases[name], name, cases)
		}
	}
}

// TestReclaimOfDevices has a task wait for a device that another cluster borrowed.
func TestReclaimOfDevices(t *testing.T) {
	f := scheduler.NewFleet()
	f.Limits.SetQuota("b", &cluster.Quota{
		Devices: map[string]int{"gpu": 1}, Borrow: &cluster.QuotaBorrow{Devices: map[string]int{"gpu": 1}},
	})
	f.Limits.SetQuota("a", &cluster.Quota{Devices: map[string]int{"gpu": 1}})
	f.SetNode(scheduler.Node{
		Name: "n", State: cluster.NodeReady, Executors: []string{"process"}, Capacity: cluster.Demand{CPU: 9000},
		Devices: []cluster.Device{{ID: "g0", Type: "gpu"}, {ID: "g1", Type: "gpu"}},
	})
	gpu := []cluster.DeviceRequest{{Type: "gpu", Count: 1}}
	var victims []scheduler.Victim
	for i, uuid := range []string{"old", "new", "cpu"} {
		r := scheduler.Reservation{
			UUID: uuid, Task: cluster.JobTask("b", uuid, 1, "s", 0), Node: "n", Demand: cluster.Demand{CPU: 1000},
			Started: epoch().Add(time.Duration(i) * time.Minute),
		}
		if uuid != "cpu" {
			r.Requests = gpu
			r.Devices = []cluster.DeviceUse{{ID: fmt.Sprint("g", i), Share: cluster.WholeDevice}}
		}
		f.Reserve(r)
		victims = append(victims, scheduler.Victim{UUID: uuid, Priority: 1000})
	}
	got := scheduler.Preempt(scheduler.PreemptInput{
		Fleet: f, Victims: victims, Least: 100,
		Waiting: []cluster.Pending{{
			Owner: cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "a", Name: "j"}, Priority: 1, Attempt: 1,
			Task: cluster.JobTask("a", "j", 1, "s", 0), Demand: cluster.Demand{CPU: 1000}, Devices: gpu,
		}},
	}, scheduler.Options{})
	if len(got) != 1 || strings.Join(got[0].Victims, " ") != "new" || !got[0].Reclaims {
		t.Errorf("got %+v, want the end of the newest task with a GPU", got)
	}
}

// TestReclaimSets has tasks of the cluster a wait for CPUs that the cluster b borrowed. The tasks of b are listed from
// the oldest to the newest.
func TestReclaimSets(t *testing.T) {
	type held struct {
		node string
		cpus int
	}
	for name, c := range map[string]struct {
		quota   int // of b
		held    []held
		waiting []int
		want    []string // of each task that is served: the numbers of the tasks of b that end
	}{
		"the newest is not of use": {1, []held{{"n0", 2}, {"n0", 2}, {"n0", 1}}, []int{4}, []string{"0 1"}},
		"as much as is borrowed":   {3, []held{{"n0", 2}, {"n1", 2}}, []int{1, 1}, []string{"1", ""}},
		"one of two nodes":         {4, []held{{"n0", 2}, {"n1", 2}, {"n2", 2}}, []int{2, 2}, []string{"2"}},
		"one after the other":      {2, []held{{"n0", 2}, {"n1", 2}, {"n2", 2}}, []int{2, 2, 2}, []string{"2", "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := borrowers{quotas: map[string]*cluster.Quota{
				"a": {CPU: 9000}, "b": {CPU: cluster.MilliCPU(1000 * c.quota), Borrow: &cluster.QuotaBorrow{CPU: 9000}},
			}}
			full := map[string]cluster.MilliCPU{}
			for i, h := range c.held {
				cpus := cluster.MilliCPU(1000 * h.cpus)
				full[h.node] += cpus
				b.held = append(b.held, scheduler.Reservation{
					UUID: fmt.Sprint(i), Node: h.node, Task: cluster.JobTask("b", "j", 1, "s", i),
					Demand: cluster.Demand{CPU: cpus}, Started: epoch().Add(time.Duration(i) * time.Minute),
				})
			}
			for node, cpus := range full {
				b.nodes = append(b.nodes, scheduler.Node{
					Name: node, State: cluster.NodeReady, Executors: []string{"process"},
					Capacity: cluster.Demand{CPU: cpus},
				})
			}
			var waiting []cluster.Pending
			for i, cpus := range c.waiting {
				waiting = append(waiting, cluster.Pending{
					Owner: cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "a", Name: "w"}, Priority: 1, Attempt: 1,
					Task:   cluster.JobTask("a", "w", 1, "s", i),
					Demand: cluster.Demand{CPU: cluster.MilliCPU(1000 * cpus)},
				})
			}
			var got []string
			for _, found := range scheduler.Preempt(b.input(waiting), scheduler.Options{}) {
				got = append(got, strings.Join(found.Victims, " "))
			}
			if diff := gocmp.Diff(c.want, got); diff != "" {
				t.Errorf("victims (-want +got):\n%s", diff)
			}
		})
	}
}
