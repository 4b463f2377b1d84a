package advice

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// ask returns the present blockers of the task on one node.
func (s *search) ask(p cluster.Pending, node string) []scheduler.Blocker {
	s.tries++
	return scheduler.Blockers(s.fleet, p, []string{node}, s.opts)[0]
}

// tryBucket tries the cheapest nodes of a bucket: those where the least is missing, and the first freeable ones.
func (s *search) tryBucket(p cluster.Pending, b *bucket, most int) {
	roomy, tried := 0, 0
	for i := range b.nodes {
		if n := &b.nodes[i]; n.isFreeable {
			roomy++
		}
	}
	t := &trial{search: s, task: &p, bucket: b, freeableNodes: roomy, maxChanges: most, opened: map[string]bool{}}
	left := maxNodesOfBucket
	for i := range b.nodes {
		n := &b.nodes[i]
		if tried >= maxNodesOfBucket && (!n.isFreeable || left == 0) {
			continue
		}
		if n.isFreeable && left > 0 {
			left--
		}
		tried++
		t.overcome(p, n.name, nil)
	}
}

// trial is the search of a bucket.
type trial struct {
	*search
	task          *cluster.Pending // as it waits, without changes
	bucket        *bucket
	freeableNodes int // number of freeable nodes in the bucket
	maxChanges    int
	opened        map[string]bool // combinations of kinds that opened the bucket
}

// overcome removes the blockers of a node one after the other, in every way. The changes in made are applied already.
func (t *trial) overcome(p cluster.Pending, node string, made []cluster.Remedy) {
	if t.tries >= maxTries {
		t.bounded = true
		return
	}
	blockers := t.ask(p, node)
	if len(blockers) == 0 {
		t.keepSmallest(made, node)
		return
	}
	if len(made) == t.maxChanges {
		return
	}
	for _, c := range t.remedies(&p, node, blockers) {
		next := p
		toTask(&c, &next)
		undo := toFleet(&c, t.fleet)
		t.overcome(next, node, append(slices.Clip(made), c))
		undo()
	}
}

// keepSmallest keeps changes that place the task if they are the smallest of their kinds.
func (t *trial) keepSmallest(made []cluster.Remedy, node string) {
	changes := slices.Clone(made)
	for i := range changes { // use the numbers of the unchanged task
		if c := &changes[i]; c.Kind == cluster.ChangeDrop || c.Kind == cluster.ChangeLoosen {
			was := c.Constraint
			if c.Was != nil {
				was = c.Was
			}
			c.Number = slices.IndexFunc(t.task.Placement.Constraints, func(k cluster.Constraint) bool {
				return sameConstraint(k, *was)
			})
		}
	}
	slices.SortStableFunc(changes, func(a, b cluster.Remedy) int { return rankOf(a.Kind) - rankOf(b.Kind) })
	key := keyOf(changes)
	f := &found{changes: changes, node: node, amount: sizeOf(changes, t.task)}
	old := t.best[key]
	if old != nil {
		f.nodes = old.nodes
	}
	if !t.opened[key] {
		t.opened[key] = true
		f.nodes += t.countOpened(changes)
	}
	if old == nil || compareSize(f, old) < 0 {
		t.best[key] = f
	} else {
		old.nodes = f.nodes
	}
}

// countOpened returns on how many nodes of the bucket similar changes would suffice.
func (t *trial) countOpened(changes []cluster.Remedy) int {
	nodes := len(t.bucket.nodes)
	for i := range changes {
		switch c := &changes[i]; c.Kind {
		case cluster.ChangeFree:
			nodes = min(nodes, t.freeableNodes)
		case cluster.ChangeLoosen: // adds the value of this node
			alike := 0
			for i := range t.bucket.nodes {
				if n, _, _ := t.fleet.Node(t.bucket.nodes[i].name); scheduler.Matches(*c.Constraint, &n) {
					alike++
				}
			}
			nodes = min(nodes, alike)
		default:
		}
	}
	return max(nodes, 1)
}

// opens reports whether a node takes the task after some changes.
func (s *search) opens(p cluster.Pending, node string, changes []cluster.Remedy) bool {
	undo := s.change(changes)
	defer undo()
	for i := range changes {
		toTask(&changes[i], &p)
	}
	return len(s.ask(p, node)) == 0
}

// change makes changes of the fleet until undo is called.
func (s *search) change(changes []cluster.Remedy) (undo func()) {
	var undos []func()
	for i := range changes {
		undos = append(undos, toFleet(&changes[i], s.fleet))
	}
	return func() {
		for _, undo := range slices.Backward(undos) {
			undo()
		}
	}
}

// dropSpare leaves out the changes without which the others suffice, the last ones first: a change for one blocker may
// remove an earlier blocker as well.
func dropSpare(changes []cluster.Remedy, suffice func(changes []cluster.Remedy) bool) []cluster.Remedy {
	for i := len(changes) - 1; i >= 0 && len(changes) > 1; i-- {
		if rest := slices.Delete(slices.Clone(changes), i, i+1); suffice(rest) {
			changes = rest
		}
	}
	return changes
}

// keyOf identifies the kinds and objects of changes, without nodes and amounts.
func keyOf(changes []cluster.Remedy) string {
	var b strings.Builder
	for i := range changes {
		c := &changes[i]
		b.WriteString(string(c.Kind))
		switch c.Kind {
		case cluster.ChangeDrop, cluster.ChangeLoosen, cluster.ChangeWish, cluster.ChangeDistinct, cluster.ChangeSkew,
			cluster.ChangeModel, cluster.ChangeDevices:
			fmt.Fprintf(&b, " %d", c.Number)
		case cluster.ChangeTolerate, cluster.ChangeUntaint:
			b.WriteString(" " + c.Taint.String())
		case cluster.ChangeUnreserve:
			b.WriteString(" " + c.Reservation)
		case cluster.ChangePort:
			fmt.Fprintf(&b, " %d", c.Port)
		case cluster.ChangeFree, cluster.ChangeLower: // which resources
			fmt.Fprint(&b, c.Demand.CPU > 0, c.Demand.Memory > 0, c.Demand.Disk > 0)
		default:
		}
		b.WriteByte('\n')
	}
	return b.String()
}
