package scheduler

import "github.com/berthd/berth/internal/logic/packing"

// FirstPort is where the search for a task's ports begins.
var FirstPort = firstPort

// Of returns the worth of one type of devices, and the models that have numbers in it; nil if nothing is known of them.
func (w *Worth) Of(kind string) (*packing.Worth, []string) {
	i := w.find(kind)
	if i < 0 {
		return nil, nil
	}
	return w.kinds[i].worth, w.kinds[i].models
}

// TurnOver makes a label of the nodes fine, or coarse if it is fine, until one of its nodes is set again. A label that
// no node has stays as it is.
func (f *Fleet) TurnOver(key string) {
	if f.catalog.labels[key] != nil {
		f.turnOver([]string{key})
	}
}

// WithRanking returns options with which every class of tasks finds its nodes through a ranking, or every one through
// the trees.
func WithRanking(always bool) Options {
	if always {
		return Options{ranking: 1}
	}
	return Options{ranking: -1}
}
