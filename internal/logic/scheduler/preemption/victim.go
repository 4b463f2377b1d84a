package preemption

import (
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/admission"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// victim is a Victim with a reservation.
type victim struct {
	*Victim
	slot int32
	gang int32 // -1 for none
	// owner is the number of an owner with a bound; -1 if the victim's end does not count.
	owner      int32
	gone       bool
	viewsFound bool // findViews ran
	frees      cluster.Demand
	devices    int64              // number of devices that it holds, in whole or in part
	groups     []*taskclass.Group // groups of waiting tasks that count it
	views      []*taskclass.View
	// holding is what the victim counts for its cluster, if that borrowed; else nil. started is when the attempt
	// started, zero if it has not.
	holding *admission.Holding
	started time.Time
}
