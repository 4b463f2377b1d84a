// Package watcher turns the reports of nodes, and their silence, into verdicts.
//
// A node that registers is joining until its first full report is in, and then ready. Silence counts from the heartbeat
// that the node promised next (P6.2). After Options.Suspect of silence the node gets no new tasks; after Options.Down
// it is down. Its tasks are lost by the limit of their class, which can be later. A node that reports again returns to
// its earlier state. A node that returns repeatedly gets no new tasks for a growing time.
//
// Only the leader watches, and only its own observations count. Silence starts again for all nodes with a new leader,
// and after a gap in the watcher's own work (Rearm). A stopped or lagging leader thus declares no node down. This is
// also the recovery barrier (P6.5): no task of a node that did not report is lost before the silence of its class has
// passed again under this leader.
//
// A domain owns the nodes that its leader has claimed (P7.1). owner.go decides who may claim and who releases. A node
// that the operator drains, or gives to another domain, is draining until nothing runs on it, and then drained.
//
// All spans are on the server's boot-time clock (P9.1), a time.Duration since the machine's boot.
package watcher

import (
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Options are the limits of silence. The zero value is not usable; begin with DefaultOptions.
type Options struct {
	// Suspect and Down are the silence after which a node is suspect or down.
	Suspect, Down time.Duration
	// ServiceLost and BatchLost are the silence after which tasks of services or of jobs are lost.
	ServiceLost, BatchLost time.Duration
	// Gap is the longest time between two judgements that does not restart all silence.
	Gap time.Duration
	// MassSilenceNodes, MassSilenceShare and MassSilenceWindow define a mass silence. Among at least MassSilenceNodes
	// nodes, a share of more than MassSilenceShare (0 to 1) fell silent within MassSilenceWindow.
	MassSilenceNodes  int
	MassSilenceShare  float64
	MassSilenceWindow time.Duration
	// FlapWindow is the longest time between two returns of a node that count as in a row. The second return in a row
	// holds the node for FlapHold. Each further return doubles the hold, up to FlapLimit.
	FlapWindow, FlapHold, FlapLimit time.Duration
}

// DefaultOptions returns the limits of P6.2.
func DefaultOptions() Options { return OptionsOf(nil) }

// OptionsOf returns the limits for a domain with these limits of silence, which may be nil.
func OptionsOf(silence *cluster.Silence) Options {
	s := silence.Limits()
	return Options{
		Suspect: time.Duration(s.Suspect), Down: time.Duration(s.Down),
		ServiceLost: time.Duration(s.Services), BatchLost: time.Duration(s.Jobs),
		Gap:              5 * time.Second,
		MassSilenceNodes: 10, MassSilenceShare: 0.3, MassSilenceWindow: time.Minute,
		FlapWindow: 15 * time.Minute, FlapHold: 30 * time.Second, FlapLimit: 10 * time.Minute,
	}
}

// Rearm returns the time from which silence counts, given the times of the watcher's last and present judgement. It is
// armed, or now after a gap of the watcher's own. A new leader begins with now.
func Rearm(armed, last, now time.Duration, o Options) time.Duration {
	if now-last > o.Gap || now < last {
		return now
	}
	return armed
}

// Input holds everything that a verdict on a node depends on.
type Input struct {
	// Domain is the domain that this server leads, cluster.DefaultDomain if empty. Incarnation is the incarnation of
	// its store.
	Domain      string
	Incarnation uint64
	// Node is the last verdict, nil if there is none.
	Node *cluster.Node
	// Status is the node's registration, nil if it never registered.
	Status *cluster.NodeStatus
	// Pulse is the last sign of life that this server knows, nil if it knows none.
	Pulse *cluster.Pulse
	// Host holds the operator's settings; it may be nil. WantedDomain is the domain that the operator gave the node to,
	// cluster.DefaultDomain if empty.
	Host         *cluster.Host
	WantedDomain string
	// Gone says that the node will not come back because its instance was destroyed. Host.Gone says the same.
	Gone bool
	// Paused says that a mass silence stops rescheduling (see IsMassSilence) without an override of the operator.
	Paused bool
	// Left is the number of attempts that have records on the node, or are in a plan with an unknown result. It matters
	// only for a node that is to be drained.
	Left int
	// Stuck says why some of these attempts cannot move; empty if all can.
	Stuck string
	// Unkillable is a task on the node that lives after KILL, or empty.
	Unkillable cluster.TaskID
	// Recovered says that the operator decided how to recover a store that went back (P1.7). Generations that agents
	// have seen are then a lower bound.
	Recovered bool
	// Held says that this decision is awaited. No node changes its owner and none is forgotten, because the lost
	// history may have said otherwise.
	Held bool
	// Armed is the time from which silence counts; see Rearm.
	Armed time.Duration
	Now   time.Duration
	// Wall is the time for records.
	Wall    time.Time
	Options Options
}

// Verdict is the watcher's judgement of a node.
type Verdict struct {
	// Node is the new record. It must be written if Changed.
	Node    cluster.Node
	Changed bool
	// Event reports the change.
	Event cluster.Event
	// Heard says that the node has reported and is not late.
	Heard bool
	// Silence is how long the next report is overdue, 0 if it is not.
	Silence time.Duration
	Gone    bool
	Paused  bool
	// Foreign says that this domain does not own the node: the verdict contains nothing else.
	Foreign bool
	// Drain, unless nil, says that the node must be emptied: by the operator, for a change of owner, or because a task
	// on it cannot be killed.
	Drain *cluster.Drain
	// Forget says that the node's records must be removed: the node is gone and nothing is left on it.
	Forget bool
	// NextDecision is the time at which the verdict can change without new input, on the boot-time clock; 0 for never.
	NextDecision time.Duration

	limits Options
}

// Judge returns the verdict on a node, or ok false if nothing is known of it.
func Judge(in Input) (v Verdict, ok bool) {
	if in.Status == nil && in.Node == nil {
		return v, false
	}
	if in.Domain == "" {
		in.Domain = cluster.DefaultDomain
	}
	v = Verdict{Gone: in.Gone || in.Host != nil && in.Host.Gone, Paused: in.Paused, limits: in.Options}
	v.Node, v.Foreign = resolveOwner(in)
	if v.Foreign {
		return v, true
	}
	v.measureSilence(in)
	v.setDrain(in)
	v.countReturn(in)
	was := v.Node
	if in.Node == nil {
		was = cluster.Node{}
	}
	state, reason := v.judge(in)
	if state != was.State {
		v.Node.State, v.Node.Since = state, in.Wall
	}
	if state != was.State || reason != "" && reason != was.Reason {
		v.Node.Reason = reason
		v.setEvent("node."+string(state), reason)
		if state == cluster.NodeDown {
			v.Event.Reason = cluster.ReasonNodeDown
		}
	}
	v.Forget = v.Gone && in.Host != nil && in.Host.Gone && in.Left == 0 && !in.Held
	v.release(in)
	v.Changed = in.Node == nil || *in.Node != v.Node
	return v, true
}

func (v *Verdict) setEvent(kind, message string) {
	v.Event = cluster.Event{Type: kind, Node: v.Node.Name, Message: message}
}

// measureSilence measures the silence since the promised heartbeat, or since silence began to count.
func (v *Verdict) measureSilence(in Input) {
	from := in.Armed
	if p := in.Pulse; p != nil {
		from = max(from, p.At+p.Next)
		current := in.Status == nil || p.Session >= in.Status.Session
		v.Heard = current && in.Now-p.At-p.Next < in.Options.Suspect
	}
	v.Silence = max(0, in.Now-from)
	if v.Gone {
		return
	}
	o := in.Options
	if v.Heard { // Heard may end before the limits below, which count from Armed
		v.decideAgainAt(in.Pulse.At+in.Pulse.Next+o.Suspect, in.Now)
	}
	for _, limit := range []time.Duration{o.Suspect, o.Down, o.ServiceLost, o.BatchLost} {
		v.decideAgainAt(from+limit, in.Now)
	}
}

// decideAgainAt requests another decision at a future time, unless an earlier one is requested.
func (v *Verdict) decideAgainAt(at, now time.Duration) {
	if at > now && (v.NextDecision == 0 || at < v.NextDecision) {
		v.NextDecision = at
	}
}

// judge returns the node's state and the reason in a sentence, empty if the last one still holds. Without a sign of
// life the state only gets worse.
func (v *Verdict) judge(in Input) (cluster.NodeState, string) {
	was := v.Node.State
	synced := in.Status != nil && in.Status.Synced
	switch {
	case v.Gone:
		return cluster.NodeDown, "gone for good"
	case v.Heard && !synced:
		return cluster.NodeJoining, reasonUnless(was == cluster.NodeJoining, "waiting for its full report")
	case v.Heard && !v.Node.Until.IsZero():
		return cluster.NodeSuspect, flapReason(v.Node)
	case v.Heard && v.Drain != nil:
		return v.drainProgress(in)
	case v.Heard && (was == cluster.NodeSuspect || was == cluster.NodeDown):
		return cluster.NodeReady, "reports again"
	case v.Heard && (was == cluster.NodeDraining || was == cluster.NodeDrained):
		return cluster.NodeReady, "drain ended"
	case v.Heard:
		return cluster.NodeReady, reasonUnless(was == cluster.NodeReady, "full report received")
	case was == cluster.NodeDown || v.Silence >= in.Options.Down:
		return cluster.NodeDown, fmt.Sprintf("no report for %s after it was due", in.Options.Down)
	case v.Silence >= in.Options.Suspect:
		return cluster.NodeSuspect, fmt.Sprintf("no report for %s after it was due", in.Options.Suspect)
	case was == "":
		return cluster.NodeJoining, "registered, no report yet"
	}
	return was, ""
}

func reasonUnless(stands bool, reason string) string {
	if stands {
		return ""
	}
	return reason
}

// Absence returns the meaning of the verdict for a task of the node: a job's task if batch, else a service's.
func (v *Verdict) Absence(batch bool) Absence {
	limit := v.limits.ServiceLost
	if batch {
		limit = v.limits.BatchLost
	}
	switch {
	case v.Foreign: // taken by force: no report of the task will arrive here
		return Silent
	case v.Gone:
		return Gone
	case v.Heard:
		return Present
	case v.Silence >= limit && !v.Paused:
		return Silent
	case v.Node.State == cluster.NodeSuspect || v.Node.State == cluster.NodeDown:
		return Suspected
	}
	return Present
}

// Takes reports whether the watcher allows new tasks on the node.
func (v *Verdict) Takes() bool { return v.Node.State == cluster.NodeReady && !v.Gone && !v.Foreign }
