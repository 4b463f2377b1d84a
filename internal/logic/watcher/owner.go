package watcher

import (
	"cmp"
	"fmt"

	"github.com/berthd/berth/internal/cluster"
)

// resolveOwner returns the node's record with the present data of its registration. If the node has no owner, the
// record claims it. foreign says that another domain owns it.
//
// Each change of the owner is a compare-and-set of the record, and only the owner releases a node (P7.1). A domain
// claims a node that the operator gave to it when no other domain owns it. By force it also claims the
// node when the operator raised Host.Generation above the record's. A claim after another owner, in this store or in
// one that agents knew before, raises the generation. Agents then refuse late orders of the former owner (P1.6). While
// the operator's decision about a store that went back is awaited, only a node without a record is claimed: it gets a
// verdict, and its tasks get no orders.
func resolveOwner(in Input) (n cluster.Node, foreign bool) {
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
	case n.Domain == in.Domain && wantedDomain(in) == in.Domain:
		n.Generation = max(n.Generation, forced)
	case n.Domain == in.Domain: // a raised generation is for the next owner
	case wantedDomain(in) != in.Domain, in.Held && in.Node != nil:
		return n, true
	case n.Domain == "":
		n.Domain, n.Generation = in.Domain, max(claimGeneration(in), forced)
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

// wantedDomain returns the domain that the operator gave the node to.
func wantedDomain(in Input) string { return cmp.Or(in.WantedDomain, cluster.DefaultDomain) }

// claimGeneration returns the generation of a claim of a node without an owner.
func claimGeneration(in Input) uint64 {
	if in.Node != nil { // it had an owner, which released it
		return in.Node.Generation + 1
	}
	if in.Status == nil {
		return 1
	}
	shown := in.Status.Token
	if shown.Incarnation > in.Incarnation { // the token is of another store
		shown.Generation++
	}
	return max(1, shown.Generation)
}

// setDrain sets Drain if the node must be emptied.
func (v *Verdict) setDrain(in Input) {
	switch {
	case in.Host != nil && in.Host.Drain != nil:
		v.Drain = in.Host.Drain
	case wantedDomain(in) != in.Domain, in.Unkillable != "":
		v.Drain = &cluster.Drain{}
	}
}

// drainProgress returns the state of a node that is being drained, and the reason.
func (v *Verdict) drainProgress(in Input) (cluster.NodeState, string) {
	if in.Left == 0 {
		return cluster.NodeDrained, reasonUnless(v.Node.State == cluster.NodeDrained, "no tasks left")
	}
	reason := "its tasks are moving away"
	switch d := v.Drain; {
	case in.Host != nil && in.Host.Drain == d && d.Force:
		reason = "its tasks are stopping"
	case in.Host != nil && in.Host.Drain == d && !d.Deadline.IsZero():
		reason += ", and what is left at " + d.Deadline.UTC().Format("15:04:05 on 2 January") + " UTC is stopped"
	case in.Host != nil && in.Host.Drain == d:
	case wantedDomain(in) != in.Domain:
		reason = fmt.Sprintf("moving to the domain %s: %s", wantedDomain(in), reason)
	default:
		reason = fmt.Sprintf("%s still running after SIGKILL: %s", in.Unkillable, reason)
	}
	if in.Stuck != "" {
		reason += "; " + in.Stuck
	}
	return cluster.NodeDraining, reason
}

// release gives up a node that belongs to another domain, once its record says drained and nothing runs on it. No plan
// of this leader can then name it any more (P7.1, P3.1, T15).
func (v *Verdict) release(in Input) {
	if in.Held || wantedDomain(in) == in.Domain || in.Left > 0 || in.Node == nil ||
		in.Node.State != cluster.NodeDrained || v.Node.State != cluster.NodeDrained {
		return
	}
	v.setEvent("node.released", fmt.Sprintf("the domain %s may claim it", wantedDomain(in)))
	v.Node.Domain, v.Node.State, v.Node.Reason, v.Node.Since = "", cluster.NodeJoining, v.Event.Message, in.Wall
}
