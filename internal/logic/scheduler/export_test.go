package scheduler

// FirstPort is where the search for a task's ports begins.
var FirstPort = firstPort

// WithRanking returns options with which every class of tasks finds its nodes through a ranking, or every one through the trees.
func WithRanking(always bool) Options {
	if always {
		return Options{ranking: 1}
	}
	return Options{ranking: -1}
}
