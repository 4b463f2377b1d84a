package admission_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/admission"
)

// in moves a task to a cluster, and gives it CPUs.
func in(name string, cpus int, p cluster.Pending) cluster.Pending {
	p.Owner.Cluster = name
	_, rest, _ := p.Task.Cut()
	if p.Owner.Kind == cluster.KindJob {
		p.Task = cluster.JobTask(name, p.Owner.Name, 1, "work", rest)
	} else {
		p.Task = cluster.ServiceTask(name, p.Owner.Name, 1, rest)
	}
	p.Demand.CPU = cluster.MilliCPU(cpus) * 1000
	return p
}

// TestBorrowing asks for one task of the cluster a beside others.
func TestBorrowing(t *testing.T) {
	keeps := false
	lender := &cluster.Quota{CPU: 4000, Tasks: 9}
	borrower := &cluster.Quota{CPU: 4000, Borrow: &cluster.QuotaBorrow{CPU: 3000}}
	for name, c := range map[string]struct {
		quotas map[string]*cluster.Quota
		held   []cluster.Pending
		task   cluster.Pending
		want   string // the refusal
	}{
		"within the quota": {
			map[string]*cluster.Quota{"a": borrower}, nil, in("a", 4, task("j1", 0)), "",
		},
		"what another leaves": {
			map[string]*cluster.Quota{"a": borrower, "b": lender},
			[]cluster.Pending{in("a", 4, task("j1", 0)), in("b", 1, task("j1", 0))},
			in("a", 3, task("j1", 1)), "",
		},
		"a part of the task": {
			map[string]*cluster.Quota{"a": borrower, "b": lender},
			[]cluster.Pending{in("a", 3, task("j1", 0))},
			in("a", 4, task("j1", 1)), "",
		},
		"more than it may": {
			map[string]*cluster.Quota{"a": borrower, "b": lender},
			[]cluster.Pending{in("a", 6, task("j1", 0))},
			in("a", 2, task("j1", 1)),
			"quota of cluster a: cpu 2 needed, 6 of 4 used (2 borrowed, 1 more can be)",
		},
		"more than others leave": {
			map[string]*cluster.Quota{"a": borrower, "b": lender},
			[]cluster.Pending{in("a", 5, task("j1", 0)), in("b", 3, task("web", 0))},
			in("a", 1, task("j1", 1)),
			"quota of cluster a: cpu 1 needed, 5 of 4 used (1 borrowed, 0 more can be)",
		},
		"no other cluster": {
			map[string]*cluster.Quota{"a": borrower},
			[]cluster.Pending{in("a", 4, task("j1", 0))},
			in("a", 1, task("j1", 1)), "quota of cluster a: cpu 1 needed, 4 of 4 used (0 borrowed, 0 more can be)",
		},
		"a third cluster borrowed it": {
			map[string]*cluster.Quota{"a": borrower, "b": lender, "c": borrower},
			[]cluster.Pending{in("c", 7, task("j1", 0)), in("a", 4, task("j1", 0))},
			in("a", 2, task("j1", 1)),
			"quota of cluster a: cpu 2 needed, 4 of 4 used (0 borrowed, 1 more can be)",
		},
		"larger than ever allowed": {
			map[string]*cluster.Quota{"a": borrower, "b": lender},
			nil, in("a", 8, task("j1", 1)),
			"quota of cluster a: cpu 8 needed, 7 allowed with 3 borrowed",
		},
		"a service": {
			map[string]*cluster.Quota{"a": borrower, "b": lender},
			[]cluster.Pending{in("a", 4, task("j1", 0))},
			in("a", 1, task("web", 1)), "quota of cluster a: cpu 1 needed, 4 of 4 used",
		},
		"a cluster that does not lend": {
			map[string]*cluster.Quota{"a": borrower, "b": {CPU: 4000, Lend: &keeps}},
			[]cluster.Pending{in("a", 4, task("j1", 0))},
			in("a", 1, task("j1", 1)),
			"quota of cluster a: cpu 1 needed, 4 of 4 used (0 borrowed, 0 more can be)",
		},
		"one that limits something else": {
			map[string]*cluster.Quota{"a": borrower, "b": {Tasks: 9}},
			[]cluster.Pending{in("a", 4, task("j1", 0))},
			in("a", 1, task("j1", 1)),
			"quota of cluster a: cpu 1 needed, 4 of 4 used (0 borrowed, 0 more can be)",
		},
		"a limit that cannot be exceeded": {
			map[string]*cluster.Quota{
				"a": {CPU: 4000, Tasks: 1, Borrow: &cluster.QuotaBorrow{CPU: 9000}}, "b": lender,
			},
			[]cluster.Pending{in("a", 4, task("j1", 0))},
			in("a", 1, task("j1", 1)),
			"quota of cluster a: tasks 1 needed, 1 of 1 used",
		},
		"tasks and devices": {
			map[string]*cluster.Quota{
				"a": {
					Devices: map[string]int{"gpu": 0}, Tasks: 1,
					Borrow: &cluster.QuotaBorrow{Devices: map[string]int{"gpu": 2}, Tasks: 1},
				},
				"b": {Devices: map[string]int{"gpu": 1}, Tasks: 1},
			},
			[]cluster.Pending{in("a", 1, task("j1", 0, gpus(0, 500)))},
			in("a", 1, task("j1", 1, gpus(1, 0))),
			"quota of cluster a: gpu 1 needed, 0.5 of 0 used (0.5 borrowed, 0.5 more can be)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var l admission.Ledger
			for name, q := range c.quotas {
				l.SetQuota(name, q)
			}
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

// TestBorrowedUse shows what a cluster borrowed, of the limits alone that it may exceed.
func TestBorrowedUse(t *testing.T) {
	var l admission.Ledger
	l.SetQuota("a", &cluster.Quota{
		CPU: 1000, Tasks: 1, Devices: map[string]int{"gpu": 0},
		Borrow: &cluster.QuotaBorrow{CPU: 4000, Devices: map[string]int{"gpu": 1}},
	})
	hold(&l, in("a", 2, task("j1", 0, gpus(0, 500))), 1)
	hold(&l, in("a", 1, task("j1", 1)), 1)
	want := &cluster.Borrowed{CPU: 2000, Devices: map[string]float64{"gpu": 0.5}}
	if diff := cmp.Diff(want, l.Use("a").Borrowed); diff != "" {
		t.Errorf("borrowed (-want +got):\n%s", diff)
	}
	hold(&l, in("a", 2, task("j1", 0, gpus(0, 500))), -1)
	if got := l.Use("a").Borrowed; got != nil {
		t.Errorf("%+v is borrowed, want nothing", got)
	}
}

// anyBorrow adds to a quota what its cluster may borrow, and whether it lends.
func anyBorrow(t *rapid.T, q *cluster.Quota) {
	if rapid.Bool().Draw(t, "lend") {
		lends := rapid.Bool().Draw(t, "lends")
		q.Lend = &lends
	}
	if rapid.IntRange(0, 3).Draw(t, "borrow") == 0 {
		return
	}
	q.Borrow = &cluster.QuotaBorrow{Devices: map[string]int{"gpu": rapid.IntRange(0, 2).Draw(t, "gpus borrowed")}}
	if q.CPU > 0 {
		q.Borrow.CPU = cluster.MilliCPU(rapid.IntRange(0, 6).Draw(t, "cpu borrowed") * 500)
	}
	if q.Tasks > 0 {
		q.Borrow.Tasks = rapid.IntRange(0, 3).Draw(t, "tasks borrowed")
	}
}

// holdings counts what the tasks of each cluster hold: thousandths of CPUs and devices, and tasks.
type holdings map[string][3]int

func (h holdings) add(p *cluster.Pending, sign int) {
	n := h[p.Owner.Cluster]
	n[0] += sign * int(p.Demand.CPU)
	for i := range p.Devices {
		r := &p.Devices[i]
		if r.Share > 0 {
			n[1] += sign * r.Share
		} else {
			n[1] += sign * 1000 * max(r.Count, 1)
		}
	}
	n[2] += sign
	h[p.Owner.Cluster] = n
}

// limitsOf returns the limits in the terms of holdings, and how far they may be exceeded; -1 is no limit.
func limitsOf(q *cluster.Quota) (limits, borrow [3]int) {
	limits = [3]int{int(q.CPU), 1000 * q.Devices["gpu"], q.Tasks}
	for _, i := range []int{0, 2} {
		if limits[i] == 0 {
			limits[i] = -1
		}
	}
	if b := q.Borrow; b != nil {
		borrow = [3]int{int(b.CPU), 1000 * b.Devices["gpu"], b.Tasks}
	}
	return limits, borrow
}

// verdict is the model of Judge for quotas without a limit of jobs: it counts again what all clusters hold.
func (h holdings) verdict(quotas map[string]*cluster.Quota, p *cluster.Pending) admission.Verdict {
	with := maps.Clone(h)
	with.add(p, 1)
	v := admission.Within
	limits, borrow := limitsOf(quotas[p.Owner.Cluster])
	for i, limit := range limits {
		own, before := with[p.Owner.Cluster][i], h[p.Owner.Cluster][i]
		if limit < 0 || own <= limit || own == before {
			continue
		}
		unused := 0 // of the others
		for name, q := range quotas {
			if others, _ := limitsOf(q); name != p.Owner.Cluster && others[i] >= 0 {
				left := others[i] - h[name][i]
				if left < 0 || q.Lends() {
					unused += left
				}
			}
		}
		if p.Owner.Kind != cluster.KindJob || own-limit > borrow[i] || own-limit > unused {
			return admission.Refused
		}
		v = admission.Borrows
	}
	return v
}

// TestBorrowedSums places and ends random tasks of clusters that borrow from each other, in any order. A task within
// the quota of its cluster is never refused. A task that borrows leaves all clusters with the limit within the sum of
// their limits, and its own within what it may borrow. The model agrees, with all that Draft keeps from task to task.
// What Sufficient returns suffices.
func TestBorrowedSums(t *testing.T) {
	seen := map[admission.Verdict]int{}
	rapid.Check(t, func(t *rapid.T) {
		var l admission.Ledger
		quotas, now := map[string]*cluster.Quota{}, holdings{}
		set := func(name string) {
			q := anyQuota(t)
			q.Jobs = 0
			if q.CPU+cluster.MilliCPU(q.Tasks) == 0 && q.Devices["gpu"] == 0 {
				q.Tasks = 1
			}
			anyBorrow(t, q)
			quotas[name] = q
			l.SetQuota(name, q)
		}
		for _, name := range []string{"a", "b", "c"} {
			set(name)
		}
		running := map[cluster.TaskID]cluster.Pending{}
		for step := range rapid.IntRange(1, 25).Draw(t, "steps") {
			d := admission.NewDraft(&l)
			placed := map[cluster.TaskID]cluster.Pending{}
			for n := range rapid.IntRange(0, 6).Draw(t, "tasks of a cycle") {
				p := anyTask(t, "task")
				p.Concurrency = nil
				cpus := p.Demand.CPU
				p = in(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "cluster"), 0, p)
				p.Task += cluster.TaskID(fmt.Sprintf("%d%d", 10+step, 10+n))
				p.Demand.CPU = cpus
				got, want := d.Judge(&p), now.verdict(quotas, &p)
				if got != want {
					t.Fatalf("verdict %d on %+v, want %d: %+v hold %+v", got, p, want, quotas, now)
				}
				if seen[got]++; got == admission.Refused {
					checkRaised(t, &l, &d, &p)
					continue
				}
				d.Add(&p, 1)
				now.add(&p, 1)
				if got == admission.Borrows {
					checkSums(t, quotas, now, &p)
				}
				if rapid.IntRange(0, 4).Draw(t, "given back") == 0 {
					d.Add(&p, -1)
					now.add(&p, -1)
					continue
				}
				placed[p.Task] = p
			}
			for id, p := range placed {
				running[id] = p
				hold(&l, p, 1)
			}
			for _, id := range slices.Sorted(maps.Keys(running)) {
				if rapid.IntRange(0, 3).Draw(t, "ends") == 0 {
					p := running[id]
					delete(running, id)
					hold(&l, p, -1)
					now.add(&p, -1)
				}
			}
			if rapid.IntRange(0, 5).Draw(t, "new quota") == 0 {
				set("b")
			}
		}
	})
	for v, name := range map[admission.Verdict]string{
		admission.Refused: "refused", admission.Within: "within", admission.Borrows: "borrows",
	} {
		if seen[v] < 50 {
			t.Errorf("%d verdicts %q: %v", seen[v], name, seen)
		}
	}
}

// checkSums checks the sums after a task that borrowed was placed, of the resources that it borrowed.
func checkSums(t *rapid.T, quotas map[string]*cluster.Quota, now holdings, p *cluster.Pending) {
	t.Helper()
	limits, borrow := limitsOf(quotas[p.Owner.Cluster])
	needs := holdings{}
	needs.add(p, 1)
	for i, limit := range limits {
		own := now[p.Owner.Cluster][i]
		if limit < 0 || own <= limit || needs[p.Owner.Cluster][i] == 0 {
			continue
		}
		held, sum := 0, 0
		for name, q := range quotas {
			if others, _ := limitsOf(q); others[i] >= 0 {
				held, sum = held+now[name][i], sum+others[i]
			}
		}
		if held > sum || own > limit+borrow[i] {
			t.Fatalf("resource %d: %d are held of the sum of %d, %d by the cluster %s: %+v hold %+v", i, held, sum, own,
				p.Owner.Cluster, quotas, now)
		}
	}
}

// checkRaised raises the quota that refuses a task, sees it admitted, and lowers each limit again.
func checkRaised(t *rapid.T, l *admission.Ledger, d *admission.Draft, p *cluster.Pending) {
	t.Helper()
	was := l.Quotas()[p.Owner.Cluster]
	defer l.SetQuota(p.Owner.Cluster, was)
	q, _, _ := d.Sufficient(p)
	if q == nil {
		t.Fatal("a task is refused, and its quota suffices")
	}
	l.SetQuota(p.Owner.Cluster, q)
	if r := d.Refusal(p); r.Code != "" {
		t.Fatalf("with %+v it is refused: %s", q, r.Detail)
	}
	for name, lower := range map[string]func(*cluster.Quota) bool{
		"cpu":   func(c *cluster.Quota) bool { c.CPU--; return q.CPU != was.CPU && c.CPU > 0 },
		"tasks": func(c *cluster.Quota) bool { c.Tasks--; return q.Tasks != was.Tasks && c.Tasks > 0 },
		"gpu":   func(c *cluster.Quota) bool { c.Devices["gpu"]--; return q.Devices["gpu"] != was.Devices["gpu"] },
	} {
		lowered := q.Clone()
		if !lower(lowered) {
			continue
		}
		l.SetQuota(p.Owner.Cluster, lowered)
		if d.Admits(p) {
			t.Fatalf("less %s suffices, too: %+v instead of %+v", name, lowered, q)
		}
	}
}

// TestSameWithoutBorrowing compares a ledger of clusters that borrow nothing, as the others lend or not, with a ledger
// that knows the quota of one of them alone.
func TestSameWithoutBorrowing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all, alone admission.Ledger
		own, other := anyQuota(t), anyQuota(t)
		anyBorrow(t, other)
		all.SetQuota("a", own)
		all.SetQuota("b", other)
		alone.SetQuota("a", own)
		d, e := admission.NewDraft(&all), admission.NewDraft(&alone)
		for n := range rapid.IntRange(1, 30).Draw(t, "tasks") {
			p := anyTask(t, "task")
			if rapid.IntRange(0, 2).Draw(t, "of the other") == 0 {
				p = in("b", 1, p)
			}
			p.Task += cluster.TaskID(fmt.Sprint(100 + n))
			got, want := d.Refusal(&p), e.Refusal(&p)
			if p.Owner.Cluster == "a" && got != want {
				t.Fatalf("refusal %q, want %q", got.Detail, want.Detail)
			}
			if d.Admits(&p) {
				d.Add(&p, 1)
				e.Add(&p, 1)
			}
		}
	})
}

