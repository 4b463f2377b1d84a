package admission_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/admission"
)

// anyShared draws a waiting task of a fair queue, of one of two clusters and three users, one of whom is not known.
func anyShared(t *rapid.T, number int) cluster.Pending {
	p := anyTask(t, "task")
	p.Owner.Cluster = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "cluster")
	p.User = rapid.SampledFrom([]string{"ann", "bob", ""}).Draw(t, "user")
	p.Demand.Disk = cluster.Bytes(rapid.IntRange(0, 3).Draw(t, "disk")) * cluster.GiB
	p.Task, p.Queue = cluster.TaskID(fmt.Sprintf("%s.%s.1.w.%d", p.Owner.Cluster, p.Owner.Name, number)),
		cluster.QueueFair
	return p
}

// dominantOf computes the dominant share of tasks in the simplest way.
func dominantOf(c *admission.Capacity, tasks []cluster.Pending) float64 {
	var cpu, memory, disk, gpu float64
	for i := range tasks {
		d := tasks[i].Demand
		cpu, memory, disk = cpu+float64(d.CPU), memory+float64(d.Memory), disk+float64(d.Disk)
		for _, r := range tasks[i].Devices {
			if r.Share > 0 {
				gpu += float64(r.Share) / cluster.WholeDevice
			} else {
				gpu += float64(max(r.Count, 1))
			}
		}
	}
	share := 0.0
	for _, x := range [][2]float64{
		{cpu, float64(c.Demand.CPU)},
		{memory, float64(c.Demand.Memory)},
		{disk, float64(c.Demand.Disk)},
		{gpu, float64(c.Devices["gpu"])},
	} {
		if x[1] > 0 {
			share = max(share, x[0]/x[1])
		}
	}
	return share
}

// TestShares places and ends random tasks. The share of a user, and of a cluster, is the dominant share of the tasks of
// their jobs: those of the ledger, and those that the present cycle placed and did not give back.
func TestShares(t *testing.T) {
	users := [][2]string{{"a", "ann"}, {"a", "bob"}, {"b", "ann"}, {"b", "bob"}, {"a", ""}, {"b", ""}}
	rapid.Check(t, func(t *rapid.T) {
		c := admission.Capacity{
			Demand: cluster.Demand{
				CPU:    cluster.MilliCPU(rapid.IntRange(0, 40).Draw(t, "cpus")) * 1000,
				Memory: cluster.Bytes(rapid.IntRange(1, 40).Draw(t, "memory")) * cluster.GiB, Disk: 50 * cluster.GiB,
			},
			Devices: map[string]int{"gpu": rapid.IntRange(0, 9).Draw(t, "gpus"), "fpga": 1},
		}
		var l admission.Ledger
		running := map[cluster.TaskID]cluster.Pending{}
		number := 0
		check := func(d *admission.Draft) {
			t.Helper()
			for _, u := range users {
				var theirs []cluster.Pending
				for _, p := range running { // order-free: sums
					if p.Owner.Kind == cluster.KindJob && p.Owner.Cluster == u[0] && (u[1] == "" || p.User == u[1]) {
						theirs = append(theirs, p)
					}
				}
				want := dominantOf(&c, theirs)
				if got := d.Share(&c, u[0], u[1]); math.Abs(got-want) > 1e-9 {
					t.Fatalf("the share of %q in %s is %v, want %v", u[1], u[0], got, want)
				}
			}
		}
		for range rapid.IntRange(1, 8).Draw(t, "cycles") {
			d := admission.NewDraft(&l)
			placed := map[cluster.TaskID]cluster.Pending{}
			for range rapid.IntRange(0, 5).Draw(t, "placed") {
				p := anyShared(t, number)
				number++
				d.Add(&p, 1)
				if rapid.IntRange(0, 3).Draw(t, "given back") == 0 {
					d.Add(&p, -1)
					continue
				}
				placed[p.Task], running[p.Task] = p, p
			}
			check(&d)
			for _, id := range slices.Sorted(maps.Keys(placed)) {
				hold(&l, placed[id], 1)
			}
			for _, id := range slices.Sorted(maps.Keys(running)) {
				if rapid.IntRange(0, 2).Draw(t, "ends") == 0 {
					hold(&l, running[id], -1)
					delete(running, id)
				}
			}
			if rapid.Bool().Draw(t, "copied") {
				copied := l.Clone()
				more := anyShared(t, -1)
				hold(&l, more, 1) // the copy does not see it
				l = copied
			}
			d = admission.NewDraft(&l)
			check(&d)
		}
	})
}

