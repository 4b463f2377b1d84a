package reconciler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
	"github.com/berthd/berth/internal/logic/watcher"
)

// ServiceStatus is the state of a service, with counts of its tasks.
type ServiceStatus struct {
	Desired, Running, Healthy int
	// Updated counts live tasks of the newest version, Waiting the wanted tasks without a placement.
	Updated, Waiting int

	State cluster.ServiceState
	// Message explains in a sentence why the service is not in its desired state; empty if it is.
	Message string
	// Unmet says which needs the first task waits for; empty if it waits for none.
	Unmet string

	// Rollout is the state of the newest version's rollout, empty if there is no record of it. RolloutMessage explains
	// the state in a sentence, and mentions Paused and the canaries to be promoted.
	Rollout        cluster.RolloutState
	RolloutMessage string
	Paused         bool
	Canaries       int
	// Versions counts the tasks of each version that has some, the newest first.
	Versions []VersionCount
	// CrashLooping lists tasks that end soon after each start. GivenUp lists tasks that are not tried again until the
	// service changes.
	CrashLooping, GivenUp []cluster.TaskID
	// MemoryTrouble describes repeated kills or moves of tasks for want of memory; empty if there were none.
	MemoryTrouble string
}

// VersionCount counts the tasks of one version of a service.
type VersionCount struct {
	Generation    uint64 // the newest generation of its tasks
	Definition    cluster.Ref
	Live, Healthy int
	Newest        bool // the service requests this version
}

// StatusOfService returns the state of a service. It reads all of the input but Cluster, Recovery and Without.
func StatusOfService(in ServiceInput) ServiceStatus {
	return statusOf(&in, slots(in.Tasks))
}

// statusCounts holds the counts and messages from which a service's state follows.
type statusCounts struct {
	live, old, fresh, healthyFresh int
	trouble                        string // of the first task that has any
	failedCheck                    string // of the first task with nothing worse than a check that began to fail
	silentNode                     string // on which a record of a task exists
	crashLoop, givenUp             string // messages of the first task of each kind
}

func statusOf(in *ServiceInput, all []*slot) ServiceStatus {
	var st ServiceStatus
	var c statusCounts
	spec := in.Spec
	if spec != nil {
		st.Desired = spec.Desired()
		if in.daemon() {
			st.Desired = 0
			if in.wantsTasks() {
				st.Desired = len(in.countedNodes(all))
			}
		}
	}
	for _, s := range all {
		st.Running += s.running()
		if s.healthy() {
			st.Healthy++
		}
		newest := spec != nil && in.newest(s)
		fresh := newest && (s.parts.Index < st.Desired || spec.Mode == cluster.ModeDaemon)
		if c.silentNode == "" {
			c.silentNode = s.silentNode()
		}
		if s.live() {
			c.live++
			if fresh {
				st.Updated++
			} else if spec != nil && !newest {
				c.old++
			}
			st.count(s, newest)
		}
		if fresh {
			c.add(in, &st, s)
		}
	}
	if missing := st.Desired - st.Updated - c.old; missing > 0 {
		st.Waiting = missing
	}
	if spec != nil {
		slices.SortStableFunc(st.Versions, func(a, b VersionCount) int {
			return cmp.Compare(b.Generation, a.Generation)
		})
		st.MemoryTrouble = memoryTrouble(all, in.Now)
		st.describeRollout(in, c.healthyFresh)
	}
	st.State = c.state(in, &st)
	st.Message = c.message(&st)
	if in.awaitsNeeds() {
		st.Message, st.Unmet = in.Unmet, in.Unmet
	}
	return st
}

// add counts a task of the newest version.
func (c *statusCounts) add(in *ServiceInput, st *ServiceStatus, s *slot) {
	if s.live() {
		c.fresh++
	}
	if s.healthy() {
		c.healthyFresh++
		return
	}
	if trouble := s.trouble(); s.failsFirstChecks() {
		c.failedCheck = cmp.Or(c.failedCheck, trouble)
	} else {
		c.trouble = cmp.Or(c.trouble, trouble)
	}
	policy := newReschedule(in.Spec)
	if why := policy.givenUp(s); why != "" {
		st.GivenUp = append(st.GivenUp, s.id)
		c.givenUp = cmp.Or(c.givenUp, why)
	} else if why := crashLoop(s); why != "" {
		st.CrashLooping = append(st.CrashLooping, s.id)
		c.crashLoop = cmp.Or(c.crashLoop, why)
	}
}

