package reconciler_test

import (
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
)

// leaveSome makes an attempt leave its node, although the node is ready.
func (c *chaos) leaveSome() {
	if len(c.records) == 0 {
		return
	}
	r := c.records[c.choose("leaves", len(c.records))]
	l := &reconciler.Leave{Since: c.now, Message: "it is to leave"}
	l.Reason = []cluster.ReasonCode{
		cluster.ReasonTaint, cluster.ReasonConstraint, cluster.ReasonRebalance, cluster.ReasonPressure,
		cluster.ReasonPreempted, cluster.ReasonPreempted,
	}[c.choose("why", 6)]
	switch {
	case l.Reason == cluster.ReasonPreempted || c.job != nil && l.Reason == cluster.ReasonTaint:
		l.Now = true
	case l.Reason == cluster.ReasonRebalance:
		l.To = c.nodes[c.choose("where", len(c.nodes))]
	}
	if c.choose("later", 4) == 0 {
		l.From = c.now.Add(time.Minute)
	}
	c.leaves[r.uuid()] = l
}
