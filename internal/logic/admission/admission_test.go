package admission_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/admission"
)

// task returns a waiting task of the cluster a. An owner's name that begins with "j" is a job's.
func task(owner string, index int, change ...func(*cluster.Pending)) cluster.Pending {
	p := cluster.Pending{
		Owner:  cluster.OwnerRef{Kind: cluster.KindService, Cluster: "a", Name: owner},
		Task:   cluster.TaskID(fmt.Sprintf("a.%s.1.%d", owner, index)),
		Demand: cluster.Demand{CPU: 1000, Memory: cluster.GiB},
	}
	if owner[0] == 'j' {
		p.Owner.Kind, p.Task = cluster.KindJob, cluster.TaskID(fmt.Sprintf("a.%s.1.work.%d", owner, index))
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

// hold counts a task in the ledger.
func hold(l *admission.Ledger, p cluster.Pending, sign int) {
	h := admission.HoldingOf(&p)
	l.Add(&h, sign)
}

func gpus(count, share int) func(*cluster.Pending) {
	return func(p *cluster.Pending) {
		p.Devices = append(p.Devices, cluster.DeviceRequest{Type: "gpu", Count: count, Share: share})
	}
}

func grouped(group string, limit int) func(*cluster.Pending) {
	return func(p *cluster.Pending) { p.Concurrency = &cluster.Concurrency{Group: group, Limit: limit} }
}

// TestRefusals has each limit refuse a task, and name all that is short.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		quota *cluster.Quota
		held  []cluster.Pending
		task  cluster.Pending
		want  string
	}{
		"no limit": {nil, []cluster.Pending{task("web", 0)}, task("web", 1), ""},
		"room":     {&cluster.Quota{CPU: 2000, Tasks: 2}, []cluster.Pending{task("web", 0)}, task("web", 1), ""},
		"another cluster": {
			&cluster.Quota{Tasks: 1},
			[]cluster.Pending{task("web", 0, func(p *cluster.Pending) { p.Owner.Cluster = "b" })},
			task("web", 1), "",
		},
		"cpu": {
			&cluster.Quota{CPU: 1500},
			[]cluster.Pending{task("web", 0)},
			task("web", 1),
			"quota of cluster a: cpu 1 needed, 1 of 1500m used",
		},
		"never": {&cluster.Quota{CPU: 500}, nil, task("web", 1), "quota of cluster a: cpu 1 needed, 500m allowed"},
		"all": {
			&cluster.Quota{CPU: 1000, Memory: cluster.GiB, Tasks: 1, Jobs: 1},
			[]cluster.Pending{task("j1", 0)},
			task("j2", 0),
			"quota of cluster a: cpu 1 needed, 1 of 1 used, memory 1 GiB needed, 1 GiB of 1 GiB used, " +
				"tasks 1 needed, 1 of 1 used, jobs 1 needed, 1 of 1 used",
		},
		"the same job": {&cluster.Quota{Jobs: 1}, []cluster.Pending{task("j1", 0)}, task("j1", 1), ""},
		"devices": {
			&cluster.Quota{Devices: map[string]int{"gpu": 2}},
			[]cluster.Pending{task("web", 0, gpus(1, 0)), task("web", 1, gpus(0, 500))},
			task("web", 2, gpus(1, 0)),
			"quota of cluster a: gpu 1 needed, 1.5 of 2 used",
		},
		"no device at all": {
			&cluster.Quota{Devices: map[string]int{"gpu": 0}}, nil, task("web", 2, gpus(0, 0)),
			"quota of cluster a: gpu 1 needed, 0 allowed",
		},
		"no such device": {
			&cluster.Quota{Devices: map[string]int{"fpga": 0}}, nil, task("web", 2, gpus(0, 0)), "",
		},
		"group": {
			nil,
			[]cluster.Pending{task("j1", 0, grouped("deploy", 2)), task("j2", 0, grouped("deploy", 9))},
			task("j3", 0, grouped("deploy", 2)), "concurrency group deploy: tasks 1 needed, 2 of 2 used",
		},
		"another group": {
			nil, []cluster.Pending{task("j1", 0, grouped("deploy", 1))}, task("j3", 0, grouped("test", 1)), "",
		},
		"an earlier attempt of the task": {
			&cluster.Quota{Tasks: 1},
			[]cluster.Pending{task("j1", 0, grouped("deploy", 1))},
			task("j1", 0, grouped("deploy", 1)), "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var l admission.Ledger
			l.SetQuota("a", c.quota)
			for _, p := range c.held {
				hold(&l, p, 1)
			}
			d := admission.NewDraft(&l)
			if got := d.Refusal(&c.task); got.Detail != c.want {
				t.Errorf("refusal %q, want %q", got.Detail, c.want)
			}
		})
	}
}