// count adds a live task to its version.
func (st *ServiceStatus) count(s *slot, newest bool) {
	ref := s.definition()
	i := slices.IndexFunc(st.Versions, func(v VersionCount) bool { return v.Definition == ref && v.Newest == newest })
	if i < 0 {
		st.Versions = append(st.Versions, VersionCount{Definition: ref, Newest: newest})
		i = len(st.Versions) - 1
	}
	v := &st.Versions[i]
	v.Generation = max(v.Generation, s.parts.Generation)
	v.Live++
	if s.healthy() {
		v.Healthy++
	}
}

// describeRollout sets the state and message of the newest version's rollout.
func (st *ServiceStatus) describeRollout(in *ServiceInput, healthy int) {
	rec, spec := in.Rollout, in.Spec
	st.Paused = spec.Rollout.Paused
	if rec == nil || rec.Generation != spec.Generation {
		return
	}
	st.Rollout = rec.State
	what, activity := rolloutText(spec, rec.Definition), activityText(spec, rec.Definition)
	count := fmt.Sprintf("%d/%d healthy", healthy, st.Desired)
	switch {
	case rec.State == cluster.RolloutComplete:
		st.RolloutMessage = what + " is complete"
	case rec.State == cluster.RolloutFailed || rec.State == cluster.RolloutRolledBack:
		st.RolloutMessage = what + " failed" + because(rec.Message)
	case st.Paused:
		st.RolloutMessage = what + " is paused: " + count
	case rec.State == cluster.RolloutCanary:
		st.Canaries = healthy
		st.RolloutMessage = promotionText(activity, healthy)
	default:
		st.RolloutMessage = activity + ": " + count
	}
}

// rolloutText names the rollout of a definition: "rollout of web@2".
func rolloutText(spec *cluster.Service, def cluster.Ref) string {
	if spec.Rollout.Reverted != 0 {
		return fmt.Sprintf("rollback to %s", def)
	}
	return fmt.Sprintf("rollout of %s", def)
}

// activityText says that a definition is rolled out: "rolling out web@2".
func activityText(spec *cluster.Service, def cluster.Ref) string {
	if spec.Rollout.Reverted != 0 {
		return fmt.Sprintf("rolling back to %s", def)
	}
	return fmt.Sprintf("rolling out %s", def)
}

// promotionText says that a rollout waits for the promotion of its canaries.
func promotionText(activity string, canaries int) string {
	return fmt.Sprintf("%s: %s healthy, waiting for promotion", activity, countedCanaries(canaries))
}

func (c *statusCounts) state(in *ServiceInput, st *ServiceStatus) cluster.ServiceState {
	spec := in.Spec
	switch {
	case spec == nil || spec.Deleted:
		return cluster.ServiceDeleting
	case st.Desired == 0 && c.live > 0:
		return cluster.ServiceStopping
	case st.Desired == 0:
		return cluster.ServiceStopped
	case c.old > 0 && st.Rollout == cluster.RolloutFailed:
		return cluster.ServiceRolloutFailed
	case c.old > 0 && st.Paused:
		return cluster.ServicePaused
	case c.old > 0 && st.Rollout == cluster.RolloutCanary:
		return cluster.ServiceCanary
	case c.old > 0:
		return cluster.ServiceRollingOut
	case c.healthyFresh >= st.Desired:
		return cluster.ServiceHealthy
	case c.crashLoop != "":
		return cluster.ServiceCrashLooping
	case c.trouble == "" && c.givenUp == "" && (c.failedCheck == "" || st.Rollout == cluster.RolloutRolling):
		return cluster.ServiceStarting
	case st.Healthy == 0 && (c.trouble != "" || c.givenUp != ""):
		return cluster.ServiceFailing
	}
	return cluster.ServiceDegraded
}

