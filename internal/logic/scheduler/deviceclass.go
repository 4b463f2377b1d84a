package scheduler

import (
	"maps"
	"slices"
)

// deviceClass is a set of nodes with equal shape, equal devices and equal free devices. A device request has the same
// result on each of them. The nodes still differ in their node class and in free CPU and memory: a tree orders them by
// free CPU and memory, see deviceClassEntry.
type deviceClass struct {
	key   string
	shape int32
	tree  child // without a page if the device class is empty
	span  span
}

// deviceClasses are the device classes of a fleet, or of a cycle that placed something.
type deviceClasses struct {
	list       []deviceClass
	byKey      map[string]int32
	fleetByKey map[string]int32 // in a cycle: byKey of its fleet
	vacant     []int32
}

// staleDeviceClass is the bit of load.stale which says that the trees of device classes hold an older state of the
// node.
const staleDeviceClass = 1 << orders

func newDeviceClasses() deviceClasses { return deviceClasses{byKey: map[string]int32{}} }

// findOrAdd returns the number of the device class with that key, and adds the class if there is none.
func (s *deviceClasses) findOrAdd(name []byte, shape int32) int32 {
	if i, found := s.byKey[string(name)]; found {
		return i
	}
	if i, found := s.fleetByKey[string(name)]; found {
		return i
	}
	var i int32
	if last := len(s.vacant) - 1; last >= 0 {
		i, s.vacant = s.vacant[last], s.vacant[:last]
	} else {
		i = int32(len(s.list))
		s.list = append(s.list, deviceClass{})
	}
	s.list[i] = deviceClass{key: string(name), shape: shape}
	s.byKey[s.list[i].key] = i
	return i
}

// removeIfEmpty frees the number of a device class of a fleet if the class is empty.
func (s *deviceClasses) removeIfEmpty(i int32) {
	old := &s.list[i]
	if old.tree.page != nil {
		return
	}
	delete(s.byKey, old.key)
	*old = deviceClass{}
	s.vacant = append(s.vacant, i)
}

func (s *deviceClass) insert(e indexEditor, en entry) { s.setRoot(e.insert(s.tree.page, en)) }

func (s *deviceClass) remove(e indexEditor, key uint64, slot int32) {
	s.setRoot(e.remove(s.tree.page, key, slot))
}

func (s *deviceClass) setRoot(p *page) {
	if s.tree, s.span = (child{}), (span{}); p != nil {
		s.tree, s.span = childOf(p), p.span()
	}
}

func (s *deviceClasses) clone() deviceClasses {
	c := deviceClasses{list: slices.Clone(s.list), byKey: maps.Clone(s.byKey), vacant: slices.Clone(s.vacant)}
	for i := range c.list {
		c.list[i].tree.page = c.list[i].tree.page.clone()
	}
	return c
}

// updateDeviceClass moves a node with devices to its place: in its present device class, unless its devices changed.
func (g *catalog) updateDeviceClass(s *slot, l *load, i int32, devicesChanged bool) {
	all := &g.deviceClasses
	if l.class < 0 || len(s.node.Devices) == 0 {
		return
	}
	old, to := l.deviceClass, l.deviceClass
	if devicesChanged || old < 0 {
		shape := g.classes[l.class].shape
		g.buffer = appendNumber(g.buffer[:0], uint64(shape))
		g.buffer = appendDeviceClassKey(g.buffer, s.node.Devices, s.deviceGroups, s.devices)
		to = all.findOrAdd(g.buffer, shape)
	}
	if old >= 0 {
		all.list[old].remove(g.deviceEditor, l.deviceClassKey, i)
	}
	en := g.deviceClassEntry(l, i)
	l.deviceClass, l.deviceClassKey = to, en.key
	all.list[to].insert(g.deviceEditor, en)
	if old >= 0 && old != to {
		all.removeIfEmpty(old)
	}
}

// leaveDeviceClass removes a node from its device class, if it is in one.
func (g *catalog) leaveDeviceClass(l *load, i int32) {
	all := &g.deviceClasses
	if l.deviceClass < 0 {
		return
	}
	all.list[l.deviceClass].remove(g.deviceEditor, l.deviceClassKey, i)
	all.removeIfEmpty(l.deviceClass)
	l.deviceClass = -1
}
