// Package advice says what would let a waiting task in. It is a function of values:
//
//	Find(fleet, task, options) → the smallest changes after which Schedule places the task
//
// A suggestion is data: Apply makes its changes to a fleet and a task, and the task is placed then. So nothing is
// suggested that would not do.
//
// How small a suggestion is, from the most to the least important: how many changes it needs; the kind of the
// weightiest of them, in the order in which cluster.ChangeKind lists them, where to ask for less than half of what it
// asks for, and to free what more than three tasks hold, count as to end tasks; for the same kinds by how much, in
// thousandths of what the task asks for, the number of tasks that end, or the new bound. Find returns suggestions of
// the fewest changes that do, of each combination of kinds the smallest one, the smallest first; to add a node comes
// last and does not keep others from being looked for. The changes of a suggestion are about one node, as a task runs
// on one: how many nodes a like change would open is told beside it.
//
// The search asks every node for all that stands against the task (scheduler.Hurdles). Nodes against which the same
// stands are a bucket, and of each bucket only the cheapest are tried: the changes are made, one hurdle after the
// other, and the node is asked again, as a change may bring another hurdle up. The work is bounded; a result says so
// where the bound was met.
package advice

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

const (
	// DefaultMost is how many suggestions are returned at most, unless the input says more.
	DefaultMost = 5
	// mostChanges is how many changes a suggestion has at most.
	mostChanges = 4
	// mostTries bounds how often a node is asked after a change, in one Find.
	mostTries = 2000
	// mostOfBucket is how many nodes of a bucket are tried, for each of the ways in which they are ordered.
	mostOfBucket = 6
)

// Input is what Find looks at.
type Input struct {
	// Fleet is changed while Find runs, and is as it was when it returns. Nobody else may use it meanwhile.
	Fleet *scheduler.Fleet
	// Task is the one that waits.
	Task cluster.Pending
	// Gang, unless empty, are all members of the task's gang that wait, the task among them.
	Gang []cluster.Pending
	// Options are those of the scheduler.
	Options scheduler.Options
	// Most is how many suggestions are wanted; default DefaultMost.
	Most int
}

// Result is what Find found.
type Result struct {
	// Suggestions are the smallest first. There are none for a task that is placed as things are, and where no change
	// of the known kinds would do.
	Suggestions []cluster.Suggestion
	// Placed says that the task is placed as things are.
	Placed bool
	// Bounded says that the search ended before it had tried all: there may be more, and smaller ones of more than one
	// change.
	Bounded bool
}

// Find looks for the smallest changes that would place the task. Where none of one kind alone is enough it looks for
// pairs, and so on up to four. A member of a gang is advised on what would place the whole gang; where that is not
// found, on what the first of those that find no place lacks, which the suggestion tells by Placed and Size.
func Find(in Input) Result {
	if in.Most <= 0 {
		in.Most = DefaultMost
	}
	s := &search{fleet: in.Fleet, opts: in.Options, most: in.Most, own: ownerOf(in.Task.Task)}
	if len(in.Gang) > 0 && in.Task.Gang != "" {
		return s.gang(in.Gang)
	}
	in.Task.Gang = ""
	return s.find(in.Task)
}

// search is the state of one Find.
type search struct {
	fleet *scheduler.Fleet
	opts  scheduler.Options
	most  int

	tries   int
	bounded bool
	own     string               // the task's owner
	byNode  map[string]*standing // made when it is first asked for
	// best are the smallest suggestions so far, by their kinds.
	best map[string]*found
}

// found is a suggestion with its size.
type found struct {
	changes []cluster.Remedy
	nodes   int
	amount  amount
}

// find looks for the smallest changes for a task of no gang.
func (s *search) find(p cluster.Pending) (r Result) {
	s.best = map[string]*found{}
	var base []cluster.Remedy
	if p.Priority <= 0 {
		base = []cluster.Remedy{released()}
		p.Priority = 1
		if s.places(p) {
			return Result{Suggestions: []cluster.Suggestion{told(&found{changes: base})}}
		}
	} else if s.places(p) {
		return Result{Placed: true}
	}
	buckets := s.buckets(p)
	for changes := 1; changes <= mostChanges && len(s.best) == 0; changes++ {
		for i := range buckets {
			if b := &buckets[i]; b.least <= changes {
				s.tryBucket(p, b, changes)
			}
		}
	}
	list := s.suggestions(base)
	if m := s.machine(&p); m != nil {
		add := &found{changes: append(slices.Clip(base), added(m, 1)), nodes: 1}
		list = append(list[:min(len(list), s.most-1)], told(add))
	}
	return Result{Suggestions: list, Bounded: s.bounded}
}

