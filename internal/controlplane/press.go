package controlplane

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
	"github.com/berthd/berth/internal/store"
)

// press is a node that is short of memory.
type press struct {
	pressure *cluster.Pressure
	// victim is the UUID of the attempt that is to move, empty for none.
	victim string
}

// feel takes note of what a node's newest sign of life says of its memory. One attempt moves at a time: the agent's
// next suggestion counts once the last one's attempt is gone, as its memory is free only then.
func (w *watch) feel(snap *store.Snapshot, name string, in *watcher.Input, out *judged) {
	p := pressureOf(in)
	was := w.pressed[name]
	if p == nil {
		if was != nil {
			delete(w.pressed, name)
			out.touched = append(out.touched, name)
		}
		return
	}
	if was == nil {
		was = &press{}
		w.pressed[name] = was
		e := cluster.Event{Type: "node.pressure", Node: name, Reason: cluster.ReasonPressure, Message: p.Message}
		out.units = append(out.units, store.Unit{Events: []cluster.Event{e}})
	}
	if was.victim == p.Victim || relieving(snap, name) {
		return
	}
	was.victim, was.pressure = p.Victim, p
	out.touched = append(out.touched, name)
}

// pressureOf returns what the newest sign of life of the node's present session says of its memory, nil for nothing.
func pressureOf(in *watcher.Input) *cluster.Pressure {
	if stats := statsOf(in); stats != nil {
		return stats.Pressure
	}
	return nil
}

// relieving reports whether an attempt is on its way from the node because of its memory.
func relieving(snap *store.Snapshot, node string) bool {
	for row := range snap.NodeAttempts(node) {
		if !row.Standing() || row.Observed != nil && row.Observed.Gone {
			continue
		}
		if o := row.Outcome; o != nil && o.Reason == cluster.ReasonPressure {
			return true
		}
		if d := row.Desired; d != nil && d.Stop != nil && d.Stop.Reason == cluster.ReasonPressure {
			return true
		}
	}
	return false
}

// pressure returns why the attempt is to move from its node, or nil.
func (w *watch) pressure(row *store.AttemptRow) *cluster.Pressure {
	if len(w.pressed) == 0 || row.Desired == nil {
		return nil
	}
	if p := w.pressed[row.Node]; p != nil && p.victim != "" && p.victim == row.Desired.UUID {
		return p.pressure
	}
	return nil
}