// TestClaims asks which attempts of the cluster b may end for a task of the cluster a.
func TestClaims(t *testing.T) {
	holding := func(p cluster.Pending) *admission.Holding {
		h := admission.HoldingOf(&p)
		return &h
	}
	four, two, one := in("b", 4, task("j1", 0)), in("b", 2, task("j2", 1)), in("b", 1, task("j3", 2))
	service := in("b", 1, task("web", 0))
	for name, c := range map[string]struct {
		limit        cluster.MilliCPU // of b, which uses 8 CPUs
		own          *cluster.Quota
		attempts     []cluster.Pending
		want, beyond bool
		ended        []cluster.Pending
	}{
		"all of the loan": {
			limit: 4000, own: &cluster.Quota{CPU: 9000}, attempts: []cluster.Pending{four}, want: true, beyond: true,
		},
		"a part of it": {
			limit: 4000, own: &cluster.Quota{CPU: 9000}, attempts: []cluster.Pending{two, one}, want: true,
			beyond: true,
		},
		"more than the loan, as one task": {
			limit: 5000, own: &cluster.Quota{CPU: 9000}, attempts: []cluster.Pending{four}, beyond: true,
		},
		"more than needed to end the loan": {
			limit: 5000, own: &cluster.Quota{CPU: 9000}, attempts: []cluster.Pending{four, one},
		},
		"no loan":                 {limit: 8000, own: &cluster.Quota{CPU: 9000}, attempts: []cluster.Pending{one}},
		"a service":               {limit: 4000, own: &cluster.Quota{CPU: 9000}, attempts: []cluster.Pending{service}},
		"no quota":                {limit: 4000, attempts: []cluster.Pending{one}},
		"a quota of other limits": {limit: 4000, own: &cluster.Quota{Tasks: 3}, attempts: []cluster.Pending{one}},
		"the loan has ended": {
			limit: 4000, own: &cluster.Quota{CPU: 9000}, attempts: []cluster.Pending{one},
			ended: []cluster.Pending{four},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var l admission.Ledger
			l.SetQuota("b", &cluster.Quota{CPU: c.limit, Borrow: &cluster.QuotaBorrow{CPU: 9000}})
			l.SetQuota("a", c.own)
			for _, p := range []cluster.Pending{four, two, one, service} {
				hold(&l, p, 1)
			}
			loans := l.Loans()
			for _, p := range c.ended {
				loans.End(holding(p), 1)
			}
			var attempts []*admission.Holding
			for _, p := range c.attempts {
				attempts = append(attempts, holding(p))
			}
			waiting := in("a", 1, task("j1", 0))
			if got := loans.Claims(&waiting, attempts, false); got != c.want {
				t.Errorf("claims: %v, want %v", got, c.want)
			}
			if got := loans.Claims(&waiting, attempts, true); got != c.beyond {
				t.Errorf("claims beyond: %v, want %v", got, c.beyond)
			}
		})
	}
}

// TestBorrowingBesideMoves has the lending cluster move a task: its next attempt counts as the same task.
func TestBorrowingBesideMoves(t *testing.T) {
	var l admission.Ledger
	l.SetQuota("a", &cluster.Quota{Tasks: 1, Borrow: &cluster.QuotaBorrow{Tasks: 9}})
	l.SetQuota("b", &cluster.Quota{Tasks: 2})
	hold(&l, in("b", 1, task("web", 0)), 1)
	hold(&l, in("a", 1, task("j1", 0)), 1)
	d := admission.NewDraft(&l)
	moved, next := in("b", 1, task("web", 0)), in("a", 1, task("j1", 1))
	for range 2 { // before and after the pool is made
		d.Add(&moved, 1)
		if got := d.Judge(&next); got != admission.Borrows {
			t.Errorf("verdict %d, want %d: one task of the other cluster is left", got, admission.Borrows)
		}
		d.Add(&moved, -1)
	}
	other := in("b", 1, task("web", 1))
	d.Add(&other, 1)
	if got := d.Judge(&next); got != admission.Refused {
		t.Errorf("verdict %d, want %d: nothing is left", got, admission.Refused)
	}
}
