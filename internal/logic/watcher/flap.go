package watcher

import (
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// countReturn counts the return of a silent node and sets how long the node is delayed. A node that falls silent and
// returns again and again gets no new tasks for a time that doubles with each return in a row; its tasks continue. The
// first return has no effect.
func (v *Verdict) countReturn(in Input) {
	n := &v.Node
	silent := n.State == cluster.NodeSuspect || n.State == cluster.NodeDown
	switch {
	case v.Gone:
	case v.Heard && silent && n.Until.IsZero():
		if in.Wall.Sub(n.Returned) > in.Options.FlapWindow {
			n.Returns = 0
		}
		n.Returns++
		n.Returned = in.Wall
		if hold := in.Options.holdTime(n.Returns); hold > 0 {
			n.Until = in.Wall.Add(hold)
		}
	case v.Silence >= in.Options.Suspect, v.Heard && !in.Wall.Before(n.Until):
		n.Until = time.Time{}
	}
	if !n.Until.IsZero() {
		v.decideAgainAt(in.Now+n.Until.Sub(in.Wall), in.Now)
	}
}

// holdTime returns how long a node is held after the given number of returns in a row.
func (o *Options) holdTime(returns int) time.Duration {
	if returns < 2 {
		return 0
	}
	d := o.FlapHold
	for range returns - 2 {
		if d >= o.FlapLimit-d {
			return o.FlapLimit
		}
		d *= 2
	}
	return min(d, o.FlapLimit)
}

func flapReason(n cluster.Node) string {
	return fmt.Sprintf("went silent %d times in a row: no new tasks until %s UTC", n.Returns,
		n.Until.UTC().Format("15:04:05"))
}
