package controlplane

import (
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
)

// limitedRuns holds, by owner and UUID, the boot-time at which this leader first saw an attempt with a time limit run.
// The start that a node reports is a time of another clock (P9.1).
type limitedRuns map[cluster.OwnerRef]map[string]time.Duration

// note sets how long the tasks of an owner have run under this leader, and forgets the attempts that run no more. now
// is the boot-time.
func (r limitedRuns) note(o cluster.OwnerRef, tasks []reconciler.Task, now time.Duration) {
	var running map[string]time.Duration
	for i := range tasks {
		t := &tasks[i]
		if !t.RunsLimited() {
			continue
		}
		began, known := r[o][t.Desired.UUID]
		if !known {
			began = now
		}
		if running == nil {
			running = map[string]time.Duration{}
		}
		running[t.Desired.UUID] = began
		t.Running = now - began
	}
	if running == nil {
		delete(r, o)
		return
	}
	r[o] = running
}
