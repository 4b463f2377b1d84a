package rank

// SearchState is what searches keep about a task class from one of its tasks to the next. It holds until something is
// given back: UndoCount is then behind that of the overlay.
type SearchState struct {
	Visited bool // a search ran before
	// IsFull says that all nodes refused when FullAt nodes were touched. Usage only grows in a cycle, so it mostly
	// stays true.
	IsFull    bool
	FullAt    int
	UndoCount int // of the overlay, when IsFull and MinGroupTasks were found
	// MinGroupTasks is, by node class, a lower bound of the group's tasks on a feasible node; -1 if none is feasible.
	MinGroupTasks []int32
	Ranking       *Ranking
	// CandidateHeaps are by node class, -1 for one heap of all; nil until one is made.
	CandidateHeaps map[int32]*CandidateHeap
	Seen           int   // how many of the touched nodes the ranking contains
	RankedMinimums int64 // the spreads' minimums when the ranking was made
}
