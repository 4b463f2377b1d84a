// Package watcher turns the reports of nodes, and their silence, into verdicts.
//
// A node that registers is joining until its first full report is in, then ready. Silence counts from the heartbeat
// that the node promised next (P6.2): after Options.Suspect it takes no new tasks, after Options.Down it is down. Its
// tasks are lost by their class, which can be later. A node that is heard again is what it was, unless it keeps coming
// back: then it takes no new tasks for a time that grows. Only the leader watches, and only what it saw itself counts:
// silence starts again for all nodes with a new leader and after a gap of the watcher's own (Rearm), so a stopped or
// lagging leader condemns nobody. That is also the recovery barrier (P6.5): before its class's silence has passed again
// under this leader, no task of a node that did not report is lost.
//
// A domain owns the nodes that its leader has claimed (P7.1): owner.go says who may claim and who lets go. A node
// that the operator drains, or sends to another domain, is draining until nothing stands on it, then drained.
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
	// Suspect and Down are after how much silence a node becomes suspect and down.
	Suspect, Down time.Duration
	// ServiceLost and BatchLost are after how much silence tasks of services and of jobs are lost.
	ServiceLost, BatchLost time.Duration
	// Gap is how long the watcher may be away between two looks without starting all silence again.
	Gap time.Duration
	// StormNodes, StormShare and StormWindow define a mass silence: of so many nodes or more, a larger
	// share than this (of 1) fell silent within the window.
	StormNodes  int
	StormShare  float64
	StormWindow time.Duration
	// FlapWindow is how soon after its last return a node must come back again for that to count as one in a row. The
	// second in a row holds it for FlapHold, each further one for twice as long, up to FlapLimit.
	FlapWindow, FlapHold, FlapLimit time.Duration
}

// DefaultOptions returns the limits of P6.2.
func DefaultOptions() Options {
	return Options{
		Suspect: 20 * time.Second, Down: time.Minute,
		ServiceLost: time.Minute, BatchLost: 5 * time.Minute,
		Gap:        5 * time.Second,
		StormNodes: 10, StormShare: 0.3, StormWindow: time.Minute,
		FlapWindow: 15 * time.Minute, FlapHold: 30 * time.Second, FlapLimit: 10 * time.Minute,
	}
}

// Rearm returns since when silence counts, given when the watcher looked last and looks now: unchanged, or
// now after a gap of its own. A new leader begins with now.
func Rearm(armed, last, now time.Duration, o Options) time.Duration {
	if now-last > o.Gap || now < last {
		return now
	}
	return armed
}

// Input is all that a verdict on a node looks at.
type Input struct {
	// Domain is the one that the watcher is the leader of, cluster.DefaultDomain where it is empty; Incarnation is that
	// of its store.
	Domain      string
	Incarnation uint64
	// Node is the last verdict, nil if there is none.
	Node *cluster.Node
	// Status is what the node registered, nil if it never did.
	Status *cluster.NodeStatus
	// Pulse is the last sign of life that this server knows of, nil if it knows none.
	Pulse *cluster.Pulse
	// Host holds the operator's settings; it may be nil.
	Host *cluster.Host
	// Gone says that the node is known not to come back: its instance was destroyed. Host.Gone says the same.
	Gone bool
	// Paused says that a mass silence holds rescheduling back (see Storm) and nobody overrode it.
	Paused bool
	// Left is how many attempts stand on the node, or are in a plan whose result is not known. It matters only where
	// the node is to be emptied.
	Left int
	// Stuck says why some of them cannot be moved away; empty where all can.
	Stuck string
	// Unkillable is a task on the node that lives after KILL, or empty.
	Unkillable cluster.TaskID
	// Recovered says that the operator decided how to go on after the store went back (P1.7): what agents have seen is
	// then the least that holds.
	Recovered bool
	// Held says that this decision is awaited: what the store lost may have said otherwise, so that no node changes
	// hands and none is forgotten.
	Held bool
	// Armed is since when silence counts; see Rearm.
	Armed time.Duration
	Now   time.Duration
	// Wall is the time to write into records.
	Wall    time.Time
	Options Options
}

