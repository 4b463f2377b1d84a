package views

import (
	"cmp"
	"fmt"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

// Rollout shows the rollout of a service's newest version, and what it waits for.
func (b *Builder) Rollout(e store.Entry[cluster.Service]) api.RolloutView {
	b = b.Of(e.Value.Cluster)
	svc, in := e.Value, b.ServiceInput(e)
	count := reconciler.StatusOfService(in).Desired
	def := b.Domain.Definition(svc.Definition)
	limits := svc.Update.Limits(count, def != nil && def.Pinned())
	known := snapshot.VersionsOf(b.Snapshot, svc)
	v := api.RolloutView{
		Cluster: svc.Cluster, Service: svc.Name, Version: known[0], Paused: svc.Rollout.Paused,
		Reverted: svc.Rollout.Reverted,
		Desired:  count, Surge: limits.Surge, Least: limits.MinHealthy, Parallelism: limits.Parallelism,
		Versions: b.versions(svc, count), Gates: gateViews(svc, in.Gates), Revision: e.Modified,
	}
	if r := in.Rollout; r != nil && r.Generation == svc.Generation {
		v.Changed = r.Changed
		if !v.Paused {
			v.Deadline = deadlineOf(svc, r)
		}
	}
	for i := range known {
		if known[i].Generation < svc.Generation && known[i].State == cluster.RolloutComplete {
			v.LastHealthy = &known[i]
			break
		}
	}
	if limits.Canaries > 0 {
		newest := v.Versions[0]
		v.Canaries = &api.CanaryView{
			Count: limits.Canaries, Begun: min(limits.Canaries, newest.Begun),
			Healthy: min(limits.Canaries, newest.Healthy),
			Waiting: v.State == cluster.RolloutCanary, Auto: svc.Update.AutoPromote,
			Promoted: svc.Rollout.Promoted == svc.Generation,
		}
	}
	v.Waits = rolloutWaits(&in, &v, leaderName(b.Snapshot, b.Domain.Name))
	return v
}

// deadlineOf returns the time until which a rollout has to make progress, zero if there is none. After a change of
// leader the reconciler's deadline may be later.
func deadlineOf(svc *cluster.Service, r *cluster.Rollout) time.Time {
	if r.State.Ended() || r.Changed.IsZero() || r.State == cluster.RolloutCanary && !svc.Update.AutoPromote {
		return time.Time{}
	}
	since := r.Changed
	if svc.Updated.After(since) {
		since = svc.Updated
	}
	return since.Add(time.Duration(cmp.Or(svc.Update.ProgressDeadline, cluster.DefaultProgressDeadline) +
		svc.Update.Stagger))
}

// gateViews shows the gates of a service with the leader's last results. Missing results show as unknown.
func gateViews(svc *cluster.Service, results []cluster.GateResult) (all []api.GateView) {
	for i := range svc.Update.Gates {
		g := api.GateView{Gate: svc.Update.Gates[i], State: api.GateUnknown}
		if i < len(results) && results[i].Name == g.Name {
			g.State, g.Result = api.GateWaiting, &results[i]
			switch {
			case results[i].Failures > 0:
				g.State = api.GateFailing
			case results[i].Passes >= max(1, g.Passes):
				g.State = api.GatePassing
			}
		}
		all = append(all, g)
	}
	return all
}

// rolloutWaits returns what a rollout waits for: the reconciler's waits first, and then the others. It is empty for an
// ended rollout. Leader describes the leading server.
func rolloutWaits(in *reconciler.ServiceInput, v *api.RolloutView, leader string) (waits []api.Because) {
	if v.State.Ended() || in.Spec.Stopped || in.Spec.Deleted {
		return nil
	}
	known := map[cluster.ReasonCode]bool{}
	for _, w := range reconciler.Waits(*in) {
		if w.Task != "" || w.Code == cluster.ReasonGate && len(in.Gates) == 0 {
			continue
		}
		known[w.Code] = true
		waits = append(waits, waitReason(w))
	}
	add := func(code cluster.ReasonCode, format string, args ...any) {
		if !known[code] {
			text := fmt.Sprintf(format, args...)
			waits = append(waits, api.Because{About: api.AboutRollout, Reason: code, Message: text})
		}
	}
	newest := v.Versions[0]
	switch {
	case v.Paused:
		add(cluster.ReasonPaused, "paused: nothing starts or fails until it is resumed")
		return waits
	case v.State == cluster.RolloutCanary && v.Canaries != nil && v.Canaries.Auto:
		add(cluster.ReasonPromotion, "%s healthy; promoted once all gates pass",
			counted(newest.Healthy, "canary", "canaries"))
	case v.State == cluster.RolloutCanary:
		add(cluster.ReasonPromotion, "%s healthy, waiting for promotion",
			counted(newest.Healthy, "canary", "canaries"))
	}
	if missing := newest.Begun - newest.Healthy; missing > 0 {
		add(cluster.ReasonWaitForHealth, "waiting for %s to become healthy", counted(missing, "task", "tasks"))
	}
	for i := range v.Gates {
		g := &v.Gates[i]
		if g.State == api.GatePassing || newest.Healthy == 0 || known[cluster.ReasonGate] {
			continue
		}
		text := "gate " + g.Name + " has not passed often enough yet"
		switch {
		case g.State == api.GateUnknown:
			text = "gate " + g.Name + ": only the leader knows its results" + respond.Suffix(leader)
		case g.Result.Message != "":
			text = "gate " + g.Name + respond.Suffix(g.Result.Message)
		}
		waits = append(waits, api.Because{About: api.AboutGate, Reason: cluster.ReasonGate, Message: text})
	}
	return waits
}

// leaderName describes the server that leads; "" if its name is not known.
func leaderName(snap *store.Snapshot, domain string) string {
	leader, ok := snap.Leader(domain)
	if !ok {
		return ""
	}
	server, ok := snap.Server(leader.Value.Holder)
	if !ok || server.Value.Name == "" {
		return ""
	}
	return "server " + server.Value.Name
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