// places reports whether the task would be placed.
func (s *search) places(p cluster.Pending) bool {
	s.tries++
	return len(scheduler.Schedule(s.fleet, []cluster.Pending{p}, s.opts).Placements) == 1
}

// suggestions returns what was found, the smallest first, behind what has to be done anyway.
func (s *search) suggestions(base []cluster.Remedy) []cluster.Suggestion {
	list := make([]*found, 0, len(s.best))
	for key, f := range s.best { // order-free: sorted next
		looser := s.best[strings.Replace(key, string(cluster.ChangeDrop), string(cluster.ChangeLoosen), 1)]
		if looser != nil && looser != f && looser.nodes >= f.nodes {
			continue // to let one more value in opens as many nodes
		}
		f.changes = slices.Concat(base, f.changes)
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b *found) int {
		return cmp.Or(cmp.Compare(len(a.changes), len(b.changes)), compareSize(a, b),
			strings.Compare(a.changes[0].Text, b.changes[0].Text))
	})
	var out []cluster.Suggestion
	for _, f := range list[:min(len(list), s.most)] {
		out = append(out, told(f))
	}
	return out
}

// bucket is nodes against which the same stands, but for the amounts.
type bucket struct {
	least int // changes that are needed at least
	nodes []seen
}

// seen is a node with what stands against the task there.
type seen struct {
	name    string
	hurdles []scheduler.Hurdle
	short   cluster.Demand // what is not free
	amount  amount         // how much is missing
	roomy   bool           // others hold as much as is short
}

// buckets asks all nodes.
func (s *search) buckets(p cluster.Pending) []bucket {
	names := s.fleet.Nodes()
	index := map[string]int{}
	var all []bucket
	for i, hurdles := range scheduler.Hurdles(s.fleet, p, names, s.opts) {
		n := s.see(&p, names[i], hurdles)
		key, least, open := signature(&p, hurdles)
		if !open {
			continue
		}
		at, known := index[key]
		if !known {
			at = len(all)
			index[key] = at
			all = append(all, bucket{least: least})
		}
		all[at].nodes = append(all[at].nodes, n)
	}
	for i := range all {
		slices.SortStableFunc(all[i].nodes, func(a, b seen) int { return a.amount.compare(b.amount) })
	}
	slices.SortStableFunc(all, func(a, b bucket) int { return cmp.Compare(a.least, b.least) })
	return all
}

// see looks at a node's hurdles for how much is missing.
func (s *search) see(p *cluster.Pending, name string, hurdles []scheduler.Hurdle) seen {
	n := seen{name: name, hurdles: hurdles, short: shortOf(hurdles)}
	n.roomy = n.short != (cluster.Demand{}) && holds(s.held(name), n.short)
	n.amount = amountOf(n.short, p.Demand)
	for _, h := range hurdles {
		n.amount.bound += h.Least
	}
	return n
}

// shortOf returns what of a node's room is short.
func shortOf(hurdles []scheduler.Hurdle) (d cluster.Demand) {
	for _, h := range hurdles {
		switch h.Code {
		case cluster.ReasonShortCPU:
			d.CPU = cluster.MilliCPU(h.Short)
		case cluster.ReasonShortMemory:
			d.Memory = cluster.Bytes(h.Short)
		case cluster.ReasonShortDisk:
			d.Disk = cluster.Bytes(h.Short)
		default:
		}
	}
	return d
}

// signature says what stands against the task on a node, but for the amounts, and how many changes are needed at least.
// It is not open where a hurdle is there that nothing moves.
func signature(p *cluster.Pending, hurdles []scheduler.Hurdle) (key string, least int, open bool) {
	var parts []string
	occupied, room, cordoned := false, false, false
	for _, h := range hurdles {
		part := string(h.Code) + " " + h.Detail
		switch h.Code {
		case cluster.ReasonShortCPU, cluster.ReasonShortMemory, cluster.ReasonShortDisk:
			occupied, room = true, true
		case cluster.ReasonPort, cluster.ReasonPortsSpent, cluster.ReasonDevice:
			occupied = true
		case cluster.ReasonRelation: // the others may end
			occupied = true
		case cluster.ReasonConstraint:
			if h.Number < 0 { // the task is for another node
				return "", 0, false
			}
			least++
		case cluster.ReasonNodeNotReady, cluster.ReasonCordoned:
			if !cordoned {
				cordoned = true
				least++
			}
		case cluster.ReasonNoNodes, cluster.ReasonVolume:
			return "", 0, false
		default:
			least++
		}
		if h.Port > 0 {
			part += " " + portText(p, h.Port)
		}
		parts = append(parts, part)
	}
	if occupied {
		least++
	}
	if room {
		parts = append(parts, "room")
	}
	return strings.Join(parts, "\n"), least, true
}
