package controlplane

import (
	"sync/atomic"

	"github.com/berthd/berth/internal/cluster"
)

// reasons is why tasks wait: soft state that the leader replaces as a whole after each decision.
type reasons struct {
	tasks atomic.Pointer[map[cluster.TaskID]cluster.Waiting]
}

func (r *reasons) set(waiting []cluster.Waiting) {
	tasks := make(map[cluster.TaskID]cluster.Waiting, len(waiting))
	for _, w := range waiting {
		tasks[w.Task] = w
	}
	r.tasks.Store(&tasks)
}

func (r *reasons) of(task cluster.TaskID) (cluster.Waiting, bool) {
	tasks := r.tasks.Load()
	if tasks == nil {
		return cluster.Waiting{}, false
	}
	w, ok := (*tasks)[task]
	return w, ok
}
