package store

import (
	"container/list"
	"sync"

	"github.com/berthd/berth/internal/cluster"
)

// mostDropped is how many nodes whose pulses were dropped are kept for those who ask what changed. Who asks so rarely
// that more went meanwhile is given all pulses instead.
const mostDropped = 1024

// soft is what is kept in memory only: the last sign of life of each node. Each change has a number, and nodes stand in
// the order of their last one, so that what changed since another is found without looking at the rest, by any number
// of readers.
type soft struct {
	mu sync.Mutex
	// changes counts them, from 1 on: 0 is before the first.
	changes uint64
	// forgotten is the last change that was dropped from gone: what happened before it cannot be told one by one.
	forgotten uint64
	nodes     map[string]*list.Element
	// known and gone hold *sign, newest change first: those that have a pulse, and those whose pulse was dropped.
	known, gone list.List
}

// sign is the last sign of life of a node.
type sign struct {
	node   string
	pulse  cluster.Pulse
	change uint64
	gone   bool
}

// get returns a node's sign where it has a pulse, else nil. s.mu is held.
func (s *soft) get(node string) *sign {
	if e := s.nodes[node]; e != nil && !of(e).gone {
		return of(e)
	}
	return nil
}

func of(e *list.Element) *sign {
	s, _ := e.Value.(*sign)
	return s
}

// set puts a node first, in the list that it belongs to. s.mu is held.
func (s *soft) set(node string, p cluster.Pulse, gone bool) {
	if s.nodes == nil {
		s.nodes = map[string]*list.Element{}
	}
	s.changes++
	to := &s.known
	if gone {
		to = &s.gone
	}
	e := s.nodes[node]
	if e != nil && of(e).gone == gone {
		of(e).pulse, of(e).change = p, s.changes
		to.MoveToFront(e)
		return
	}
	if e != nil {
		s.known.Remove(e) // of the two lists only the one that it is in heeds it
		s.gone.Remove(e)
	}
	s.nodes[node] = to.PushFront(&sign{node, p, s.changes, gone})
	for s.gone.Len() > mostDropped {
		last := s.gone.Back()
		s.forgotten = of(last).change
		delete(s.nodes, of(last).node)
		s.gone.Remove(last)
	}
}

// PulseChanges are the signs of life that changed since a mark.
type PulseChanges struct {
	// Mark is what to ask with next.
	Mark uint64
	// All says that Pulses holds all there are and that no other node has one, whatever was told before.
	All bool
	// Pulses are those that were set, as they are now, and Dropped the nodes that have none any more.
	Pulses  map[string]cluster.Pulse
	Dropped []string
}

// SetPulse records a sign of life of a node's session. The highest (session, sequence) wins (P6.1).
func (t *Tables) SetPulse(node string, p cluster.Pulse) {
	t.soft.mu.Lock()
	defer t.soft.mu.Unlock()
	if old := t.soft.get(node); old != nil &&
		(p.Session < old.pulse.Session || p.Session == old.pulse.Session && p.Seq < old.pulse.Seq) {
		return
	}
	t.soft.set(node, p, false)
}

// Pulse returns the last sign of life of a node that this server knows of.
func (t *Tables) Pulse(node string) (cluster.Pulse, bool) {
	t.soft.mu.Lock()
	defer t.soft.mu.Unlock()
	if s := t.soft.get(node); s != nil {
		return s.pulse, true
	}
	return cluster.Pulse{}, false
}

// Pulses returns a copy of the last signs of life of all nodes that this server knows of.
func (t *Tables) Pulses() map[string]cluster.Pulse {
	t.soft.mu.Lock()
	defer t.soft.mu.Unlock()
	return t.soft.all()
}

// all returns all pulses. s.mu is held.
func (s *soft) all() map[string]cluster.Pulse {
	out := make(map[string]cluster.Pulse, s.known.Len())
	for e := s.known.Front(); e != nil; e = e.Next() {
		out[of(e).node] = of(e).pulse
	}
	return out
}

// PulsesSince returns what changed since the mark of an earlier answer, 0 for all. It costs what changed, and each
// reader has a mark of its own. A pulse that was set again to what it was counts as a change.
func (t *Tables) PulsesSince(mark uint64) PulseChanges {
	t.soft.mu.Lock()
	defer t.soft.mu.Unlock()
	c := PulseChanges{Mark: t.soft.changes}
	if mark == 0 || mark < t.soft.forgotten {
		c.All, c.Pulses = true, t.soft.all()
		return c
	}
	c.Pulses = map[string]cluster.Pulse{}
	for e := t.soft.known.Front(); e != nil && of(e).change > mark; e = e.Next() {
		c.Pulses[of(e).node] = of(e).pulse
	}
	for e := t.soft.gone.Front(); e != nil && of(e).change > mark; e = e.Next() {
		c.Dropped = append(c.Dropped, of(e).node)
	}
	return c
}

// DropPulse forgets the signs of life of a node.
func (t *Tables) DropPulse(node string) {
	t.soft.mu.Lock()
	defer t.soft.mu.Unlock()
	if t.soft.get(node) != nil {
		t.soft.set(node, cluster.Pulse{}, true)
	}
}