// TestQuotaChanges reports changes of quotas only.
func TestQuotaChanges(t *testing.T) {
	var l admission.Ledger
	for i, c := range []struct {
		quota *cluster.Quota
		want  bool
	}{
		{nil, false},
		{&cluster.Quota{CPU: 1, Devices: map[string]int{"gpu": 1}}, true},
		{&cluster.Quota{CPU: 1, Devices: map[string]int{"gpu": 1}}, false},
		{&cluster.Quota{CPU: 1, Devices: map[string]int{"gpu": 2}}, true},
		{&cluster.Quota{CPU: 2}, true},
		{nil, true},
	} {
		if got := l.SetQuota("a", c.quota); got != c.want {
			t.Errorf("change %d: %v, want %v", i, got, c.want)
		}
	}
}

// TestReplacementsCount places the next attempt of a task while the earlier one holds room. In the same cycle, the task
// that follows sees what it sees in the next cycle.
func TestReplacementsCount(t *testing.T) {
	var l admission.Ledger
	l.SetQuota("a", &cluster.Quota{CPU: 2000, Tasks: 2})
	first, next := task("web", 0), task("web", 1)
	first.Demand.CPU, next.Demand.CPU = 1000, 1000
	grouped("x", 2)(&first)
	grouped("x", 2)(&next)
	hold(&l, first, 1)
	d := admission.NewDraft(&l)
	if r := d.Refusal(&next); r.Code != "" {
		t.Fatalf("before the replacement: %s", r.Detail)
	}
	d.Add(&first, 1)
	if r := d.Refusal(&first); r.Code != "" {
		t.Errorf("a replacement is refused: %s", r.Detail)
	}
	got := d.Refusal(&next)
	hold(&l, first, 1)
	d = admission.NewDraft(&l)
	want := d.Refusal(&next)
	if got != want || want.Detail != "quota of cluster a: cpu 1 needed, 2 of 2 used" {
		t.Errorf("in the cycle of the replacement: %q, afterwards: %q", got.Detail, want.Detail)
	}
}

func anyTask(t *rapid.T, label string) cluster.Pending {
	p := task(rapid.SampledFrom([]string{"web", "j1", "j2", "j3"}).Draw(t, label+" owner"),
		rapid.IntRange(0, 5).Draw(t, label+" index"))
	p.Demand.CPU = cluster.MilliCPU(rapid.IntRange(1, 4).Draw(t, label+" cpu")) * 500
	if rapid.Bool().Draw(t, label+" gpu") {
		gpus(rapid.IntRange(0, 2).Draw(t, label+" gpus"), rapid.SampledFrom([]int{0, 300}).Draw(t, label+" share"))(&p)
	}
	if rapid.Bool().Draw(t, label+" grouped") {
		grouped(rapid.SampledFrom([]string{"x", "y"}).Draw(t, label+" group"),
			rapid.IntRange(1, 3).Draw(t, label+" limit"))(&p)
	}
	return p
}

func anyQuota(t *rapid.T) *cluster.Quota {
	return &cluster.Quota{
		CPU: cluster.MilliCPU(rapid.IntRange(0, 6).Draw(t, "cpu") * 1000), Tasks: rapid.IntRange(0, 5).Draw(t, "tasks"),
		Jobs:    rapid.IntRange(0, 2).Draw(t, "jobs"),
		Devices: map[string]int{"gpu": rapid.IntRange(0, 3).Draw(t, "gpus")},
	}
}

