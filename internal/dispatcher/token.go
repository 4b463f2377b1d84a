package dispatcher

import (
	"cmp"
	"fmt"

	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/transport"
)

// incarnation returns the incarnation for events: that of the default domain.
func (d *Dispatcher) incarnation() uint64 {
	if l, ok := d.config.Tables.Snapshot().Leader(cluster.DefaultDomain); ok {
		return l.Value.Incarnation
	}
	return 0
}

// owningDomain returns the domain that owns a node, else the domain that the operator gave it to.
func owningDomain(snap *store.Snapshot, node string) string {
	if n, ok := snap.Node(node); ok && n.Value.Domain != "" {
		return n.Value.Domain
	}
	return snap.WantedDomain(node)
}

// tokenFor returns the token for an agent: that of the leader of its node's domain (P1.6). A node that was released and
// not claimed yet gets the highest token of all leaders, so that it refuses no message of the last one. No attempt is
// assigned to it.
func tokenFor(snap *store.Snapshot, node string) cluster.Token {
	var t cluster.Token
	n, known := snap.Node(node)
	if known {
		t.Generation = n.Value.Generation
	}
	if known && n.Value.Domain == "" {
		highest := t
		for _, l := range snap.Leaders() {
			seen := cluster.Token{Generation: t.Generation, Incarnation: l.Value.Incarnation, Epoch: l.Value.Epoch}
			if seen.Compare(highest) > 0 {
				highest = seen
			}
		}
		return highest
	}
	if l, ok := snap.Leader(owningDomain(snap, node)); ok {
		t.Incarnation, t.Epoch = l.Value.Incarnation, l.Value.Epoch
	}
	return t
}

// sentToken returns the token of an assignment whose record has a token: under the node's present generation, and never
// above the token of the node's own leader. Another domain's leader writes the stops of its tasks on a node that was
// taken from it by force. With that leader's token, the agent would refuse the messages of its own leader from then on.
func sentToken(snap *store.Snapshot, node string, written cluster.Token) cluster.Token {
	own := tokenFor(snap, node)
	written.Generation = own.Generation
	if own.Incarnation != 0 && written.Compare(own) > 0 {
		return own
	}
	return written
}

// seenLater reports whether an agent has seen a later state of the store than the snapshot (P1.7).
//
// A generation of the node above the seen one is a hand-over that the agent does not know of yet. A lower one says
// nothing, because generations begin again for a forgotten node. A node without an owner may have been in any domain:
// what it has seen is compared with the leader of the same incarnation.
func seenLater(snap *store.Snapshot, node string, seen cluster.Token) bool {
	own := tokenFor(snap, node)
	n, known := snap.Node(node)
	if known && own.Generation > seen.Generation {
		return false
	}
	if host, ok := snap.Host(node); ok && host.Value.Generation > seen.Generation {
		return false // its leader is about to claim it from another store (P7.2)
	}
	if !known || n.Value.Domain == "" {
		for _, l := range snap.Leaders() {
			if l.Value.Incarnation == seen.Incarnation {
				return seen.Epoch > l.Value.Epoch
			}
		}
	}
	return cmp.Or(cmp.Compare(seen.Incarnation, own.Incarnation), cmp.Compare(seen.Epoch, own.Epoch)) > 0
}

// releasedError refuses the agent of a node that was given to another owner (P7.2), or returns nil. The release is in
// the store before the stops of the deleted objects. So each snapshot that has such a stop has the release, too.
func (d *Dispatcher) releasedError(snap *store.Snapshot, node string) error {
	host, ok := snap.Host(node)
	if !ok || host.Value.Released == 0 || d.config.Without.Off(clause.Released) {
		return nil
	}
	return fmt.Errorf("%w: the node %s was released to another owner under the generation %d",
		transport.ErrRefused, node, host.Value.Released)
}
