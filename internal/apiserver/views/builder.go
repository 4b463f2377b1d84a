package views

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// Builder builds views from one snapshot. It caches what several views have in common, and is for one goroutine.
type Builder struct {
	Snapshot *store.Snapshot
	// Domain gives the inputs of decisions, and Records those of them that are in no record.
	Domain  *observe.Domain
	Records *observe.Records

	source *Source
	owners map[cluster.OwnerRef]*pendingTasks
}

// At returns a builder of views of the snapshot.
func (s *Source) At(snap *store.Snapshot) *Builder {
	l := &Builder{Snapshot: snap, source: s, owners: map[cluster.OwnerRef]*pendingTasks{}}
	c := observe.RecordsConfig{
		Domain: s.Domain, Snapshot: snap, Now: s.Now(), Since: s.Leader.Since, Pulse: s.Tables.Pulse,
		Gates: s.Leader.Gates,
	}
	if s.Leader.Reasons != nil {
		c.Victims = s.Leader.Reasons.Victims
	}
	l.Domain, l.Records = observe.NewRecords(c)
	return l
}

// service returns what the control plane looks at when it decides about a service.
func (l *Builder) ServiceInput(e store.Entry[cluster.Service]) reconciler.ServiceInput {
	o := e.Value.Owner()
	return l.Domain.ServiceInput(o, e, l.Domain.Tasks(o))
}

// desired returns how many tasks a service wants now: of a daemon one for each of its nodes.
func (l *Builder) desired(in *reconciler.ServiceInput) int {
	return reconciler.StatusOfService(*in).Desired
}

func (l *Builder) JobInput(e store.Entry[cluster.Job]) reconciler.JobInput {
	o := e.Value.Owner()
	return l.Domain.JobInput(o, e, l.Domain.Tasks(o))
}

// diskFull returns what a node says of a disk that is full, nil where none is.
func (l *Builder) diskFull(node string) *cluster.DiskFull {
	if stats := l.Records.Stats(node); stats != nil {
		return stats.DiskFull
	}
	return nil
}
