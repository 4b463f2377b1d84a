package views

import (
	"time"

	"github.com/berthd/berth/internal/apiserver/starts"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// Builder builds views of one snapshot in one domain. It is for one goroutine.
//
// Its exported methods show objects of any domain: they build each view with the builder of the object's own domain.
type Builder struct {
	inputs
	queue   queue
	domains map[string]*Builder // of the same snapshot and moment, by domain
}

// inputs are what the decisions of one domain see, and the leader's last results.
type inputs struct {
	Snapshot *store.Snapshot
	// Domain gives the inputs of decisions. Records gives the inputs that are in no record.
	Domain  *observe.Domain
	Records *observe.Records

	source *Source
}

// queue is what waits in the domain of the inputs. Each part is computed once, when it is needed.
type queue struct {
	*inputs
	pending map[cluster.OwnerRef]*pendingTasks
	starts  map[cluster.TaskID]starts.Start // nil until they are needed
	line    *waitingLine                    // nil until it is needed
}

// At returns a builder for views of the snapshot, in the default domain.
func (s *Source) At(snap *store.Snapshot) *Builder {
	return s.builder(snap, s.Now(), cluster.DefaultDomain, map[string]*Builder{})
}

func (s *Source) builder(snap *store.Snapshot, now time.Time, domain string, domains map[string]*Builder) *Builder {
	b := &Builder{inputs: inputs{Snapshot: snap, source: s}, domains: domains}
	b.queue = queue{inputs: &b.inputs, pending: map[cluster.OwnerRef]*pendingTasks{}}
	domains[domain] = b
	c := observe.RecordsConfig{Domain: domain, Snapshot: snap, Now: now, Pulse: s.Tables.Pulse}
	if s.Leader.Since != nil {
		c.Since = func() (since, clockSet time.Time) { return s.Leader.Since(domain) }
	}
	if s.Leader.Gates != nil {
		c.Gates = func(o cluster.OwnerRef) []cluster.GateResult { return s.Leader.Gates(domain, o) }
	}
	if s.Leader.Reasons != nil {
		c.Victims = func() []cluster.Victim { return s.Leader.Reasons.Victims(domain) }
	}
	b.Domain, b.Records = observe.NewRecords(c)
	return b
}

// In returns the builder of another domain, for the same snapshot and moment.
func (b *Builder) In(domain string) *Builder {
	if other := b.domains[domain]; other != nil {
		return other
	}
	return b.source.builder(b.Snapshot, b.Domain.Now, domain, b.domains)
}

// Of returns the builder of the domain of a cluster.
func (b *Builder) Of(inCluster string) *Builder {
	c, _ := b.Snapshot.Cluster(inCluster)
	return b.In(c.Value.InDomain())
}

// ofTask returns the builder of the domain of a task.
func (b *Builder) ofTask(id cluster.TaskID) *Builder {
	p, ok := id.Parts()
	if !ok {
		return b
	}
	return b.Of(p.Cluster)
}

// ServiceInput returns the reconciler's input for a service.
func (b *Builder) ServiceInput(e store.Entry[cluster.Service]) reconciler.ServiceInput {
	o := e.Value.Owner()
	b = b.Of(o.Cluster)
	return b.Domain.ServiceInput(o, e, b.Domain.Tasks(o))
}

// JobInput returns the reconciler's input for a job.
func (b *Builder) JobInput(e store.Entry[cluster.Job]) reconciler.JobInput {
	o := e.Value.Owner()
	b = b.Of(o.Cluster)
	return b.Domain.JobInput(o, e, b.Domain.Tasks(o))
}

// Fleet returns the nodes of the domain with all tasks on them. The value model of devices is the leader's, or that of
// a leader whose term starts now.
func (in *inputs) Fleet() *scheduler.Fleet {
	var values *scheduler.ValueModel
	if in.source.Leader.DeviceValueModel != nil {
		values = in.source.Leader.DeviceValueModel(in.Domain.Name)
	}
	return in.Records.Fleet(values)
}

// waitingReason returns why the leader's last decision did not place a task; ok is false if that is not known.
func (in *inputs) waitingReason(task cluster.TaskID) (why cluster.Waiting, ok bool) {
	if in.source.Leader.Reasons == nil {
		return why, false
	}
	return in.source.Leader.Reasons.Waiting(in.Domain.Name, task)
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
