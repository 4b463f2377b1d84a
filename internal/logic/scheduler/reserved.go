package scheduler

import (
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// reservedRefusal returns the reservation that keeps the node from the class now, as text; or "". It keeps no daemon
// away: what runs on every node runs on reserved nodes, too.
func reservedRefusal(c *taskClass, node *Node) string {
	named, in := c.Placement.Reservation, ""
	if len(node.Reserved) > 0 {
		in = clusterOf(c.Task)
	}
	holds := false
	for _, r := range node.Reserved {
		if r.Admits(in, c.Labels, named) {
			holds = holds || r.Name == named && r.Active(c.now)
			continue
		}
		if !c.Daemon && r.Refuses(c.now, c.TimeLimit) {
			return fmt.Sprintf("kept by the reservation %s from %s until %s", r.Name, r.From.UTC().Format(time.RFC3339),
				r.Until.UTC().Format(time.RFC3339))
		}
	}
	if named != "" && !holds {
		return "not kept now by the reservation " + named
	}
	return ""
}

// reservedKey appends what a node class depends on of its reservations.
func reservedKey(b []byte, list []*cluster.Reservation) []byte {
	b = appendNumber(b, uint64(len(list)))
	for _, r := range list {
		b = textKey(b, r.Name)
		for _, at := range []time.Time{r.From, r.Until} {
			b = appendNumber(appendNumber(b, uint64(at.Unix())), uint64(at.Nanosecond()))
		}
		b = appendNumber(b, uint64(r.Lead))
		b = appendNumber(b, uint64(len(r.Clusters)))
		for _, in := range r.Clusters {
			b = textKey(b, in)
		}
		b = labelsKey(b, r.Labels)
	}
	return b
}

// admittedKey appends what reservations depend on of a task.
func admittedKey(b []byte, p *cluster.Pending) []byte {
	b = textKey(b, clusterOf(p.Task))
	b = appendNumber(b, uint64(p.TimeLimit))
	return labelsKey(b, p.Labels)
}
