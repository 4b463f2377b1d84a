package advice

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// ask asks one node for all that stands against the task now.
func (s *search) ask(p cluster.Pending, node string) []scheduler.Hurdle {
	s.tries++
	return scheduler.Hurdles(s.fleet, p, []string{node}, s.opts)[0]
}

// tryBucket tries the cheapest nodes of a bucket: those where the least is missing, and those of them where others hold
// as much.
func (s *search) tryBucket(p cluster.Pending, b *bucket, most int) {
	roomy, tried := 0, 0
	for i := range b.nodes {
		if n := &b.nodes[i]; n.roomy {
			roomy++
		}
	}
	t := &trial{search: s, task: &p, bucket: b, roomy: roomy, most: most, opened: map[string]bool{}}
	left := mostOfBucket
	for i := range b.nodes {
		n := &b.nodes[i]
		if tried >= mostOfBucket && (!n.roomy || left == 0) {
			continue
		}
		if n.roomy && left > 0 {
			left--
		}
		tried++
		t.descend(p, n.name, nil)
	}
}

// trial is the search of a bucket.
type trial struct {
	*search
	task   *cluster.Pending // as it waits
	bucket *bucket
	roomy  int // nodes of the bucket where others hold as much as is short
	most   int
	opened map[string]bool // combinations of kinds that open the bucket
}

// descend overcomes the hurdles of a node one after the other, in every way, with the changes that were made already.
func (t *trial) descend(p cluster.Pending, node string, made []cluster.Remedy) {
	if t.tries >= mostTries {
		t.bounded = true
		return
	}
	hurdles := t.ask(p, node)
	if len(hurdles) == 0 {
		t.note(made, node)
		return
	}
	if len(made) == t.most {
		return
	}
	for _, c := range t.ways(&p, node, hurdles) {
		next := p
		toTask(&c, &next)
		undo := toFleet(&c, t.fleet)
		t.descend(next, node, append(slices.Clip(made), c))
		undo()
	}
}

// note keeps changes that place the task, if they are the smallest of their kinds.
func (t *trial) note(made []cluster.Remedy, node string) {
	changes := slices.Clone(made)
	for i := range changes { // numbers are those of the task as it waits, whatever was dropped before
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
	f := &found{changes: changes, amount: sizeOf(changes, t.task)}
	old := t.best[key]
	if old != nil {
		f.nodes = old.nodes
	}
	if !t.opened[key] {
		t.opened[key] = true
		f.nodes += t.opens(changes, node)
	}
	if old == nil || compareSize(f, old) < 0 {
		t.best[key] = f
	} else {
		old.nodes = f.nodes
	}
}

// opens returns on how many nodes of the bucket the like would do.
func (t *trial) opens(changes []cluster.Remedy, node string) int {
	nodes := len(t.bucket.nodes)
	for i := range changes {
		switch c := &changes[i]; c.Kind {
		case cluster.ChangeFree:
			nodes = min(nodes, t.roomy)
		case cluster.ChangeLoosen: // to a value of this node
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
	_ = node
	return max(nodes, 1)
}

// keyOf says what changes are of, but for the node and the amounts.
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
		case cluster.ChangeFree, cluster.ChangeLower: // of which resources
			fmt.Fprint(&b, c.Demand.CPU > 0, c.Demand.Memory > 0, c.Demand.Disk > 0)
		default:
		}
		b.WriteByte('\n')
	}
	return b.String()
}
