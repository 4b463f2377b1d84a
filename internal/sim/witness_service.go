package sim

import (
	"cmp"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// stale is for how long after a change of what a service wants or has a decision may not have seen it.
const stale = 2 * time.Second

// changed notes that a service's spec or count changed, or that one of its tasks got worse.
func (v *witness) changed(service string) { v.moved[service] = time.Now() }

// own reports whether a change of a spec is the control plane's to make: it takes a failed version back, and makes,
// cancels and removes the jobs of crons.
func (v *witness) own(key string, c *store.Change, was store.Record) bool {
	if strings.HasPrefix(key, "job/") {
		value := c.Value
		if c.Deleted {
			value = was.Value
		}
		j, err := store.Decode[cluster.Job](value)
		if err != nil || j.Cron == "" {
			return false
		}
		if was.Key == "" && !c.Deleted && !v.meddled {
			if v.moments[key] {
				v.breach("moment-twice", "%s was made again", key)
			}
			v.moments[key] = true
			v.deeds.Moments++
		}
		return true
	}
	if c.Deleted || !strings.HasPrefix(key, "service/") {
		return false
	}
	s, err := store.Decode[cluster.Service](c.Value)
	old, bad := store.Decode[cluster.Service](was.Value)
	if err != nil || bad != nil || s.Rollout.Reverted == 0 || s.Rollout.Reverted != old.Generation ||
		s.Generation <= old.Generation {
		return false
	}
	v.deeds.Reverts++
	return true
}

// fired takes how far a cron has come: it never goes back, but with the store.
func (v *witness) fired(rest string, c *store.Change, was store.Record) {
	if c.Deleted || was.Key == "" || v.restored {
		return
	}
	now, err := store.Decode[cluster.CronStatus](c.Value)
	old, bad := store.Decode[cluster.CronStatus](was.Value)
	if err == nil && bad == nil && now.Last.Before(old.Last) {
		v.breach("moment-twice", "%s went back from %v to %v", rest, old.Last, now.Last)
	}
}

// scaled takes the count that scaling gave a service.
func (v *witness) scaled(rest string, c *store.Change) {
	s, err := store.Decode[cluster.Service](v.records["service/"+rest].Value)
	if c.Deleted || err != nil || s.Scaling == nil || v.restored || time.Since(v.moved[rest]) < stale {
		return
	}
	v.deeds.Scalings++
	if n, err := store.Decode[cluster.Scale](c.Value); err == nil &&
		(n.Count < s.Scaling.Min || n.Count > s.Scaling.Max) {
		v.breach("scaled-out", "%s has the count %d, its bounds are %d and %d", rest, n.Count, s.Scaling.Min,
			s.Scaling.Max)
	}
}

// granted judges the moments at which a stop that can wait is decided: when it is first written, and when its permit
// is. The service keeps the least healthy tasks of its policy without the task, by what the store holds (P5.4, P5.5).
//
// What is on a node that is not heard counts as unhealthy (P5.4), so it can be told to stop. Whether it may is judged
// when its agent is back and asks. And a daemon's task counts where it belongs: on a node that is emptied, or is not
// the daemon's any more, it ends however the others are.
func (v *witness) granted(a *attempt, d *cluster.Desired, was store.Record) {
	if d.Stop == nil || d.Stop.Class != cluster.StopVoluntary || d.Owner.Kind != cluster.KindService {
		return
	}
	if old, err := store.Decode[cluster.Desired](was.Value); was.Key != "" && err == nil && old.UUID == d.UUID &&
		old.Stop != nil && old.Stop.Permit == d.Stop.Permit {
		return
	}
	if d.Stop.Permit == "" {
		v.deeds.Wishes++
	} else {
		v.deeds.Permits++
	}
	service := d.Owner.Cluster + "/" + d.Owner.Name
	if v.restored || v.meddled || v.liar(a.node) || time.Since(v.moved[service]) < stale || !a.seen.Healthy() ||
		v.story.Has(Lag, EngineLate, EngineSlow, EngineStall, EngineCrash, ServerPause) || v.story.cuts("db") {
		return // the guarantee is by what the leader could know (P5.5)
	}
	s, err := store.Decode[cluster.Service](v.records["service/"+service].Value)
	if err != nil {
		return
	}
	if n, err := store.Decode[cluster.Scale](v.records["scale/"+service].Value); err == nil {
		s = s.At(n)
	}
	daemon := s.Mode == cluster.ModeDaemon
	switch {
	case daemon && time.Since(v.verdicts) < stale,
		d.Stop.Permit == "" && v.silent(a.node),
		daemon && !v.belongs(a.node) &&
			(d.Stop.Reason == cluster.ReasonDrain || d.Stop.Reason == cluster.ReasonUnmatched):
		return
	}
	well := map[cluster.TaskID]bool{}
	for _, o := range v.attempts { // order-free: a set
		if o != a && (o.healthy || d.Stop.Permit != "" && o.asks()) && o.of(d.Owner) &&
			(!daemon || v.belongs(o.node)) &&
			(time.Since(v.verdicts) < stale || !v.silent(o.node)) {
			well[o.task] = true
		}
	}
	if well[a.task] {
		return // another attempt of it is well
	}
	least := v.least(s)
	if s.OnDisconnect == cluster.DisconnectWait && d.Stop.Reason != cluster.ReasonRollout {
		// a task of which two must not live is stopped before it can go on elsewhere
		least = min(least, max(0, s.Desired()-1))
	}
	if len(well) < least {
		v.breach("below-minimum", "%s/%d of %s may stop (%s): %d are healthy without it, at least %d are to be", a.task,
			a.number,
			service, d.Stop.Reason, len(well), least)
	}
}

// of reports whether the attempt is of the service, which its task says before its own record stands.
func (a *attempt) of(service cluster.OwnerRef) bool {
	p, ok := a.task.Parts()
	return ok && p.Step == "" && p.Cluster == service.Cluster && p.Owner == service.Name
}

// asks reports whether the attempt is well, was told to stop, and goes on until its agent is answered: it asks for a
// permit that was not given. So long it counts when a permit is weighed for another one.
func (a *attempt) asks() bool {
	return a.desired != nil && a.desired.Stop != nil && a.desired.Stop.Class == cluster.StopVoluntary &&
		a.seen.Healthy() && !a.seen.Gone &&
		a.seen.Ask != "" && a.seen.Ask != a.desired.Stop.Permit
}

// silent reports whether the leader says of a node that nothing was heard of it for so long that what is on it counts
// for nothing. One that fell silent too often is suspect too, though it is heard.
func (v *witness) silent(node string) bool {
	n := v.shore(node).verdict
	return n != nil && (n.State == cluster.NodeDown || n.State == cluster.NodeSuspect && n.Until.IsZero())
}

// belongs reports whether a node is one that daemons have tasks on: it is the domain's and nobody empties it, by a
// drain or by a taint. (The simulator's daemons run everywhere else.)
func (v *witness) belongs(node string) bool {
	n := v.shore(node)
	if n.verdict == nil || n.verdict.Domain != cluster.DefaultDomain || n.verdict.State == cluster.NodeDraining ||
		n.verdict.State == cluster.NodeDrained {
		return false
	}
	h, err := store.Decode[cluster.Host](v.records["host/"+node].Value)
	return err != nil || h.Drain == nil && len(h.Taints) == 0 &&
		cmp.Or(h.Domain, cluster.DefaultDomain) == cluster.DefaultDomain
}

// Deeds counts what Berth did for services of its own accord.
type Deeds struct{ Wishes, Permits, Reverts, Scalings, Moments int }

// add sums up.
func (d *Deeds) add(e Deeds) {
	d.Wishes += e.Wishes
	d.Permits += e.Permits
	d.Reverts += e.Reverts
	d.Scalings += e.Scalings
	d.Moments += e.Moments
}

// daemons judges that no two tasks of a daemon are wanted on a node.
func (v *witness) daemons(node string) {
	seen := map[cluster.OwnerRef]*attempt{}
	for a := range v.shore(node).attempts { // order-free: at most one breach
		d := a.desired
		if d == nil || d.Stop != nil || a.ended || d.Owner.Kind != cluster.KindService {
			continue
		}
		s, err := store.Decode[cluster.Service](v.records["service/"+d.Owner.Cluster+"/"+d.Owner.Name].Value)
		if err != nil || s.Mode != cluster.ModeDaemon {
			continue
		}
		if other := seen[d.Owner]; other != nil {
			v.breach("daemon-twice", "%s/%d and %s/%d are wanted on %s", other.task, other.number, a.task, a.number,
				node)
			return
		}
		seen[d.Owner] = a
	}
}

// least is how many healthy tasks a service is to keep by its policy. A daemon's is of the nodes that it is counted by:
// those where it belongs and that are heard. One that has registered and was not heard by the leader yet, or that is
// suspect, counts where a task of it stands already: elsewhere none can be begun.
func (v *witness) least(s *cluster.Service) int {
	if s.Mode != cluster.ModeDaemon {
		def := v.definitions[s.Definition]
		return s.Update.Limits(s.Desired(), def != nil && def.Pinned()).Least
	}
	nodes := 0
	for name, n := range v.nodes { // order-free: a count
		if !v.belongs(name) || time.Since(n.heard) > 20*time.Second {
			continue // one that is not heard counts as away before its verdict says so
		}
		switch {
		case n.verdict.State == cluster.NodeDown:
		case n.verdict.State == cluster.NodeJoining, v.silent(name):
			for a := range n.attempts { // order-free: any will do
				if a.open() && a.holds() && a.desired != nil && a.desired.Owner == s.Owner() {
					nodes++
					break
				}
			}
		default:
			nodes++
		}
	}
	return s.Update.Limits(nodes, true).Least
}
