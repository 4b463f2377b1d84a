package watcher

import (
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// welcome counts the return of a node that was silent, and how long it is held. A node that keeps going silent and
// coming back is damped: it takes no new tasks for a time that grows with each return in a row, while those that it has
// go on. The first return costs nothing.
func (v *Verdict) welcome(in Input) {
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
		if hold := in.Options.hold(n.Returns); hold > 0 {
			n.Until = in.Wall.Add(hold)
		}
	case v.Silence >= in.Options.Suspect, v.Heard && !in.Wall.Before(n.Until):
		n.Until = time.Time{}
	}
	if !n.Until.IsZero() {
		v.look(in.Now+n.Until.Sub(in.Wall), in.Now)
	}
}

// hold is how long a node is held after so many returns in a row.
func (o *Options) hold(returns int) time.Duration {
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

func flapping(n cluster.Node) string {
	return fmt.Sprintf("it fell silent and came back %d times in a row: no new tasks until %s UTC", n.Returns,
		n.Until.UTC().Format("15:04:05"))
}
