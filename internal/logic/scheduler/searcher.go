package scheduler

// searcher finds the best node for a task of a class. It has two ways with equal results: the trees of node classes,
// and a ranking of all nodes.
type searcher struct {
	nodes    *overlay
	preparer *preparer
	eval     *evaluator
	way      SearchWay
	trees    treeFinder
	rankings rankings
	heaps    deviceSearcher
}

func newSearcher(nodes *overlay, r *preparer, e *evaluator, way SearchWay) searcher {
	return searcher{
		nodes: nodes, preparer: r, eval: e, way: way, trees: treeFinder{nodes: nodes, eval: e},
		rankings: rankings{nodes: nodes, eval: e}, heaps: deviceSearcher{nodes: nodes, eval: e},
	}
}

// best returns the best node for a task of the class, or -1 if all refuse it.
//
// It searches in one of two ways, with equal results. A small class searches the trees: most nodes have the order of
// their tree, and the few with individual scores are judged one by one. A large class ranks every node once and keeps
// the ranking: by its own placements most nodes get individual scores.
func (s *searcher) best(c *taskClass) int32 {
	s.forgetStale(c)
	if c.found.isFull && (!c.revives || c.found.fullAt == len(s.nodes.touched)) {
		return -1
	}
	s.preparer.prepare(c)
	var best int32
	if slots, few := s.namedNodes(c); few {
		best = s.eval.bestOf(c, slots)
	} else {
		if !c.found.visited && s.prefersRanking(c) {
			s.preparer.prepareRanking(c)
			if !c.isDynamic && !c.joins {
				c.found.ranking = s.rankings.rank(c)
			}
		}
		if c.found.ranking != nil {
			s.rankings.refresh(c)
			best = c.found.ranking.best()
		} else {
			best = s.byTrees(c)
		}
		c.found.visited = true
	}
	if c.found.isFull = best < 0; c.found.isFull {
		c.found.fullAt = len(s.nodes.touched)
	}
	return best
}

// prefersRanking reports whether a ranking is less work than a tree search for each task of the class. A tree search
// looks at each node class, and may pass all nodes with tasks of the group before it finds one without. A ranking looks
// at each node once.
func (s *searcher) prefersRanking(c *taskClass) bool {
	if s.way != SearchByCost {
		return s.way == SearchByRanking
	}
	if c.scansAll {
		return c.left > 1
	}
	near := 0
	if c.group.isCounted {
		near = c.group.maxNodes() + c.left
	}
	return c.left > 1 && c.left*(2*near+len(c.filter.feasible)+16) > s.nodes.fleet.names.count
}

// byTrees returns the best node by the trees of node classes, or -1. The class must be prepared.
func (s *searcher) byTrees(c *taskClass) int32 { return s.trees.best(c, &s.heaps) }

// maxNamedNodes is the largest number of nodes that a search judges one by one because a constraint names their values.
const maxNamedNodes = 256

// namedNodes returns the only nodes that can be feasible, if the task's demands name them; ok is false if they do not.
func (s *searcher) namedNodes(c *taskClass) (slots []int32, ok bool) {
	if c.task.OnlyNode != "" {
		return s.nodes.slots([]string{c.task.OnlyNode}), true
	}
	for _, constraint := range c.filter.perNode {
		if values, few := namedValues(constraint); few {
			if slots := s.nodes.nodesWith(constraint.Attribute, values); len(slots) <= maxNamedNodes {
				return slots, true
			}
		}
	}
	for i := range c.relations {
		if t := &c.relations[i]; t.Required && !t.Away && t.table == nil && !t.met(0) {
			for slot := range t.nodes { // order-free: the best is taken
				slots = append(slots, slot)
			}
			return slots, true
		}
	}
	return nil, false
}

// forgetStale drops what is no longer valid because something was given back.
func (s *searcher) forgetStale(c *taskClass) {
	if c.found.undoCount == s.nodes.undoCount {
		return
	}
	c.found.undoCount, c.found.isFull = s.nodes.undoCount, false
	c.found.minGroupTasks, c.found.candidateHeaps = nil, nil
	if c.found.ranking != nil {
		s.rankings.spare = append(s.rankings.spare, c.found.ranking)
		c.found.ranking, c.found.visited = nil, false
	}
}

// release keeps what a decided class no longer needs for reuse.
func (s *searcher) release(c *taskClass) {
	if (c.left == 0 || c.found.isFull) && c.found.ranking != nil {
		s.rankings.spare = append(s.rankings.spare, c.found.ranking)
		c.found.ranking = nil
	}
}