// TestShareOfOneTask: the share of a task alone is that of its greatest part of a resource; resources that the nodes do
// not have do not count.
func TestShareOfOneTask(t *testing.T) {
	c := admission.Capacity{
		Demand:  cluster.Demand{CPU: 8000, Memory: 16 * cluster.GiB, Disk: 100 * cluster.GiB},
		Devices: map[string]int{"gpu": 4},
	}
	for name, tt := range map[string]struct {
		demand  cluster.Demand
		devices []cluster.DeviceRequest
		want    float64
	}{
		"nothing": {},
		"cpu":     {demand: cluster.Demand{CPU: 2000, Memory: cluster.GiB}, want: 0.25},
		"memory":  {demand: cluster.Demand{CPU: 1000, Memory: 8 * cluster.GiB}, want: 0.5},
		"disk":    {demand: cluster.Demand{CPU: 8, Disk: 90 * cluster.GiB}, want: 0.9},
		"devices": {
			demand: cluster.Demand{CPU: 2000}, devices: []cluster.DeviceRequest{{Type: "gpu", Count: 3}}, want: 0.75,
		},
		"a part of a device": {devices: []cluster.DeviceRequest{{Type: "gpu", Share: 500}}, want: 0.125},
		"the usual type":     {devices: []cluster.DeviceRequest{{}}, want: 0.25},
		"no such device":     {devices: []cluster.DeviceRequest{{Type: "fpga", Count: 9}}},
		"more than there is": {demand: cluster.Demand{CPU: 16_000}, want: 2},
	} {
		if got := c.Share(tt.demand, tt.devices); got != tt.want {
			t.Errorf("%s: the share is %v, want %v", name, got, tt.want)
		}
	}
	var none admission.Capacity
	if got := none.Share(cluster.Demand{CPU: 1000}, nil); got != 0 {
		t.Errorf("without nodes the share is %v, want 0", got)
	}
}

