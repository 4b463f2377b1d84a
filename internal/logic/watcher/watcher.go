// Package watcher turns the reports of nodes, and their silence, into verdicts.
//
// A node that registers is joining until its first full report is in, then ready. Silence counts from
// the heartbeat that the node promised next (P6.2): after Options.Suspect it takes no new tasks, after Options.Down it
// is down. Its tasks are lost by their class, which can be later. A node that is heard again is
// what it was. Only the leader watches, and only what it saw itself counts: silence
// starts again for all nodes with a new leader and after a gap of the watcher's own (Rearm), so a stopped or
// lagging leader condemns nobody. That is also the recovery barrier (P6.5): before its class's silence
// has passed again under this leader, no task of a node that did not report is lost.
//
// All spans are on the server's boot-time clock (P9.1), a time.Duration since the machine's boot.
package watcher

import (
	"fmt"
	"slices"
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
}

// DefaultOptions returns the limits of P6.2.
func DefaultOptions() Options {
	return Options{
		Suspect: 20 * time.Second, Down: time.Minute,
		ServiceLost: time.Minute, BatchLost: 5 * time.Minute,
		Gap:        5 * time.Second,
		StormNodes: 10, StormShare: 0.3, StormWindow: time.Minute,
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
	// Node is the last verdict, nil if there is none.
	Node *cluster.Node
	// Status is what the node registered, nil if it never did.
	Status *cluster.NodeStatus
	// Pulse is the last sign of life that this server knows of, nil if it knows none.
	Pulse *cluster.Pulse
	// Host holds the operator's settings; it may be nil.
	Host *cluster.Host
	// Gone says that the node is known not to come back: its instance was destroyed, or the operator said so.
	Gone bool
	// Paused says that a mass silence holds rescheduling back (see Storm) and nobody overrode it.
	Paused bool
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
	// NextLook is when the verdict can change by silence alone, on the boot-time clock; 0 for never.
	NextLook time.Duration

	limits Options
}

// Look returns the verdict on a node, or ok false if nothing is known of it.
func Look(in Input) (v Verdict, ok bool) {
	if in.Status == nil && in.Node == nil {
		return v, false
	}
	v = Verdict{Gone: in.Gone, Paused: in.Paused, limits: in.Options}
	v.listen(in)
	v.Node = record(in)
	state, reason := v.judge(in)
	if state != v.Node.State {
		v.Node.State, v.Node.Since = state, in.Wall
	}
	if in.Node == nil || in.Node.State != state {
		v.Node.Reason = reason
		v.Event = cluster.Event{Type: "node." + string(state), Node: v.Node.Name, Message: reason}
		if state == cluster.NodeDown {
			v.Event.Reason = cluster.ReasonNodeDown
		}
	}
	v.Changed = in.Node == nil || *in.Node != v.Node
	return v, true
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
	for _, limit := range []time.Duration{o.Suspect, o.Down, o.ServiceLost, o.BatchLost} {
		if at := from + limit; at > in.Now && (v.NextLook == 0 || at < v.NextLook) {
			v.NextLook = at
		}
	}
}

// record returns the node's record, completed from what is known. Ownership that was taken stays.
func record(in Input) cluster.Node {
	var n cluster.Node
	if in.Node != nil {
		n = *in.Node
	}
	if in.Status != nil {
		n.Name, n.Session = in.Status.Name, in.Status.Session
	}
	if n.Domain == "" {
		n.Domain = cluster.DefaultDomain
		if in.Host != nil && in.Host.Domain != "" {
			n.Domain = in.Host.Domain
		}
	}
	if in.Host != nil {
		n.Generation = max(n.Generation, in.Host.Generation)
	}
	n.Generation = max(n.Generation, 1)
	return n
}

// judge returns the node's state and a sentence why. Without a sign of life a state only gets worse.
func (v *Verdict) judge(in Input) (cluster.NodeState, string) {
	was := v.Node.State
	switch {
	case v.Gone:
		return cluster.NodeDown, "it is known to be gone"
	case v.Heard && (was == cluster.NodeDraining || was == cluster.NodeDrained):
		return was, ""
	case v.Heard && in.Status != nil && in.Status.Synced && (was == cluster.NodeSuspect || was == cluster.NodeDown):
		return cluster.NodeReady, "it is heard again"
	case v.Heard && in.Status != nil && in.Status.Synced:
		return cluster.NodeReady, "its full report is in"
	case v.Heard:
		return cluster.NodeJoining, "its full report is awaited"
	case was == cluster.NodeDown || v.Silence >= in.Options.Down:
		return cluster.NodeDown, fmt.Sprintf("no report for %s after it was due", in.Options.Down)
	case was == cluster.NodeSuspect || v.Silence >= in.Options.Suspect:
		return cluster.NodeSuspect, fmt.Sprintf("no report for %s after it was due", in.Options.Suspect)
	case was == "":
		return cluster.NodeJoining, "it registered and is not heard yet"
	}
	return was, ""
}

// Absence returns what the verdict means for a task of the node: batch for a job's, else a service's.
func (v *Verdict) Absence(batch bool) Absence {
	limit := v.limits.ServiceLost
	if batch {
		limit = v.limits.BatchLost
	}
	switch {
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
func (v *Verdict) Takes() bool { return v.Node.State == cluster.NodeReady && !v.Gone }

// Storm reports whether a mass silence is on: of all nodes watched, those silent now that fell silent
// within one window of each other are more than the allowed share. Nodes that are known to be gone
// do not count. It ends by itself as nodes return.
func Storm(verdicts []Verdict, now time.Duration, o Options) bool {
	total := 0
	var silent []time.Duration
	for i := range verdicts {
		v := &verdicts[i]
		if v.Gone {
			continue
		}
		total++
		if !v.Heard && v.Silence >= o.Suspect {
			silent = append(silent, now-v.Silence)
		}
	}
	if total < o.StormNodes {
		return false
	}
	slices.Sort(silent)
	first := 0
	for last := range silent {
		for silent[last]-silent[first] > o.StormWindow {
			first++
		}
		if float64(last-first+1) > o.StormShare*float64(total) {
			return true
		}
	}
	return false
}
