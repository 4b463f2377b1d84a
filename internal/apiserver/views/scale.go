package views

import (
	"math"
	"slices"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// Scale shows the count of a service with its targets and its last changes.
func (b *Builder) Scale(e store.Entry[cluster.Service]) api.ScaleView {
	b = b.Of(e.Value.Cluster)
	svc := e.Value
	st := reconciler.StatusOfService(b.ServiceInput(e))
	v := api.ScaleView{
		Cluster: svc.Cluster, Service: svc.Name, Count: st.Desired, Running: st.Running, Healthy: st.Healthy,
		Begin:   svc.Count,
		Scaling: svc.Scaling, Tasks: b.uses(svc.Owner()), Revision: e.Modified,
	}
	if svc.Scaling == nil || svc.Mode == cluster.ModeDaemon {
		return v
	}
	v.Suspended = svc.Scaling.Suspended
	low, high := svc.Scaling.Min, svc.Scaling.Max
	v.Min, v.Max = &low, &high
	if scale, ok := b.Snapshot.Scale(svc.Cluster, svc.Name); ok && scale.Value.AppliesTo(svc) {
		v.At, v.Message, v.Recent = scale.Value.At, scale.Value.Message, scale.Value.Recent
	}
	for i := range svc.Scaling.Targets {
		v.Targets = append(v.Targets, b.targetView(svc, &svc.Scaling.Targets[i], v.Tasks))
	}
	return v
}

// targetView shows a target with the present usage of the tasks, as far as this server knows it.
func (in *inputs) targetView(svc *cluster.Service, t *cluster.ScaleTarget, uses []api.TaskUse) api.TargetView {
	v := api.TargetView{ScaleTarget: *t}
	if t.Metric == cluster.ScalePrometheus {
		v.Message = "the leader queries " + t.URL + "; the result is not shown here"
		return v
	}
	var reserved cluster.Demand
	if def := in.Domain.Definition(svc.Definition); def != nil {
		reserved = def.Demand()
	}
	sum, n := 0.0, 0
	for i := range uses {
		u := &uses[i]
		switch {
		case t.Metric == cluster.ScaleCPU && reserved.CPU > 0:
			sum += 100 * float64(u.CPU) / float64(reserved.CPU)
		case t.Metric == cluster.ScaleMemory && reserved.Memory > 0:
			sum += 100 * float64(u.Memory) / float64(reserved.Memory)
		case t.Metric == cluster.ScaleRequests && u.Requests >= 0:
			sum += u.Requests
		default:
			continue
		}
		n++
	}
	if n == 0 {
		v.Message = "this server knows no usage of its tasks"
		return v
	}
	mean := sum / float64(n)
	v.Value, v.At, v.Message = &mean, in.Domain.Now.UTC(), "the mean of "+respond.Plural(n, "task")
	if t.Target > 0 {
		v.Wish = int(math.Ceil(sum / t.Target))
	}
	return v
}

// uses returns the usage of an owner's attempts, as far as this server knows it.
func (in *inputs) uses(o cluster.OwnerRef) (all []api.TaskUse) {
	for row := range in.Snapshot.Attempts(o) {
		if use := in.use(row); use != nil {
			all = append(all, api.TaskUse{TaskStats: *use, Node: row.Node})
		}
	}
	return all
}

// use returns the usage of an attempt, nil if this server does not know it.
func (in *inputs) use(row *store.AttemptRow) *cluster.TaskStats {
	stats := in.Records.Stats(row.Node)
	if stats == nil || !observe.HoldsRoom(row) {
		return nil
	}
	uuid := observe.UUID(row)
	i, ok := slices.BinarySearchFunc(stats.Each, uuid, func(t cluster.TaskStats, uuid string) int {
		return strings.Compare(t.UUID, uuid)
	})
	if !ok || uuid == "" {
		return nil
	}
	use := stats.Each[i]
	return &use
}
