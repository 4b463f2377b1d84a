package rebalance_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/rebalance"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// modelScore is a score without rounding.
type modelScore struct{ used, stranded, uneven float64 }

// scoreOf computes the score of a world of services from the definition of rebalance.Score, in floating-point numbers
// and without any index.
func (w *world) scoreOf() (s modelScore) {
	movable := map[cluster.Strategy]bool{}
	for i := range w.tasks {
		if t := &w.tasks[i]; w.mayMove(t) {
			movable[strategyOf(t)] = true
		}
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		var used cluster.Demand
		inUse := false
		for k := range w.tasks {
			if t := &w.tasks[k]; t.Node == n.Name {
				used = used.Add(t.Demand)
				inUse = inUse || !t.Daemon
			}
		}
		cpu, memory := part(int64(used.CPU), int64(n.Capacity.CPU)), part(int64(used.Memory), int64(n.Capacity.Memory))
		disk := part(int64(used.Disk), int64(n.Capacity.Disk))
		if inUse {
			s.used++
		}
		s.stranded += rebalance.Points * math.Abs(min(cpu, 1)-min(memory, 1))
		s.uneven += rebalance.Points * (cpu*cpu + memory*memory + disk*disk)
	}
	for _, tasks := range w.byService() {
		s.uneven += w.unevenness(tasks)
	}
	if !movable[cluster.StrategyBinpack] {
		s.used = 0
	}
	if !movable[cluster.StrategyWhole] {
		s.stranded = 0
	}
	if !movable[cluster.StrategySpread] {
		s.uneven = 0
	}
	return s
}

func part(used, capacity int64) float64 { return float64(used) / float64(max(capacity, 1)) }

func strategyOf(t *rebalance.Task) cluster.Strategy {
	if t.Placement.Strategy != "" {
		return t.Placement.Strategy
	}
	return cluster.StrategySpread // the default for services
}

// mayMove reports whether a task may be moved at all.
func (w *world) mayMove(t *rebalance.Task) bool {
	if t.Unmovable != "" || w.spare[t.Owner] < 0 || t.StopFirst && w.spare[t.Owner] < 1 {
		return false
	}
	for i := range w.tasks { // a task that others need nearby stays
		for _, r := range w.tasks[i].Placement.Relations {
			if r.Required && !r.Away && scheduler.Concerns(r, w.tasks[i].Task, t.Task, t.Labels) {
				return false
			}
		}
	}
	return true
}

func (w *world) byService() (all [][]*rebalance.Task) {
	at := map[string]int{}
	for i := range w.tasks {
		t := &w.tasks[i]
		k, known := at[t.Owner.Name]
		if !known {
			k = len(all)
			at[t.Owner.Name] = k
			all = append(all, nil)
		}
		all[k] = append(all[k], t)
	}
	return all
}

// unevenness returns how far the tasks of a service are from their wanted spread, in points.
func (w *world) unevenness(tasks []*rebalance.Task) (sum float64) {
	p := &tasks[0].Placement
	if strategyOf(tasks[0]) != cluster.StrategySpread {
		return 0
	}
	open, byNode := 0.0, map[string]float64{}
	for i := range w.nodes {
		if w.isOpen(&w.nodes[i]) {
			open++
		}
	}
	for _, t := range tasks {
		byNode[t.Node]++
		sum += w.unmet(p, w.at(t.Node))
	}
	if p.AntiAffinity != cluster.AntiAffinityNone && len(tasks) > 1 {
		for _, k := range byNode { // order-free: a sum of few numbers
			sum += rebalance.Points * k * (k - 1) / 2 * open / max(open, float64(len(tasks)))
		}
	}
	for i := range p.Spread {
		sum += w.distance(tasks, &p.Spread[i])
	}
	return sum
}

func (w *world) isOpen(n *scheduler.Node) bool { return n.State == cluster.NodeReady && !n.Cordon }

