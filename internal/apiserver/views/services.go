package views

import (
	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

// Service shows a service with its status.
func (b *Builder) Service(e store.Entry[cluster.Service]) api.ServiceView {
	b = b.Of(e.Value.Cluster)
	in := b.ServiceInput(e)
	st := reconciler.StatusOfService(in)
	return api.ServiceView{
		Service: *e.Value, Revision: e.Modified,
		Status: api.ServiceStatus{
			Desired: st.Desired, Running: st.Running, Healthy: st.Healthy, Updated: st.Updated,
			Waiting: st.Waiting, State: st.State, Message: b.withReason(st.Message, e.Value.Owner(), st.Waiting),
			Versions: b.versions(e.Value, st.Desired), Rollout: st.Rollout, RolloutMessage: st.RolloutMessage,
			Paused: st.Paused, Crashing: crashLoops(b.Snapshot, in.Owner, st.CrashLooping), GivenUp: st.GivenUp,
			MemoryTrouble: st.MemoryTrouble, Unmet: st.Unmet,
		},
	}
}