// TestClaimsOfParts draws loans and attempts that may end. If some attempts may, so may any part of them, in any order.
// The ends of all of them leave their clusters what their quotas allow, except with beyond: then each attempt alone,
// after the others, still ends a loan.
func TestClaimsOfParts(t *testing.T) {
	claimed, beyond, refused := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		var l admission.Ledger
		l.SetQuota("a", &cluster.Quota{CPU: 20_000, Tasks: 9})
		borrows := &cluster.QuotaBorrow{CPU: 90_000, Tasks: 90}
		limits := map[string][2]int64{}
		for _, name := range []string{"b", "c"} {
			q := &cluster.Quota{
				CPU:    cluster.MilliCPU(rapid.IntRange(0, 4).Draw(t, "cpu")) * 1000,
				Tasks:  rapid.IntRange(0, 3).Draw(t, "tasks"),
				Borrow: borrows,
			}
			l.SetQuota(name, q)
			limits[name] = [2]int64{int64(q.CPU), int64(q.Tasks)}
		}
		held := map[string][2]int64{}
		var all []*admission.Holding
		for n := range rapid.IntRange(1, 7).Draw(t, "attempts") {
			name := rapid.SampledFrom([]string{"b", "c"}).Draw(t, "cluster")
			owner := rapid.SampledFrom([]string{"web", "j1", "j2", "j3"}).Draw(t, "owner")
			p := in(name, rapid.IntRange(0, 3).Draw(t, "cpus"), task(owner, n))
			hold(&l, p, 1)
			h := admission.HoldingOf(&p)
			all = append(all, &h)
			held[name] = [2]int64{held[name][0] + int64(h.Demand.CPU), held[name][1] + 1}
		}
		attempts := all[:rapid.IntRange(1, len(all)).Draw(t, "chosen")]
		loans := l.Loans()
		waiting := in("a", 1, task("j1", 0))
		for _, may := range []bool{false, true} {
			if !loans.Claims(&waiting, attempts, may) {
				refused++
				continue
			}
			part := rapid.Permutation(attempts).Draw(t, "order")
			part = part[:rapid.IntRange(1, len(part)).Draw(t, "part")]
			if !loans.Claims(&waiting, part, may) {
				t.Fatalf("%d attempts may end, and %d of them may not", len(attempts), len(part))
			}
			claimed++
			for name, has := range held { // order-free: each by itself
				var cpu, least, tasks int64
				for _, h := range attempts {
					if h.Cluster != name {
						continue
					}
					if h.Job == "" {
						t.Fatalf("a task of a service may end: %+v", h)
					}
					if tasks == 0 || int64(h.Demand.CPU) < least {
						least = int64(h.Demand.CPU)
					}
					cpu, tasks = cpu+int64(h.Demand.CPU), tasks+1
				}
				limit := limits[name]
				cpuStays := limit[0] > 0 && least > 0 && has[0]-cpu >= limit[0]
				tasksStay := limit[1] > 0 && has[1]-tasks >= limit[1]
				if may {
					cpuStays = limit[0] > 0 && least > 0 && has[0]-cpu+least > limit[0]
					tasksStay = limit[1] > 0 && has[1]-tasks+1 > limit[1]
					beyond++
				}
				if tasks > 0 && !cpuStays && !tasksStay {
					t.Fatalf("%s holds %v of %v, and the ends of %d tasks with %d CPU are claimed", name, has, limit,
						tasks, cpu)
				}
			}
		}
	})
	if claimed == 0 || beyond == 0 || refused == 0 {
		t.Errorf("%d were claimed, %d beyond and %d refused: too few to show anything", claimed, beyond, refused)
	}
}

// TestWhoMayBorrow: tasks of jobs may, if the quota of their cluster says so; tasks of services never.
func TestWhoMayBorrow(t *testing.T) {
	var l admission.Ledger
	l.SetQuota("a", &cluster.Quota{CPU: 1000, Borrow: &cluster.QuotaBorrow{CPU: 1000}})
	l.SetQuota("b", &cluster.Quota{CPU: 1000})
	d := admission.NewDraft(&l)
	for name, c := range map[string]struct {
		task cluster.Pending
		want bool
	}{
		"a job's": {in("a", 1, task("j1", 0)), true}, "a service's": {in("a", 1, task("web", 0)), false},
		"of a cluster that lends alone": {in("b", 1, task("j1", 0)), false},
		"of a cluster without a quota":  {in("c", 1, task("j1", 0)), false},
	} {
		if got := d.MayBorrow(&c.task); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// TestRetainBegun forgets jobs that are gone, and says whether there were some: their places are free.
func TestRetainBegun(t *testing.T) {
	var l admission.Ledger
	waits := func() bool {
		p := task("j9", 0, ofGroup("deploy", 2))
		d := admission.NewDraft(&l)
		return !d.Admits(&p)
	}
	l.SetBegun("a", "j1", 1, "deploy")
	l.SetBegun("a", "j2", 1, "deploy")
	l.SetBegun("b", "j1", 1, "deploy")
	if !waits() {
		t.Error("two jobs of a group of two have begun, and a third one may")
	}
	if l.RetainBegun(func(string, string) bool { return true }) || !waits() {
		t.Error("all jobs exist, and one was forgotten")
	}
	if !l.RetainBegun(func(inCluster, job string) bool { return inCluster == "a" && job == "j2" }) || waits() {
		t.Error("a job is gone, and keeps its place")
	}
	if l.RetainBegun(func(inCluster, job string) bool { return job == "j2" }) {
		t.Error("a job was forgotten twice")
	}
	if l.SetBegun("b", "j1", 1, "deploy") != true || l.SetBegun("a", "j2", 1, "deploy") {
		t.Error("the other cluster's job is still known, or the job that exists is not")
	}
}
