package scheduler

import "github.com/berthd/berth/internal/logic/packing"

// FirstPort is where the search for a task's ports begins.
var FirstPort = firstPort

// Of returns the value model of one device type, and the models with numbers in it; nil if the type is unknown.
func (w *ValueModel) Of(kind string) (*packing.ValueModel, []string) {
	i := w.find(kind)
	if i < 0 {
		return nil, nil
	}
	return w.ofType(i).values, w.ofType(i).models
}

// SwitchFineLabel makes a label fine, or coarse if it is fine, until one of its nodes is set again. A label without
// nodes stays as it is.
func (f *Fleet) SwitchFineLabel(key string) {
	f.switchFineLabels([]string{key})
}

// WithRanking returns options that force every task class to use a ranking, or to use the trees.
func WithRanking(always bool) Options {
	if always {
		return Options{Search: SearchByRanking}
	}
	return Options{Search: SearchByTrees}
}
