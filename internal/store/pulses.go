package store

import (
	"container/list"
	"sync"

	"github.com/berthd/berth/internal/cluster"
)

// maxDroppedPulses limits the nodes with dropped pulses that are kept for readers of changes. A reader that lags behind
// by more receives all pulses instead.
const maxDroppedPulses = 1024

// pulseTable holds the last sign of life of each node, in memory only. Each change has a number, and the lists order
// nodes by their last change. Any number of readers can therefore find the changes since a number without a scan of the
// rest.
type pulseTable struct {
	mu sync.Mutex
	// changes is the number of the last change; the first change has number 1.
	changes uint64
	// forgotten is the last change that was removed from gone. A reader whose mark is older receives all pulses.
	forgotten uint64
	nodes     map[string]*list.Element
	// known and gone hold *pulseEntry, newest change first: nodes with a pulse, and nodes whose pulse was dropped.
	known, gone list.List
}

// pulseEntry is the last sign of life of a node.
type pulseEntry struct {
	node   string
	pulse  cluster.Pulse
	change uint64
	gone   bool
}

// get returns the entry of a node that has a pulse, else nil. s.mu is held.
func (s *pulseTable) get(node string) *pulseEntry {
	if e := s.nodes[node]; e != nil && !entryOf(e).gone {
		return entryOf(e)
	}
	return nil
}

func entryOf(e *list.Element) *pulseEntry {
	s, _ := e.Value.(*pulseEntry)
	return s
}

// set moves a node to the front of the list that it belongs to. s.mu is held.
func (s *pulseTable) set(node string, p cluster.Pulse, gone bool) {
	if s.nodes == nil {
		s.nodes = map[string]*list.Element{}
	}
	s.changes++
	to := &s.known
	if gone {
		to = &s.gone
	}
	e := s.nodes[node]
	if e != nil && entryOf(e).gone == gone {
		entryOf(e).pulse, entryOf(e).change = p, s.changes
		to.MoveToFront(e)
		return
	}
	if e != nil {
		s.known.Remove(e) // Remove ignores an entry of another list
		s.gone.Remove(e)
	}
	s.nodes[node] = to.PushFront(&pulseEntry{node, p, s.changes, gone})
	for s.gone.Len() > maxDroppedPulses {
		last := s.gone.Back()
		s.forgotten = entryOf(last).change
		delete(s.nodes, entryOf(last).node)
		s.gone.Remove(last)
	}
}

// PulseChanges holds the signs of life that changed since a mark.
type PulseChanges struct {
	// Mark is the mark for the next call.
	Mark uint64
	// All says that Pulses is the complete set, which replaces all earlier answers.
	All bool
	// Pulses holds the present pulses of nodes with a changed one. Dropped lists the nodes whose pulse was dropped.
	Pulses  map[string]cluster.Pulse
	Dropped []string
}

// SetPulse records a sign of life of a node's session. The highest (session, sequence) wins (P6.1).
func (t *Tables) SetPulse(node string, p cluster.Pulse) {
	t.pulses.mu.Lock()
	defer t.pulses.mu.Unlock()
	if old := t.pulses.get(node); old != nil &&
		(p.Session < old.pulse.Session || p.Session == old.pulse.Session && p.Seq < old.pulse.Seq) {
		return
	}
	t.pulses.set(node, p, false)
}

// Pulse returns the last sign of life that this server knows of a node.
func (t *Tables) Pulse(node string) (cluster.Pulse, bool) {
	t.pulses.mu.Lock()
	defer t.pulses.mu.Unlock()
	if s := t.pulses.get(node); s != nil {
		return s.pulse, true
	}
	return cluster.Pulse{}, false
}

// Pulses returns a copy of the last signs of life of all nodes.
func (t *Tables) Pulses() map[string]cluster.Pulse {
	t.pulses.mu.Lock()
	defer t.pulses.mu.Unlock()
	return t.pulses.all()
}

// all returns all pulses. s.mu is held.
func (s *pulseTable) all() map[string]cluster.Pulse {
	out := make(map[string]cluster.Pulse, s.known.Len())
	for e := s.known.Front(); e != nil; e = e.Next() {
		out[entryOf(e).node] = entryOf(e).pulse
	}
	return out
}

// PulsesSince returns the changes since the mark of an earlier answer; mark 0 returns all pulses. The cost grows with
// the number of changes, and each reader keeps a mark of its own. Setting a pulse to an equal value counts as a change.
func (t *Tables) PulsesSince(mark uint64) PulseChanges {
	t.pulses.mu.Lock()
	defer t.pulses.mu.Unlock()
	c := PulseChanges{Mark: t.pulses.changes}
	if mark == 0 || mark < t.pulses.forgotten {
		c.All, c.Pulses = true, t.pulses.all()
		return c
	}
	c.Pulses = map[string]cluster.Pulse{}
	for e := t.pulses.known.Front(); e != nil && entryOf(e).change > mark; e = e.Next() {
		c.Pulses[entryOf(e).node] = entryOf(e).pulse
	}
	for e := t.pulses.gone.Front(); e != nil && entryOf(e).change > mark; e = e.Next() {
		c.Dropped = append(c.Dropped, entryOf(e).node)
	}
	return c
}

// DropPulse removes the pulse of a node.
func (t *Tables) DropPulse(node string) {
	t.pulses.mu.Lock()
	defer t.pulses.mu.Unlock()
	if t.pulses.get(node) != nil {
		t.pulses.set(node, cluster.Pulse{}, true)
	}
}
