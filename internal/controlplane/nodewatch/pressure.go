package nodewatch

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// pressedNode is a node that is short of memory.
type pressedNode struct {
	pressure *cluster.Pressure
	// victim is the UUID of the attempt that is to move; empty for none.
	victim string
}

// notePressure takes note of memory pressure in a node's newest report. One attempt moves at a time: the agent's next
// suggestion counts once the attempt of the last one is gone, as only then its memory is free.
func (w *Watch) notePressure(snap *store.Snapshot, name string, in *watcher.Input, out *Judged) {
	p := pressureOf(in)
	was := w.pressed[name]
	if p == nil {
		if was != nil {
			delete(w.pressed, name)
			out.Touched = append(out.Touched, name)
		}
		return
	}
	if was == nil {
		was = &pressedNode{}
		w.pressed[name] = was
		e := cluster.Event{Type: "node.pressure", Node: name, Reason: cluster.ReasonPressure, Message: p.Message}
		out.Units = append(out.Units, store.Unit{Events: []cluster.Event{e}})
	}
	if was.victim == p.Victim || observe.IsRelieving(snap, name) {
		return
	}
	was.victim, was.pressure = p.Victim, p
	out.Touched = append(out.Touched, name)
}

// pressureOf returns the memory pressure in the newest report of the node's present session, or nil.
func pressureOf(in *watcher.Input) *cluster.Pressure {
	if stats := statsOf(in); stats != nil {
		return stats.Pressure
	}
	return nil
}

// PressureOn returns the memory pressure that makes an attempt move, or nil.
func (w *Watch) PressureOn(row *store.AttemptRow) *cluster.Pressure {
	if len(w.pressed) == 0 || row.Desired == nil {
		return nil
	}
	if p := w.pressed[row.Node]; p != nil && p.victim != "" && p.victim == row.Desired.UUID {
		return p.pressure
	}
	return nil
}
