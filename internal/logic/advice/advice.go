// Package advice finds changes that would let a waiting task in. It is a function of values:
//
//	Find(fleet, task, options) → the smallest changes after which Schedule places the task
//
// A suggestion is data: Apply makes its changes to a fleet and a task, and Schedule then places the task. So every
// suggestion suffices. None of its changes is spare: without it the others do not suffice.
//
// Suggestions are ordered by size, the most important measure first:
//
//  1. the number of changes
//  2. the kind of the largest change, in the order of cluster.ChangeKind. Two changes count as much as ending tasks: to
//     lower a demand to less than half, and to free what more than three tasks hold
//  3. for equal kinds the amount: thousandths of the task's demand, the number of tasks that end, or the new bound
//
// Find returns suggestions with the fewest changes that suffice, the smallest of each combination of kinds, the
// smallest first. To add a node comes last, and does not replace other suggestions. The changes of a suggestion concern
// one node, because a task runs on one. A suggestion also says on how many nodes similar changes would suffice.
//
// The search asks every node for all blockers of the task (scheduler.Blockers). Nodes with equal blockers form a
// bucket, and only the cheapest nodes of a bucket are tried. A trial makes changes for one blocker after the other and
// asks the node again, because a change may cause another blocker. The work is bounded; a result says if the bound was
// reached.
//
// # Cost
//
// The server that is asked computes suggestions from its own tables, on a fleet that it makes for the answer. It takes
// 20 ms on 1,000 nodes, and 0.2 s on 10,000 nodes with 100,000 tasks. The search is complete for single changes of the
// kinds that it knows (a test compares it with trying everything on small fleets), and for sets of up to four changes
// on one node. It leaves out changes of two nodes for one task. The view of a service shows suggestions for its first
// waiting task only.
//
// # Size
//
// A search has a method for each kind of change that it may suggest. All of them try changes on one fleet and share the
// bound of the work.
package advice

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

const (
	// DefaultMaxSuggestions is the default of Input.MaxSuggestions.
	DefaultMaxSuggestions = 5
	// maxChanges is the largest number of changes in a suggestion.
	maxChanges = 4
	// maxTries limits how often one Find asks nodes after a change.
	maxTries = 2000
	// maxNodesOfBucket is how many nodes of a bucket are tried, separately for freeable nodes and for all.
	maxNodesOfBucket = 6
)

// Input is the input of Find.
type Input struct {
	// Fleet is changed while Find runs, and restored when it returns. The caller must not use it meanwhile.
	Fleet *scheduler.Fleet
	// Task is the waiting task.
	Task cluster.Pending
	// Gang, unless empty, is all waiting members of the task's gang, with the task.
	Gang []cluster.Pending
	// Options are the scheduler's options.
	Options scheduler.Options
	// MaxSuggestions is the largest number of suggestions; the default is DefaultMaxSuggestions.
	MaxSuggestions int
}

// Result is what Find found.
type Result struct {
	// Suggestions are ordered, the smallest first. There are none if the task is placed without changes, or if no known
	// kind of change suffices.
	Suggestions []cluster.Suggestion
	// Placed says that the task is placed without changes.
	Placed bool
	// Bounded says that the search ended before it had tried all. There may be more suggestions, and smaller ones with
	// several changes.
	Bounded bool
}

// Find finds the smallest changes that would place the task. If no single change suffices it tries pairs, and so on up
// to maxChanges. For a member of a gang it finds what would place the whole gang. If that fails, it advises on the
// first member without a place; Placed and Size of the suggestion then say how many members would be placed.
func Find(in Input) Result {
	if in.MaxSuggestions <= 0 {
		in.MaxSuggestions = DefaultMaxSuggestions
	}
	s := &search{
		fleet: in.Fleet, opts: in.Options, most: in.MaxSuggestions, own: ownerOf(in.Task.Task),
		offers: offersOf(in.Fleet, &in.Task),
	}
	in.Task.Queue = "" // a promise changes no answer, and costs a look at all running tasks
	if len(in.Gang) > 0 && in.Task.Gang != "" {
		return s.gang(in.Gang)
	}
	in.Task.Gang = ""
	return s.find(in.Task)
}

// search is the state of one Find. Each kind of change that it may suggest is a method.
type search struct {
	fleet *scheduler.Fleet
	opts  scheduler.Options
	most  int

	tries   int
	bounded bool
	own     string                // the task's owner
	offers  offers                // what the text of a new node need not name
	byNode  map[string]*nodeUsage // nil until first used
	// best is the smallest suggestion so far of each combination of kinds.
	best map[string]*found
}

// found is a suggestion with its size.
type found struct {
	changes []cluster.Remedy
	node    string // that takes the task then
	nodes   int
	amount  amount
}

