package cycle

import (
	"github.com/berthd/berth/internal/logic/scheduler/evaluation"
	"github.com/berthd/berth/internal/logic/scheduler/feasibility"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// Searcher finds the best node for a task of a class. It has two ways with equal results: the trees of node classes,
// and a ranking of all nodes.
type Searcher struct {
	nodes    *fleet.Overlay
	preparer *taskclass.Preparer
	eval     *evaluation.Evaluator
	way      taskclass.SearchWay
	trees    treeFinder
	rankings rankings
	heaps    deviceSearcher
}

func newSearcher(nodes *fleet.Overlay, r *taskclass.Preparer, e *evaluation.Evaluator,
	way taskclass.SearchWay,
) Searcher {
	return Searcher{
		nodes: nodes, preparer: r, eval: e, way: way, trees: treeFinder{nodes: nodes, eval: e},
		rankings: rankings{nodes: nodes, eval: e}, heaps: deviceSearcher{nodes: nodes, eval: e},
	}
}

// Best returns the best node for a task of the class, or -1 if all refuse it.
//
// It searches in one of two ways, with equal results. A small class searches the trees: most nodes have the order of
// their tree, and the few with individual scores are judged one by one. A large class ranks every node once and keeps
// the ranking: by its own placements most nodes get individual scores.
func (s *Searcher) Best(c *taskclass.Class) int32 {
	s.forgetStale(c)
	if c.Found.IsFull && (!c.Revives || c.Found.FullAt == len(s.nodes.Touched)) {
		return -1
	}
	s.preparer.Prepare(c)
	var best int32
	if slots, few := s.NamedNodes(c); few {
		best = s.eval.BestOf(c, slots)
	} else if s.isFullByTrees(c) {
		best = -1
	} else {
		if !c.Found.Visited && s.prefersRanking(c) {
			s.preparer.PrepareRanking(c)
			if !c.IsDynamic && !c.Joins {
				c.Found.Ranking = s.rankings.rank(c)
			}
		}
		if c.Found.Ranking != nil {
			s.rankings.refresh(c)
			best = c.Found.Ranking.Best()
		} else {
			best = s.ByTrees(c)
		}
		c.Found.Visited = true
	}
	if c.Found.IsFull = best < 0; c.Found.IsFull {
		c.Found.FullAt = len(s.nodes.Touched)
	}
	return best
}

// isFullByTrees reports whether no node is feasible for a class that would get a ranking now. A search of the trees is
// little work beside a ranking of all nodes, which a class that only waits does not need.
func (s *Searcher) isFullByTrees(c *taskclass.Class) bool {
	return s.way == taskclass.SearchByCost && !c.Found.Visited && !c.ScansAll && len(c.Devices.Requests) == 0 &&
		s.prefersRanking(c) && s.ByTrees(c) < 0
}

// prefersRanking reports whether a ranking is less work than a tree search for each task of the class. A tree search
// visits each node class, and may pass all nodes with tasks of the group before it finds one without. A ranking
// evaluates each node once.
func (s *Searcher) prefersRanking(c *taskclass.Class) bool {
	if s.way != taskclass.SearchByCost {
		return s.way == taskclass.SearchByRanking
	}
	if c.ScansAll {
		return c.Left > 1
	}
	near := 0
	if c.Group.IsCounted {
		near = c.Group.MaxNodes() + c.Left
	}
	return c.Left > 1 && c.Left*(2*near+len(c.Filter.Feasible)+16) > s.nodes.Fleet.Names.Count
}

// ByTrees returns the best node by the trees of node classes, or -1. The class must be prepared.
func (s *Searcher) ByTrees(c *taskclass.Class) int32 { return s.trees.best(c, &s.heaps) }

// maxNamedNodes is the largest number of nodes that a search judges one by one because a constraint names their values.
const maxNamedNodes = 256

// NamedNodes returns the only nodes that can be feasible, if the task's demands name them; ok is false if they do not.
func (s *Searcher) NamedNodes(c *taskclass.Class) (slots []int32, ok bool) {
	if c.Task.OnlyNode != "" {
		return s.nodes.Slots([]string{c.Task.OnlyNode}), true
	}
	for _, constraint := range c.Filter.PerNode {
		if values, few := feasibility.NamedValues(constraint); few {
			if slots := s.nodes.NodesWith(constraint.Attribute, values); len(slots) <= maxNamedNodes {
				return slots, true
			}
		}
	}
	for i := range c.Relations {
		if t := &c.Relations[i]; t.Required && !t.Away && t.Table == nil && !t.Met(0) {
			for slot := range t.Nodes { // order-free: the best is taken
				slots = append(slots, slot)
			}
			return slots, true
		}
	}
	return nil, false
}

// forgetStale drops what is no longer valid because something was given back.
func (s *Searcher) forgetStale(c *taskclass.Class) {
	if c.Found.UndoCount == s.nodes.UndoCount {
		return
	}
	c.Found.UndoCount, c.Found.IsFull = s.nodes.UndoCount, false
	c.Found.MinGroupTasks, c.Found.CandidateHeaps = nil, nil
	if c.Found.Ranking != nil {
		s.rankings.spare = append(s.rankings.spare, c.Found.Ranking)
		c.Found.Ranking, c.Found.Visited = nil, false
	}
}

// release keeps what a decided class no longer needs for reuse.
func (s *Searcher) release(c *taskclass.Class) {
	if (c.Left == 0 || c.Found.IsFull) && c.Found.Ranking != nil {
		s.rankings.spare = append(s.rankings.spare, c.Found.Ranking)
		c.Found.Ranking = nil
	}
}