func (c *statusCounts) message(st *ServiceStatus) string {
	switch st.State {
	case cluster.ServiceHealthy, cluster.ServiceStopped:
		return ""
	case cluster.ServiceDeleting, cluster.ServiceStopping:
		return endingText(c.live, c.silentNode)
	default:
	}
	text := fmt.Sprintf("%d/%d healthy", st.Healthy, st.Desired)
	switch st.State {
	case cluster.ServiceCanary, cluster.ServicePaused, cluster.ServiceRolloutFailed:
		text = st.RolloutMessage
	case cluster.ServiceRollingOut:
		text = fmt.Sprintf("rolling out: %d/%d healthy", c.healthyFresh, st.Desired)
		if st.Rollout == cluster.RolloutRolling {
			text = st.RolloutMessage
		}
	default:
	}
	if st.Waiting > 0 {
		text += fmt.Sprintf("; %d waiting for a node", st.Waiting)
	}
	trouble := cmp.Or(c.givenUp, c.crashLoop, c.trouble, c.failedCheck)
	if trouble != "" && st.State != cluster.ServiceRolloutFailed {
		text += "; " + trouble
	}
	if st.MemoryTrouble != "" {
		text += "; " + st.MemoryTrouble
	}
	return text
}

func countedTasks(n int) string {
	if n == 1 {
		return "1 task"
	}
	return fmt.Sprintf("%d tasks", n)
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// running returns 1 if an attempt of the slot runs, is to continue, and its node can be reached.
func (s *slot) running() int {
	for _, t := range s.attempts {
		if t.healthy() || !t.unreachable() && lifecycle.Shown(t.Attempt).State == cluster.StateRunning {
			return 1
		}
	}
	return 0
}

// trouble describes the newest problem of a task; empty if the task makes progress.
func (s *slot) trouble() string {
	for _, t := range slices.Backward(s.attempts) {
		v := lifecycle.Shown(t.Attempt)
		switch {
		case t.live() && t.unreachable() && t.Desired != nil && t.Desired.OnDisconnect == cluster.DisconnectWait:
			return fmt.Sprintf("%s waits for silent node %s (on_disconnect: wait)", s.id, t.node())
		case t.live() && t.Absence != watcher.Present:
			return fmt.Sprintf("%s: node %s is silent", s.id, t.node())
		case v.State == cluster.StateRunning && v.Health == cluster.HealthFailing:
			return fmt.Sprintf("%s fails its checks on %s%s", s.id, t.node(), because(v.Message))
		case v.State == cluster.StateRunning && v.Health == cluster.HealthWarning:
			return fmt.Sprintf("%s failed a check on %s%s", s.id, t.node(), because(v.Message))
		case v.State == cluster.StateFailed || v.State == cluster.StateRejected || v.State == cluster.StateLost ||
			v.State == cluster.StateSucceeded:
			return fmt.Sprintf("%s %s%s%s", s.id, ended(v.State), laterAttempt(t), because(v.Message))
		case t.live() && t.Observed != nil && t.Observed.Restarts > 0:
			if strings.Contains(v.Message, cluster.RestartsText(t.Observed.Restarts)) {
				return fmt.Sprintf("%s: %s", s.id, v.Message)
			}
			return fmt.Sprintf("%s restarted %s%s", s.id, times(t.Observed.Restarts), because(v.Message))
		}
	}
	return ""
}

// failsFirstChecks reports whether the task's only problem is a check that failed less often than its fail_after says.
// The task may just need longer to begin.
func (s *slot) failsFirstChecks() bool {
	if len(s.attempts) != 1 {
		return false
	}
	t := s.attempts[0]
	return t.live() && t.Absence == watcher.Present && t.Observed != nil && t.Observed.Restarts == 0 &&
		lifecycle.Shown(t.Attempt).Health == cluster.HealthWarning
}

// silentNode returns a silent node that has a record of the task, or nothing.
func (s *slot) silentNode() string {
	for _, t := range s.attempts {
		if t.hasRecords() && t.Absence == watcher.Silent {
			return t.node()
		}
	}
	return ""
}

// ended returns the state as the end of a sentence.
func ended(s cluster.State) string {
	if s == cluster.StateRejected || s == cluster.StateLost {
		return "was " + string(s)
	}
	if s == cluster.StateSucceeded {
		return "ended"
	}
	return string(s)
}

// laterAttempt returns the number of a task's attempt in brackets, empty for the first one.
func laterAttempt(t *Task) string {
	if t.number() <= 1 {
		return ""
	}
	return fmt.Sprintf(" (attempt %d)", t.number())
}

func because(message string) string {
	if message == "" {
		return ""
	}
	return ": " + message
}