// unmet returns the points of the preferences of a placement that a node does not meet, and of its taints to avoid.
func (w *world) unmet(p *cluster.Placement, n *scheduler.Node) (points float64) {
	const perWeight = float64(rebalance.Points) / cluster.MaxWeight
	for _, a := range p.Affinities {
		points += perWeight * float64(max(0, a.Weight))
		if scheduler.Matches(a.Constraint, n) {
			points -= perWeight * float64(a.Weight)
		}
	}
	for _, taint := range n.Taints {
		if taint.Effect == cluster.TaintAvoid && !slices.ContainsFunc(p.Tolerations, func(t cluster.Toleration) bool {
			return t.Tolerates(taint)
		}) {
			points += rebalance.Points
		}
	}
	return points
}

// distance returns how far the numbers of tasks by value of an attribute are from their targets. A named value has its
// percentage as target. All others that some open node offers share the rest.
func (w *world) distance(tasks []*rebalance.Task, s *cluster.Spread) (sum float64) {
	counts, usable := map[string]float64{}, map[string]bool{}
	for i := range w.nodes {
		n := &w.nodes[i]
		counts[n.Value(s.Attribute)] += 0
		if w.isOpen(n) && scheduler.Allows(&tasks[0].Placement, n, false) {
			usable[n.Value(s.Attribute)] = true
		}
	}
	for _, t := range tasks {
		counts[w.at(t.Node).Value(s.Attribute)]++
	}
	count := float64(len(tasks))
	targets, rest := map[string]float64{}, count
	for _, t := range s.Targets {
		if _, has := counts[t.Value]; has {
			targets[t.Value] = count * float64(t.Percent) / 100
			rest -= targets[t.Value]
		}
	}
	others := 0.0
	for v := range usable {
		if _, named := targets[v]; !named {
			others++
		}
	}
	weight := float64(s.Weight)
	if s.Weight == 0 {
		weight = cluster.DefaultWeight
	}
	mean := float64(max(1, len(tasks)/max(1, len(usable))))
	for v, n := range counts {
		target, named := targets[v]
		if !named && usable[v] {
			target = max(0, rest) / others
		}
		sum += rebalance.Points * (n - target) * (n - target) * weight / (2 * cluster.DefaultWeight * mean)
	}
	return sum
}

// TestScoreIsAsDefined compares the scores before and after the moves with the model.
func TestScoreIsAsDefined(t *testing.T) {
	var used, stranded, uneven int // worlds in which the numbers count
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		opts := rebalance.Options{MinGain: pick(t, "least gain", 0, 1)}
		res := rebalance.Rebalance(w.input(), opts)
		for _, when := range []string{"before", "after"} {
			got, want := res.Before, w.scoreOf()
			if when == "after" {
				for _, m := range res.Moves {
					if err := w.carry(m, true); err != nil {
						t.Fatal(err)
					}
				}
				got, want = res.After, w.scoreOf()
			}
			near := func(got int, want float64) bool {
				return math.Abs(float64(got)-want) <= 3+want/200 // targets are rounded to 1024ths of a task
			}
			if !near(got.Used, want.used) || got.Used != int(want.used) || !near(got.Stranded, want.stranded) ||
				!near(got.Uneven, want.uneven) {
				t.Fatalf("%s: got %+v, want %+v", when, got, want)
			}
			used, stranded, uneven = used+min(got.Used, 1), stranded+min(got.Stranded, 1), uneven+min(got.Uneven, 1)
		}
	})
	if used == 0 || stranded == 0 || uneven == 0 {
		t.Errorf("numbers that counted: used %d, stranded %d, uneven %d times", used, stranded, uneven)
	}
}

// TestCompareScores checks the order of the four numbers: the first that differs decides.
func TestCompareScores(t *testing.T) {
	ordered := []rebalance.Score{
		{},
		{Uneven: 9},
		{Stranded: 1},
		{Stranded: 1, Uneven: 1},
		{Used: 1},
		{Used: 1, Stranded: 5},
		{Violations: 1},
		{Violations: 1, Used: 9, Stranded: 9, Uneven: 9},
		{Violations: 2},
	}
	for i, a := range ordered {
		for j, b := range ordered {
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			if got := a.Compare(b); got != want {
				t.Errorf("%+v compared with %+v: got %d, want %d", a, b, got, want)
			}
		}
	}
}
