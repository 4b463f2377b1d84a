package draft

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// eventBatch returns the events of a draft, or nil if there are none. The batch is written in the draft's transaction
// (P8.1).
func (t *transaction) eventBatch() (*cluster.EventBatch, error) {
	events := slices.Clone(t.Events)
	for _, key := range slices.Sorted(maps.Keys(t.writes)) {
		if e, ok := t.Instead[key]; ok {
			events = append(events, e)
		} else if e, ok := eventOf(t.writes[key], t.compares[key] == 0); ok {
			events = append(events, e)
		}
	}
	if len(events) == 0 {
		return nil, nil //nolint:nilnil // there are no events
	}
	for i := range events {
		events[i].By = t.By
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make an event id: %w", err)
	}
	b := &cluster.EventBatch{ID: id.String(), At: t.Now, Events: events}
	if l, ok := t.Snap.Leader(cluster.DefaultDomain); ok {
		b.Incarnation = l.Value.Incarnation
	}
	if l, ok := t.writes[t.Prefix.Leader(cluster.DefaultDomain)].(*cluster.Leader); ok {
		b.Incarnation = l.Incarnation
	}
	return b, nil
}

// eventOf returns the event of an object that a user wrote.
func eventOf(record any, created bool) (e cluster.Event, ok bool) {
	var noun string
	deleted, subject := false, ""
	switch r := record.(type) {
	case *cluster.Service:
		owner := r.Owner()
		noun, deleted, e.Cluster, e.Owner = "service", r.Deleted, r.Cluster, &owner
		e.Message = fmt.Sprintf("%s of %s", respond.Plural(r.Count, "task"), r.Definition)
		if r.Mode == cluster.ModeDaemon {
			e.Message = fmt.Sprintf("a task of %s on each node", r.Definition)
		}
		if r.Stopped {
			e.Message = "stopped; " + e.Message
		}
	case *cluster.Job:
		owner := r.Owner()
		noun, deleted, e.Cluster, e.Owner = "job", r.Deleted, r.Cluster, &owner
		e.Message = respond.Plural(len(r.Steps), "step")
		if r.Cancelled {
			e.Message = "cancelled"
		}
	case *cluster.Cron:
		noun, e.Cluster, e.Owner = "cron", r.Cluster,
			&cluster.OwnerRef{Kind: cluster.KindCron, Cluster: r.Cluster, Name: r.Name}
		e.Message = strings.Join(r.Schedules, ", ")
		if r.Suspended {
			e.Message += "; suspended"
		}
	case *cluster.Endpoint:
		owner := r.Owner()
		noun, e.Cluster, e.Owner = "endpoint", r.Cluster, &owner
		e.Message = fmt.Sprintf("the port %s of service %s", r.Port, r.Service)
	case *cluster.TaskDefinition:
		noun, deleted, subject = "definition", r.Deleted, r.Ref().String()+": "
		e.Message = r.Ref().String()
		if !created {
			e.Message = store.KeptDefinition(r.Ref())
		}
	case *cluster.Cluster:
		noun, e.Cluster, deleted = "cluster", r.Name, r.Deleted
	case *cluster.Pool:
		noun = "pool"
		e.Message = fmt.Sprintf("the strategy of the pool %s is %s", r.Name,
			cmp.Or(string(r.Strategy), "that of the cluster"))
	case *cluster.Profile:
		noun, e.Message = "profile", "the profile "+r.Ref().String()
	case *cluster.Reservation:
		noun = "reservation"
		e.Message = fmt.Sprintf("the reservation %s keeps %s from %s until %s", r.Name,
			respond.Plural(len(r.Nodes), "node"),
			r.From.Format(time.RFC3339), r.Until.Format(time.RFC3339))
	case *cluster.Host:
		noun, e.Node = "node-settings", r.Name
		switch {
		case r.Gone:
			e.Message = "forgotten: the machine never comes back"
		case r.Drain != nil:
			e.Message = "drained"
		case r.Cordon:
			e.Message = "cordoned"
		}
	default:
		return e, false
	}
	switch {
	case deleted:
		e.Type, e.Reason = noun+".deleted", cluster.ReasonDeleted
		e.Message = subject + "the user deleted it"
	case created:
		e.Type = noun + ".created"
	default:
		e.Type = noun + ".updated"
	}
	return e, true
}

// putEvents adds the draft's events to its transaction.
func (t *transaction) putEvents(g *store.Group) error {
	b, err := t.eventBatch()
	if err != nil || b == nil {
		return err
	}
	value, err := store.Encode(b)
	if err != nil {
		return err
	}
	g.Ops = append(g.Ops, store.Op{Key: t.Prefix.Event(b.ID), Value: value})
	return nil
}
