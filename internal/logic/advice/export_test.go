package advice

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// Apply makes the changes of a suggestion to a fleet and to the task that it was found for. For the other members of a
// gang use ApplyToTask.
func Apply(sg *cluster.Suggestion, f *scheduler.Fleet, p *cluster.Pending) {
	for i := range sg.Changes {
		toFleet(&sg.Changes[i], f)
	}
	ApplyToTask(sg, p)
}

// ApplyToTask makes the changes of a suggestion that concern a task.
func ApplyToTask(sg *cluster.Suggestion, p *cluster.Pending) { applyToTask(sg, p) }
