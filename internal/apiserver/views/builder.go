package views

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/forecast"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// Builder builds views of one snapshot. It caches what several views need, and is for one goroutine.
type Builder struct {
	Snapshot *store.Snapshot
	// Domain gives the inputs of decisions. Records gives the inputs that are in no record.
	Domain  *observe.Domain
	Records *observe.Records

	source  *Source
	pending map[cluster.OwnerRef]*pendingTasks
	starts  map[cluster.TaskID]forecast.Start // nil until they are needed
	line    *waitingLine                      // nil until it is needed
}

// At returns a builder for views of the snapshot.
func (s *Source) At(snap *store.Snapshot) *Builder {
	b := &Builder{Snapshot: snap, source: s, pending: map[cluster.OwnerRef]*pendingTasks{}}
	c := observe.RecordsConfig{
		Domain: s.Domain, Snapshot: snap, Now: s.Now(), Since: s.Leader.Since, Pulse: s.Tables.Pulse,
		Gates: s.Leader.Gates,
	}
	if s.Leader.Reasons != nil {
		c.Victims = s.Leader.Reasons.Victims
	}
	b.Domain, b.Records = observe.NewRecords(c)
	return b
}

// ServiceInput returns the reconciler's input for a service.
func (b *Builder) ServiceInput(e store.Entry[cluster.Service]) reconciler.ServiceInput {
	o := e.Value.Owner()
	return b.Domain.ServiceInput(o, e, b.Domain.Tasks(o))
}

// JobInput returns the reconciler's input for a job.
func (b *Builder) JobInput(e store.Entry[cluster.Job]) reconciler.JobInput {
	o := e.Value.Owner()
	return b.Domain.JobInput(o, e, b.Domain.Tasks(o))
}

// Fleet returns the nodes of the domain with all tasks on them. The value model of devices is the leader's, or that of
// a leader whose term starts now.
func (b *Builder) Fleet() *scheduler.Fleet {
	var values *scheduler.ValueModel
	if b.source.Leader.DeviceValueModel != nil {
		values = b.source.Leader.DeviceValueModel()
	}
	return b.Records.Fleet(values)
}

// waitingReason returns why the leader's last decision did not place a task; ok is false if that is not known.
func (b *Builder) waitingReason(task cluster.TaskID) (why cluster.Waiting, ok bool) {
	if b.source.Leader.Reasons == nil {
		return why, false
	}
	return b.source.Leader.Reasons.Waiting(task)
}

// withReason adds to the status message of an owner with pending tasks the reason of the first that cannot be placed.
func (b *Builder) withReason(message string, o cluster.OwnerRef, pending int) string {
	if pending == 0 || b.source.Leader.Reasons == nil {
		return message
	}
	tasks := b.Pending(o)
	for i := range tasks {
		why, ok := b.waitingReason(tasks[i].Task)
		if !ok || why.Sentence == "" || isInStatus(tasks[i].Hold.Reason) {
			continue
		}
		return joinTexts(message, why.Sentence, "; ")
	}
	return message
}

// isInStatus reports whether the status of a job or of its step says already that tasks wait for the reason.
func isInStatus(hold cluster.ReasonCode) bool {
	switch hold {
	case cluster.ReasonNeeds, cluster.ReasonHold, cluster.ReasonParallelism:
		return true
	default:
		return false
	}
}

// joinTexts joins two texts with a separator; an empty text is left out with the separator.
func joinTexts(a, b, separator string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + separator + b
}
