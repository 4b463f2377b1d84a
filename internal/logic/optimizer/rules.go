package optimizer

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// refuses says whether a node is none for a placement, whatever runs there: its constraints, pool or taints. Of a task
// that runs there already only taints with the effect evict count.
func (b *board) refuses(p *cluster.Placement, n int32, fresh bool) (cluster.Refusal, bool) {
	o := &b.nodes[n]
	for i := range p.Constraints {
		if !scheduler.Matches(p.Constraints[i], &o.Node) {
			return cluster.Refusal{Code: cluster.ReasonConstraint, Detail: scheduler.Text(p.Constraints[i])}, true
		}
	}
	if p.Pool != "" && o.Pool != p.Pool {
		return cluster.Refusal{Code: cluster.ReasonPool, Detail: p.Pool}, true
	}
	for _, t := range o.Taints {
		if (t.Effect == cluster.TaintEvict || fresh && t.Effect != cluster.TaintAvoid) && !tolerates(p, t) {
			return cluster.Refusal{Code: cluster.ReasonTaint, Detail: t.String()}, true
		}
	}
	return cluster.Refusal{}, false
}

func tolerates(p *cluster.Placement, taint cluster.Taint) bool {
	return slices.ContainsFunc(p.Tolerations, func(t cluster.Toleration) bool { return t.Tolerates(taint) })
}

// phrase tells what a node lacks for a task.
func phrase(node string, r cluster.Refusal) string {
	if r.Code == cluster.ReasonPool {
		return fmt.Sprintf("node %s is not in pool %s", node, r.Detail)
	}
	if r.Code == cluster.ReasonTaint {
		return fmt.Sprintf("node %s has the taint %s", node, r.Detail)
	}
	return fmt.Sprintf("node %s does not meet %s", node, r.Detail)
}

// violations finds the tasks that stand where they may not, and moves those that may be moved, each to the place that
// the scheduler would give it. It is given what it returned before: what does not violate anything any more is told
// still, with where it went.
func (b *board) violations(before []Violation) []Violation {
	violating := b.violating()
	var out []Violation
	for _, v := range before {
		i, _ := slices.BinarySearchFunc(b.tasks, v.Task, func(t Task, id cluster.TaskID) int {
			return cmp.Compare(t.Task, id)
		})
		if slices.Contains(violating, int32(i)) {
			continue
		}
		if v.To == "" {
			v.To, v.Message = b.tasks[i].Node, phrase(v.Node, v.Refusal)
		}
		out = append(out, v)
	}
	for _, i := range violating {
		t := &b.tasks[i]
		n, _ := b.find(t.Node)
		refusal, _ := b.refuses(&t.Placement, n, false)
		v := Violation{Task: t.Task, Owner: t.Owner, Node: t.Node, Refusal: refusal}
		switch {
		case t.Stay != "":
			v.Message = "it stays, as all tasks " + t.Stay + " do"
		case b.opts.KeepViolations:
			v.Message = "it stays: violations are not moved"
		case b.room() <= 0:
			v.Message, b.bounded = "it stays: there are enough moves", true
		default:
			v.To, v.Message = b.evade(i, n, refusal)
		}
		out = append(out, v)
	}
	slices.SortStableFunc(out, func(x, y Violation) int { return cmp.Compare(x.Task, y.Task) })
	return out
}

// violating returns the tasks that stand where they may not, in order. What is found out about a node holds for all
// tasks of a class.
func (b *board) violating() []int32 {
	type place struct {
		owner cluster.OwnerRef
		rev   uint64
		step  string
		node  string
	}
	known := map[place]bool{}
	var out []int32
	for i := range b.tasks {
		t := &b.tasks[i]
		n, found := b.find(t.Node)
		if !found || len(t.Placement.Constraints) == 0 && t.Placement.Pool == "" && len(b.nodes[n].Taints) == 0 {
			continue
		}
		parts, _ := t.Task.Parts()
		p := place{t.Owner, t.OwnerRev, parts.Step, t.Node}
		wrong, seen := known[p]
		if !seen {
			_, wrong = b.refuses(&t.Placement, n, false)
			known[p] = wrong
		}
		if wrong {
			out = append(out, int32(i))
		}
	}
	return out
}

// evade moves a task to the best node that takes it, and says which, or why none does.
func (b *board) evade(i, from int32, why cluster.Refusal) (to, message string) {
	t := &b.tasks[i]
	b.spent(len(b.nodes))
	r, ok := b.request(i, t.Pending)
	if !ok {
		return "", "it stays: no other node takes it now"
	}
	message = phrase(b.nodes[from].Name, why)
	b.note(b.carry(i, b.kinds[i], r), CauseViolation, 0, message)
	return r.Node, message
}

// likes returns what it is worth to be on each node, in units and never above 0: the wishes that it does not meet, and
// taints that are to be avoided. It is nil where there is nothing of that.
func (b *board) likes(p *cluster.Placement) []int64 {
	avoided := func(n *node) (count int) {
		for _, t := range n.Taints {
			if t.Effect == cluster.TaintAvoid && !tolerates(p, t) {
				count++
			}
		}
		return count
	}
	if len(p.Affinities) == 0 && !slices.ContainsFunc(b.nodes, func(n node) bool { return avoided(&n) > 0 }) {
		return nil
	}
	most := 0
	for _, a := range p.Affinities {
		most += max(0, a.Weight)
	}
	liked := make([]int64, len(b.nodes))
	for n := range b.nodes {
		met := 0
		for _, a := range p.Affinities {
			if scheduler.Matches(a.Constraint, &b.nodes[n].Node) {
				met += a.Weight
			}
		}
		met -= avoided(&b.nodes[n]) * cluster.MaxWeight
		liked[n] = int64(met-most) * (unit / cluster.MaxWeight)
	}
	return liked
}
