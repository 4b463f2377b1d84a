package watcher

import (
	"fmt"

	"github.com/berthd/berth/internal/cluster"
)

// owned returns the node's record, completed from what is known and claimed if nobody owns the node; or that it is
// another domain's.
//
// Each change of the owner is a compare-and-set of the record, and only the owner lets go (P7.1): a domain claims a
// node that the operator gave to it (Host.Domain) when no other owns it, or when the operator raised Host.Generation
// above the record's, which is force. A claim after another owner, in this store or in one that agents knew before,
// raises the generation, so that agents refuse what the former owner may still send (P1.6). While it is awaited how to
// go on with a store that went back, only a node without any record is claimed: it may be judged, and its tasks are
// told nothing.
func owned(in Input) (n cluster.Node, foreign bool) {
	if in.Node != nil {
		n = *in.Node
	}
	if in.Status != nil {
		n.Name, n.Session = in.Status.Name, in.Status.Session
	}
	forced := uint64(0)
	if in.Host != nil {
		forced = in.Host.Generation
	}
	switch {
	case n.Domain == in.Domain && wish(in) == in.Domain:
		n.Generation = max(n.Generation, forced)
	case n.Domain == in.Domain: // what was raised is for the next owner
	case wish(in) != in.Domain, in.Held && in.Node != nil:
		return n, true
	case n.Domain == "":
		n.Domain, n.Generation = in.Domain, max(claimed(in), forced)
	case forced > n.Generation:
		n.Domain, n.Generation = in.Domain, forced
	default:
		return n, true
	}
	if in.Recovered && in.Status != nil {
		n.Generation = max(n.Generation, in.Status.Token.Generation)
	}
	return n, false
}

// wish is the domain that the operator gave the node to.
func wish(in Input) string {
	if in.Host != nil && in.Host.Domain != "" {
		return in.Host.Domain
	}
	return cluster.DefaultDomain
}

// claimed is the generation with which a node without an owner is claimed.
func claimed(in Input) uint64 {
	if in.Node != nil { // it had one, which let go
		return in.Node.Generation + 1
	}
	if in.Status == nil {
		return 1
	}
	shown := in.Status.Token
	if shown.Incarnation > in.Incarnation { // of another store
		shown.Generation++
	}
	return max(1, shown.Generation)
}

// empty finds out whether the node is to be emptied.
func (v *Verdict) empty(in Input) {
	switch {
	case in.Host != nil && in.Host.Drain != nil:
		v.Drain = in.Host.Drain
	case wish(in) != in.Domain, in.Unkillable != "":
		v.Drain = &cluster.Drain{}
	}
}

// emptying returns how far the emptying of the node is.
func (v *Verdict) emptying(in Input) (cluster.NodeState, string) {
	if in.Left == 0 {
		return cluster.NodeDrained, unless(v.Node.State == cluster.NodeDrained, "nothing stands on it any more")
	}
	reason := "its tasks are moved away"
	switch d := v.Drain; {
	case in.Host != nil && in.Host.Drain == d && d.Force:
		reason = "its tasks are stopped"
	case in.Host != nil && in.Host.Drain == d && !d.Deadline.IsZero():
		reason += ", and what is left at " + d.Deadline.UTC().Format("15:04:05 on 2 January") + " UTC is stopped"
	case in.Host != nil && in.Host.Drain == d:
	case wish(in) != in.Domain:
		reason = fmt.Sprintf("it goes to the domain %s: %s", wish(in), reason)
	default:
		reason = fmt.Sprintf("%s lives after KILL: %s", in.Unkillable, reason)
	}
	if in.Stuck != "" {
		reason += "; " + in.Stuck
	}
	return cluster.NodeDraining, reason
}

// release lets go of a node that was given to another domain, once the record says that it is drained and still nothing
// stands on it: no plan of this leader can name it any more (P7.1, P3.1, T15).
func (v *Verdict) release(in Input) {
	if in.Held || wish(in) == in.Domain || in.Left > 0 || in.Node == nil || in.Node.State != cluster.NodeDrained ||
		v.Node.State != cluster.NodeDrained {
		return
	}
	v.tell("node.released", fmt.Sprintf("the domain %s may claim it", wish(in)))
	v.Node.Domain, v.Node.State, v.Node.Reason, v.Node.Since = "", cluster.NodeJoining, v.Event.Message, in.Wall
}