// Verdict is what the watcher thinks of a node.
type Verdict struct {
	// Node is the record as it should be; it is to be written if Changed.
	Node    cluster.Node
	Changed bool
	// Event tells of the change.
	Event cluster.Event
	// Heard says that the node gave a sign of life and is not late.
	Heard bool
	// Silence is how long the node is late, 0 if it is not.
	Silence time.Duration
	Gone    bool
	Paused  bool
	// Foreign says that another domain owns the node, or nobody: nothing of it is judged.
	Foreign bool
	// Drain, unless nil, asks for the node to be emptied: the operator's word, or what follows from a change of owner
	// or from a task that cannot be killed.
	Drain *cluster.Drain
	// Forget says that the node's records are to be removed: it is gone and nothing stands on it any more.
	Forget bool
	// NextLook is when the verdict can change by time alone, on the boot-time clock; 0 for never.
	NextLook time.Duration

	limits Options
}

// Look returns the verdict on a node, or ok false if nothing is known of it.
func Look(in Input) (v Verdict, ok bool) {
	if in.Status == nil && in.Node == nil {
		return v, false
	}
	if in.Domain == "" {
		in.Domain = cluster.DefaultDomain
	}
	v = Verdict{Gone: in.Gone || in.Host != nil && in.Host.Gone, Paused: in.Paused, limits: in.Options}
	v.Node, v.Foreign = owned(in)
	if v.Foreign {
		return v, true
	}
	v.listen(in)
	v.empty(in)
	v.welcome(in)
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
		v.tell("node."+string(state), reason)
		if state == cluster.NodeDown {
			v.Event.Reason = cluster.ReasonNodeDown
		}
	}
	v.Forget = v.Gone && in.Host != nil && in.Host.Gone && in.Left == 0 && !in.Held
	v.release(in)
	v.Changed = in.Node == nil || *in.Node != v.Node
	return v, true
}

func (v *Verdict) tell(kind, message string) {
	v.Event = cluster.Event{Type: kind, Node: v.Node.Name, Message: message}
}

// listen measures the silence: from the promised heartbeat, or from when silence began to count.
func (v *Verdict) listen(in Input) {
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
	if v.Heard { // its end comes earlier than what follows where silence counts from later on
		v.look(in.Pulse.At+in.Pulse.Next+o.Suspect, in.Now)
	}
	for _, limit := range []time.Duration{o.Suspect, o.Down, o.ServiceLost, o.BatchLost} {
		v.look(from+limit, in.Now)
	}
}

// look asks for another look at a time to come, if no earlier one is asked for.
func (v *Verdict) look(at, now time.Duration) {
	if at > now && (v.NextLook == 0 || at < v.NextLook) {
		v.NextLook = at
	}
}

// judge returns the node's state, and a sentence why; none where the last one stands. Without a sign of life a state
// only gets worse.
func (v *Verdict) judge(in Input) (cluster.NodeState, string) {
	was := v.Node.State
	synced := in.Status != nil && in.Status.Synced
	switch {
	case v.Gone:
		return cluster.NodeDown, "it is known to be gone"
	case v.Heard && !synced:
		return cluster.NodeJoining, unless(was == cluster.NodeJoining, "its full report is awaited")
	case v.Heard && !v.Node.Until.IsZero():
		return cluster.NodeSuspect, flapping(v.Node)
	case v.Heard && v.Drain != nil:
		return v.emptying(in)
	case v.Heard && (was == cluster.NodeSuspect || was == cluster.NodeDown):
		return cluster.NodeReady, "it is heard again"
	case v.Heard && (was == cluster.NodeDraining || was == cluster.NodeDrained):
		return cluster.NodeReady, "it is not drained any more"
	case v.Heard:
		return cluster.NodeReady, unless(was == cluster.NodeReady, "its full report is in")
	case was == cluster.NodeDown || v.Silence >= in.Options.Down:
		return cluster.NodeDown, fmt.Sprintf("no report for %s after it was due", in.Options.Down)
	case v.Silence >= in.Options.Suspect:
		return cluster.NodeSuspect, fmt.Sprintf("no report for %s after it was due", in.Options.Suspect)
	case was == "":
		return cluster.NodeJoining, "it registered and is not heard yet"
	}
	return was, ""
}

func unless(stands bool, reason string) string {
	if stands {
		return ""
	}
	return reason
}

// Absence returns what the verdict means for a task of the node: batch for a job's, else a service's.
func (v *Verdict) Absence(batch bool) Absence {
	limit := v.limits.ServiceLost
	if batch {
		limit = v.limits.BatchLost
	}
	switch {
	case v.Foreign: // another domain took it by force: nobody here will hear of the task again
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

// Takes reports whether the node may be given new tasks, as far as the watcher is concerned.
func (v *Verdict) Takes() bool { return v.Node.State == cluster.NodeReady && !v.Gone && !v.Foreign }
