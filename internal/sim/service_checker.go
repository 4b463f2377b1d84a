package sim

import (
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// serviceChecker checks that services keep their minimum, their bounds of scaling, and daemons their nodes.
type serviceChecker struct {
	*observation
	// changedAt is the time at which a service's spec or count last changed, or one of its tasks got worse, by
	// "<cluster>/<name>".
	changedAt map[string]time.Time
	daemons   map[cluster.OwnerRef]daemonFlag // see isDaemon
}

// decisionLag is the time after a change of a service within which a decision may not have seen the change.
const decisionLag = 2 * time.Second

// noteServiceChange records that a service's spec or count changed, or that one of its tasks got worse.
func (v *serviceChecker) noteServiceChange(service string) { v.changedAt[service] = time.Now() }

// checkScale checks the count that scaling gave a service.
func (v *serviceChecker) checkScale(rest string, c *store.Change) {
	s, err := store.Decode[cluster.Service](v.records["service/"+rest].Value)
	if c.Deleted || err != nil || s.Scaling == nil || v.restored || time.Since(v.changedAt[rest]) < decisionLag {
		return
	}
	v.actions.Scalings++
	if n, err := store.Decode[cluster.Scale](c.Value); err == nil &&
		(n.Count < s.Scaling.Min || n.Count > s.Scaling.Max) {
		v.breach("scaled-out", "%s has the count %d, its bounds are %d and %d", rest, n.Count, s.Scaling.Min,
			s.Scaling.Max)
	}
}

// checkVoluntaryStop checks a voluntary stop when it is first written and when its permit is. The service keeps the
// minimum of its policy without the task, by the records in the store (P5.4, P5.5).
//
// Tasks on a silent node count as unhealthy (P5.4), so they can get a stop. The stop is checked when the agent is back
// and asks. A daemon's task counts only where it belongs. On a drained node, or one that no longer is the daemon's, it
// ends whatever the state of the others.
func (v *serviceChecker) checkVoluntaryStop(a *attemptHistory, d *cluster.Desired, was store.Record) {
	if d.Stop == nil || d.Stop.Class != cluster.StopVoluntary || d.Owner.Kind != cluster.KindService {
		return
	}
	if old, err := store.Decode[cluster.Desired](was.Value); was.Key != "" && err == nil && old.UUID == d.UUID &&
		old.Stop != nil && old.Stop.Permit == d.Stop.Permit {
		return
	}
	if d.Stop.Permit == "" {
		v.actions.VoluntaryStops++
	} else {
		v.actions.Permits++
	}
	service := d.Owner.Cluster + "/" + d.Owner.Name
	if v.restored || v.overwritten || v.isUntrusted(a.node) || time.Since(v.changedAt[service]) < decisionLag ||
		!a.observed.Healthy() ||
		v.story.Has(Lag, EngineLate, EngineSlow, EngineStall, EngineCrash, ServerPause) || v.story.cuts("db") {
		return // the guarantee covers what the leader could know (P5.5)
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
	case daemon && time.Since(v.verdictChanged) < decisionLag,
		d.Stop.Permit == "" && v.isSilent(a.node),
		daemon && !v.acceptsDaemons(a.node) &&
			(d.Stop.Reason == cluster.ReasonDrain || d.Stop.Reason == cluster.ReasonUnmatched):
		return
	}
	well := map[cluster.TaskID]bool{}
	for _, o := range v.attempts { // order-free: a set
		if o != a && (o.healthy || d.Stop.Permit != "" && o.awaitsPermit()) && o.belongsTo(d.Owner) &&
			(!daemon || v.acceptsDaemons(o.node)) &&
			(time.Since(v.verdictChanged) < decisionLag || !v.isSilent(o.node)) {
			well[o.task] = true
		}
	}
	if well[a.task] {
		return // another attempt of the task is healthy
	}
	least := v.leastHealthy(s)
	if s.OnDisconnect == cluster.DisconnectWait && d.Stop.Reason != cluster.ReasonRollout {
		// a task that must not live twice is stopped before it can continue elsewhere
		least = min(least, max(0, s.Desired()-1))
	}
	if len(well) < least {
		v.breach("below-minimum", "%s/%d of %s may stop (%s): %d are healthy without it, at least %d are to be", a.task,
			a.number,
			service, d.Stop.Reason, len(well), least)
	}
}

// checkDaemons checks that no two tasks of a daemon are wanted on a node.
func (v *serviceChecker) checkDaemons(node string) {
	seen := map[cluster.OwnerRef]*attemptHistory{}
	for a := range v.nodeView(node).attempts { // order-free: at most one breach
		d := a.desired
		if d == nil || d.Stop != nil || a.ended || d.Owner.Kind != cluster.KindService {
			continue
		}
		if !v.isDaemon(d.Owner) {
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

// isDaemon reports whether a service is a daemon by its record.
func (v *serviceChecker) isDaemon(o cluster.OwnerRef) bool {
	r := v.records["service/"+o.Cluster+"/"+o.Name]
	d, known := v.daemons[o]
	if !known || d.revision != r.Modified {
		s, err := store.Decode[cluster.Service](r.Value)
		d = daemonFlag{r.Modified, err == nil && s.Mode == cluster.ModeDaemon}
		v.daemons[o] = d
	}
	return d.daemon
}

// daemonFlag says whether a service is a daemon, by the record of a revision.
type daemonFlag struct {
	revision uint64
	daemon   bool
}

// hasAnsweredUnderLeader reports whether a node's agent got an answer since the present leader began. The record of the
// node keeps the verdict of the leader before.
func (v *serviceChecker) hasAnsweredUnderLeader(n *nodeView) bool {
	last := len(v.leaders) - 1
	return last < 0 || !n.answered.Before(v.leaders[last].at)
}

// leastHealthy returns how many healthy tasks a service must keep by its policy. A daemon's minimum follows from its
// counted nodes: those where it belongs and that report. A node that is suspect, or joined without a report to the
// leader, counts only if it already has one of the daemon's tasks: no task can begin elsewhere.
func (v *serviceChecker) leastHealthy(s *cluster.Service) int {
	if s.Mode != cluster.ModeDaemon {
		def := v.definitions[s.Definition]
		return s.Update.Limits(s.Desired(), def != nil && def.Pinned()).MinHealthy
	}
	nodes := 0
	for name, n := range v.nodes { // order-free: a count
		if !v.acceptsDaemons(name) || time.Since(n.answered) > 20*time.Second {
			continue // a silent node does not count, even before its verdict
		}
		switch {
		case n.verdict.State == cluster.NodeDown:
		case n.verdict.State == cluster.NodeJoining, v.isSilent(name), !v.hasAnsweredUnderLeader(n):
			for a := range n.attempts { // order-free: any suffices
				if a.isOpen() && a.holdsResources() && a.desired != nil && a.desired.Owner == s.Owner() {
					nodes++
					break
				}
			}
		default:
			nodes++
		}
	}
	return s.Update.Limits(nodes, true).MinHealthy
}
