package views

import (
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

// Plane is a domain's control plane on this server. It is safe for concurrent use, and all methods return immediately.
type Plane interface {
	// Waiting returns why a task waits.
	Waiting(task cluster.TaskID) (cluster.Waiting, bool)
	// Victims returns the attempts that are to end for others, ordered by UUID. Callers must not change the result.
	Victims() []cluster.Victim
	// Gates returns the results for the gates of a service's rollout, nil if the plane does not lead.
	Gates(service cluster.OwnerRef) []cluster.GateResult
	// Since returns the time from which deadlines count, and the time at which the wall clock was set. Both are zero if
	// the plane does not lead.
	Since() (since, clockSet time.Time)
	// DeviceValueModel returns the value model of devices, nil if the plane does not lead.
	DeviceValueModel() *scheduler.ValueModel
}

// LeaderOn returns what this server's own control planes know. Of returns that of a domain, nil if there is none; it is
// safe for concurrent use. The result has no DecisionTrace.
func LeaderOn(of func(domain string) Plane) Leader {
	return Leader{
		Reasons: ownReasons(of),
		Gates: func(domain string, service cluster.OwnerRef) []cluster.GateResult {
			if p := of(domain); p != nil {
				return p.Gates(service)
			}
			return nil
		},
		Since: func(domain string) (since, clockSet time.Time) {
			if p := of(domain); p != nil {
				return p.Since()
			}
			return since, clockSet
		},
		DeviceValueModel: func(domain string) *scheduler.ValueModel {
			if p := of(domain); p != nil {
				return p.DeviceValueModel()
			}
			return nil
		},
	}
}

// OnlyDefault returns the function for LeaderOn of a server that runs the plane of the default domain alone.
func OnlyDefault(p Plane) func(domain string) Plane {
	return func(domain string) Plane {
		if domain == cluster.DefaultDomain {
			return p
		}
		return nil
	}
}

// ownReasons are the Reasons of this server's own control planes.
type ownReasons func(domain string) Plane

// Waiting implements Reasons.
func (of ownReasons) Waiting(domain string, task cluster.TaskID) (w cluster.Waiting, ok bool) {
	if p := of(domain); p != nil {
		return p.Waiting(task)
	}
	return w, false
}

// Victims implements Reasons.
func (of ownReasons) Victims(domain string) []cluster.Victim {
	if p := of(domain); p != nil {
		return p.Victims()
	}
	return nil
}

// LeaderOf shows the leader of a domain, nil if there was none yet.
func LeaderOf(snap *store.Snapshot, domain string) *api.LeaderView {
	e, ok := snap.Leader(domain)
	if !ok {
		return nil
	}
	v := &api.LeaderView{
		ID: e.Value.Holder, Epoch: e.Value.Epoch, Incarnation: e.Value.Incarnation, Since: e.Value.Since,
	}
	if record, ok := snap.Server(e.Value.Holder); ok {
		v.Name = record.Value.Name
	}
	return v
}
