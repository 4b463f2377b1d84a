package scheduler

// searchState is what searches keep about a task class from one of its tasks to the next. It holds until something is
// given back: undoCount is then behind that of the overlay.
type searchState struct {
	visited bool // a search ran before
	// isFull says that all nodes refused when fullAt nodes were touched. Usage only grows in a cycle, so it mostly
	// stays true.
	isFull    bool
	fullAt    int
	undoCount int // of the overlay, when isFull and minGroupTasks were found
	// minGroupTasks is, by node class, a lower bound of the group's tasks on a feasible node; -1 if none is feasible.
	minGroupTasks []int32
	ranking       *ranking
	// candidateHeaps are by node class, -1 for one heap of all; nil until one is made.
	candidateHeaps map[int32]*candidateHeap
	seen           int   // how much of overlay.touched the ranking contains
	rankedMinimums int64 // the spreads' minimums when the ranking was made
}