// TestLimitsHold places and ends random tasks as they are admitted, counts what they hold by another way, and finds no
// limit exceeded. What Sufficient returns suffices, and the least of each limit.
func TestLimitsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l admission.Ledger
		q := anyQuota(t)
		l.SetQuota("a", q)
		running := map[cluster.TaskID]cluster.Pending{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			d := admission.NewDraft(&l)
			placed := map[cluster.TaskID]cluster.Pending{}
			for range rapid.IntRange(0, 4).Draw(t, "tasks of a cycle") {
				p := anyTask(t, "task")
				_, runs := running[p.Task]
				if _, twice := placed[p.Task]; twice || runs {
					continue
				}
				if r := d.Refusal(&p); r.Code != "" {
					checkSufficient(t, &l, &d, p)
					continue
				}
				d.Add(&p, 1)
				if rapid.IntRange(0, 4).Draw(t, "given back") == 0 {
					d.Add(&p, -1)
					continue
				}
				placed[p.Task] = p
			}
			for id, p := range placed {
				running[id] = p
				hold(&l, p, 1)
			}
			checkLimits(t, q, running)
			for id, p := range running {
				if rapid.IntRange(0, 3).Draw(t, "ends") == 0 {
					delete(running, id)
					hold(&l, p, -1)
				}
			}
		}
	})
}

// checkSufficient raises the limits that refuse a task, sees it admitted, and lowers each again.
func checkSufficient(t *rapid.T, l *admission.Ledger, d *admission.Draft, p cluster.Pending) {
	t.Helper()
	was := l.Quotas()["a"]
	defer l.SetQuota("a", was)
	q, limit, jobs := d.Sufficient(&p)
	if q == nil && limit == 0 && jobs == 0 {
		t.Fatal("a task is refused, and its limits suffice")
	}
	if q != nil {
		l.SetQuota("a", q)
	}
	if limit > 0 {
		p.Concurrency = &cluster.Concurrency{Group: p.Concurrency.Group, Limit: limit}
	}
	if r := d.Refusal(&p); r.Code != "" {
		t.Fatalf("with %+v and the limit %d of its group it is refused: %s", q, limit, r.Detail)
	}
	for name, lower := range map[string]func(*cluster.Quota) bool{
		"cpu":   func(c *cluster.Quota) bool { c.CPU--; return q.CPU != was.CPU },
		"tasks": func(c *cluster.Quota) bool { c.Tasks--; return q.Tasks != was.Tasks && c.Tasks > 0 },
		"jobs":  func(c *cluster.Quota) bool { c.Jobs--; return q.Jobs != was.Jobs && c.Jobs > 0 },
		"gpu":   func(c *cluster.Quota) bool { c.Devices["gpu"]--; return q.Devices["gpu"] != was.Devices["gpu"] },
	} {
		if q == nil {
			break
		}
		lowered := q.Clone()
		if !lower(lowered) {
			continue
		}
		l.SetQuota("a", lowered)
		if r := d.Refusal(&p); r.Code == "" {
			t.Fatalf("less %s suffices, too: %+v", name, lowered)
		}
	}
}

// checkLimits counts what the tasks hold.
func checkLimits(t *rapid.T, q *cluster.Quota, running map[cluster.TaskID]cluster.Pending) {
	t.Helper()
	var cpu cluster.MilliCPU
	gpu, jobs, groups := 0, map[string]bool{}, map[string][]int{}
	for _, p := range running {
		cpu += p.Demand.CPU
		for _, r := range p.Devices {
			switch {
			case r.Share > 0:
				gpu += r.Share
			default:
				gpu += 1000 * max(r.Count, 1)
			}
		}
		if p.Owner.Kind == cluster.KindJob {
			jobs[p.Owner.Name] = true
		}
		if c := p.Concurrency; c != nil {
			groups[c.Group] = append(groups[c.Group], c.Limit)
		}
	}
	if q.CPU > 0 && cpu > q.CPU || q.Tasks > 0 && len(running) > q.Tasks || q.Jobs > 0 && len(jobs) > q.Jobs ||
		gpu > 1000*q.Devices["gpu"] {
		t.Fatalf("%s of CPU, %d tasks, %d jobs, %d thousandths of devices exceed %+v", cpu, len(running), len(jobs),
			gpu, q)
	}
	for group, limits := range groups {
		largest := 0
		for _, limit := range limits {
			largest = max(largest, limit)
		}
		if len(limits) > largest {
			t.Fatalf("%d tasks of the group %s run, and the largest of their limits is %d", len(limits), group, largest)
		}
	}
}