// find finds the smallest changes for a task without a gang.
func (s *search) find(p cluster.Pending) (r Result) {
	s.best = map[string]*found{}
	var base []cluster.Remedy
	if p.Priority <= 0 {
		base = []cluster.Remedy{released()}
		p.Priority = 1
	}
	one := []cluster.Pending{p}
	limits, undo := s.raiseLimits(one, 1)
	defer undo()
	p, base = one[0], append(base, limits...)
	if s.places(p) {
		if len(base) == 0 {
			return Result{Placed: true}
		}
		return Result{Suggestions: []cluster.Suggestion{suggestionOf(&found{changes: base})}}
	}
	buckets := s.makeBuckets(p)
	for changes := 1; changes <= maxChanges && len(s.best) == 0; changes++ {
		for i := range buckets {
			if b := &buckets[i]; b.least <= changes {
				s.tryBucket(p, b, changes)
			}
		}
	}
	for _, f := range s.best { // order-free: each by itself
		f.changes = dropSpare(f.changes, func(rest []cluster.Remedy) bool { return s.opens(p, f.node, rest) })
		f.amount = sizeOf(f.changes, &p)
	}
	list := s.suggestions(base)
	if m := s.machine(&p); m != nil {
		add := &found{changes: append(slices.Clip(base), s.added(m, 1)), nodes: 1}
		list = append(list[:min(len(list), s.most-1)], suggestionOf(add))
	}
	return Result{Suggestions: list, Bounded: s.bounded}
}

// places reports whether Schedule would place the task.
func (s *search) places(p cluster.Pending) bool {
	s.tries++
	return len(scheduler.Schedule(s.fleet, []cluster.Pending{p}, s.opts).Placements) == 1
}

// suggestions returns the suggestions with the fewest changes, the smallest first, each with the changes of base in
// front.
func (s *search) suggestions(base []cluster.Remedy) []cluster.Suggestion {
	list := make([]*found, 0, len(s.best))
	for key, f := range s.best { // order-free: sorted next
		looser := s.best[strings.Replace(key, string(cluster.ChangeDrop), string(cluster.ChangeLoosen), 1)]
		if looser != nil && looser != f && looser.nodes >= f.nodes {
			continue // adding one more value opens as many nodes
		}
		f.changes = slices.Concat(base, f.changes)
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b *found) int {
		return cmp.Or(cmp.Compare(len(a.changes), len(b.changes)), compareSize(a, b),
			slices.CompareFunc(a.changes, b.changes, compareTexts))
	})
	known := map[string]bool{}
	list = slices.DeleteFunc(list, func(f *found) bool { // spare changes were dropped, so keys may have changed
		key := keyOf(f.changes)
		again := known[key]
		known[key] = true
		return again || len(f.changes) > len(list[0].changes)
	})
	var out []cluster.Suggestion
	for _, f := range list[:min(len(list), s.most)] {
		out = append(out, suggestionOf(f))
	}
	return out
}

func compareTexts(a, b cluster.Remedy) int { return strings.Compare(a.Text, b.Text) }

// bucket is nodes with equal blockers, amounts aside.
type bucket struct {
	least int // lower bound of the number of changes
	nodes []blockedNode
}

// blockedNode is a node with its blockers of the task.
type blockedNode struct {
	name       string
	blockers   []scheduler.Blocker
	short      cluster.Demand // the room that is missing
	amount     amount         // the size of what is missing
	isFreeable bool           // tasks of other owners hold as much as is short
}

// makeBuckets asks all nodes, and groups them by their blockers.
func (s *search) makeBuckets(p cluster.Pending) []bucket {
	names := s.fleet.Nodes()
	index := map[string]int{}
	var all []bucket
	for i, blockers := range scheduler.Blockers(s.fleet, p, names, s.opts) {
		n := s.examine(&p, names[i], blockers)
		key, least, open := signature(blockers)
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
		slices.SortStableFunc(all[i].nodes, func(a, b blockedNode) int { return a.amount.compare(b.amount) })
	}
	slices.SortStableFunc(all, func(a, b bucket) int { return cmp.Compare(a.least, b.least) })
	return all
}

// examine computes from a node's blockers how much is missing.
func (s *search) examine(p *cluster.Pending, name string, blockers []scheduler.Blocker) blockedNode {
	n := blockedNode{name: name, blockers: blockers, short: shortOf(blockers)}
	n.isFreeable = n.short != (cluster.Demand{}) && holds(s.heldByOthers(name), n.short)
	n.amount = amountOf(n.short, p.Demand)
	for _, h := range blockers {
		n.amount.bound += h.Least
	}
	return n
}

// shortOf returns the room that a node lacks.
func shortOf(blockers []scheduler.Blocker) (d cluster.Demand) {
	for _, h := range blockers {
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

// signature returns the blockers of a node without amounts as a key, and a lower bound of the number of changes. open
// is false if a blocker cannot be removed.
func signature(blockers []scheduler.Blocker) (key string, least int, open bool) {
	var parts []string
	occupied, room, cordoned := false, false, false
	for _, h := range blockers {
		part := string(h.Code) + " " + h.Detail
		switch h.Code {
		case cluster.ReasonShortCPU, cluster.ReasonShortMemory, cluster.ReasonShortDisk:
			occupied, room = true, true
		case cluster.ReasonPort, cluster.ReasonPortsSpent, cluster.ReasonDevice:
			occupied = true
		case cluster.ReasonRelation: // the other tasks may end
			occupied = true
		case cluster.ReasonConstraint:
			if h.Number < 0 { // the task is restricted to another node
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
			part += " " + strconv.Itoa(h.Port)
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
