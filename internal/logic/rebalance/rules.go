package rebalance

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// staticRefusal returns why a placement does not allow a node, whatever runs there: constraints, pool or taints. With
// fresh false the task runs there already, and only taints with the effect evict count.
func (b *state) staticRefusal(p *cluster.Placement, n int32, fresh bool) (cluster.Refusal, bool) {
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

// refusalText returns what a node lacks for a task, as text.
func refusalText(node string, r cluster.Refusal) string {
	if r.Code == cluster.ReasonPool {
		return fmt.Sprintf("node %s is not in pool %s", node, r.Detail)
	}
	if r.Code == cluster.ReasonTaint {
		return fmt.Sprintf("node %s has the taint %s", node, r.Detail)
	}
	return fmt.Sprintf("node %s does not meet %s", node, r.Detail)
}

// moveViolations finds the tasks on nodes that they must not use, and moves the movable ones to the scheduler's choice.
// It takes its last result: violations that are solved stay listed, with their new node.
func (b *state) moveViolations(before []Violation) []Violation {
	violating := b.findViolating()
	var out []Violation
	for _, v := range before {
		i, _ := slices.BinarySearchFunc(b.tasks, v.Task, func(t Task, id cluster.TaskID) int {
			return cmp.Compare(t.Task, id)
		})
		if slices.Contains(violating, int32(i)) {
			continue
		}
		if v.To == "" {
			v.To, v.Message = b.tasks[i].Node, refusalText(v.Node, v.Refusal)
		}
		out = append(out, v)
	}
	for _, i := range violating {
		t := &b.tasks[i]
		n, _ := b.find(t.Node)
		refusal, _ := b.staticRefusal(&t.Placement, n, false)
		v := Violation{Task: t.Task, Owner: t.Owner, Node: t.Node, Refusal: refusal}
		switch {
		case t.Unmovable != "":
			v.Message = "not moved: tasks " + t.Unmovable + " do"
		case b.opts.KeepViolations:
			v.Message = "not moved: violations are excluded"
		case b.movesLeft() <= 0:
			v.Message, b.bounded = "not moved: the maximum of moves is reached", true
		default:
			v.To, v.Message = b.moveViolating(i, n, refusal)
		}
		out = append(out, v)
	}
	slices.SortStableFunc(out, func(x, y Violation) int { return cmp.Compare(x.Task, y.Task) })
	return out
}

// findViolating returns the tasks on nodes that they must not use, in order. Tasks of one owner, step and node share
// the check.
func (b *state) findViolating() []int32 {
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
			_, wrong = b.staticRefusal(&t.Placement, n, false)
			known[p] = wrong
		}
		if wrong {
			out = append(out, int32(i))
		}
	}
	return out
}

// moveViolating moves a task to the best node that takes it. It returns that node, or why no node does.
func (b *state) moveViolating(i, from int32, why cluster.Refusal) (to, message string) {
	t := &b.tasks[i]
	b.spendWork(len(b.nodes))
	r, ok := b.request(i, t.Pending)
	if !ok {
		return "", "not moved: no other node is feasible"
	}
	message = refusalText(b.nodes[from].Name, why)
	b.addMove(b.applyMove(i, b.classOf[i], r), cluster.CauseViolation, 0, message)
	return r.Node, message
}

// preferenceValues returns the value of each node to a placement, in units and at most 0: unmet preferences, and taints
// to avoid. It is nil if nothing distinguishes nodes.
func (b *state) preferenceValues(p *cluster.Placement) []int64 {
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
