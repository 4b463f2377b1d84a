package fleet

import (
	"maps"
	"slices"

	"github.com/berthd/berth/internal/logic/scheduler/devices"
	"github.com/berthd/berth/internal/logic/scheduler/encode"
	"github.com/berthd/berth/internal/logic/scheduler/index"
)

// DeviceClass is a set of nodes with equal shape, equal devices and equal free devices. A device request has the same
// result on each of them. The nodes still differ in their node class and in free CPU and memory: a tree orders them by
// free CPU and memory, see deviceClassEntry.
type DeviceClass struct {
	key   string
	Shape int32
	Tree  index.Child // without a page if the device class is empty
	Span  index.Span
}

// DeviceClasses are the device classes of a fleet, or of a cycle that placed something.
type DeviceClasses struct {
	List       []DeviceClass
	byKey      map[string]int32
	fleetByKey map[string]int32 // in a cycle: byKey of its fleet
	vacant     []int32
}

// staleDeviceClass is the bit of load.stale which says that the trees of device classes hold an older state of the
// node.
const staleDeviceClass = 1 << orders

func newDeviceClasses() DeviceClasses { return DeviceClasses{byKey: map[string]int32{}} }

// findOrAdd returns the number of the device class with that key, and adds the class if there is none.
func (s *DeviceClasses) findOrAdd(name []byte, shape int32) int32 {
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
		i = int32(len(s.List))
		s.List = append(s.List, DeviceClass{})
	}
	s.List[i] = DeviceClass{key: string(name), Shape: shape}
	s.byKey[s.List[i].key] = i
	return i
}

// removeIfEmpty frees the number of a device class of a fleet if the class is empty.
func (s *DeviceClasses) removeIfEmpty(i int32) {
	old := &s.List[i]
	if old.Tree.Page != nil {
		return
	}
	delete(s.byKey, old.key)
	*old = DeviceClass{}
	s.vacant = append(s.vacant, i)
}

func (s *DeviceClass) insert(e index.Editor, en index.Entry) { s.setRoot(e.Insert(s.Tree.Page, en)) }

func (s *DeviceClass) remove(e index.Editor, key uint64, slot int32) {
	s.setRoot(e.Remove(s.Tree.Page, key, slot))
}

func (s *DeviceClass) setRoot(p *index.Page) {
	if s.Tree, s.Span = (index.Child{}), (index.Span{}); p != nil {
		s.Tree, s.Span = index.ChildOf(p), p.Span()
	}
}

func (s *DeviceClasses) clone() DeviceClasses {
	c := DeviceClasses{List: slices.Clone(s.List), byKey: maps.Clone(s.byKey), vacant: slices.Clone(s.vacant)}
	for i := range c.List {
		c.List[i].Tree.Page = c.List[i].Tree.Page.Clone()
	}
	return c
}

// updateDeviceClass moves a node with devices to its place: in its present device class, unless its devices changed.
func (g *Catalog) updateDeviceClass(s *slot, l *Load, i int32, devicesChanged bool) {
	all := &g.DeviceClasses
	if l.Class < 0 || len(s.node.Devices) == 0 {
		return
	}
	old, to := l.DeviceClass, l.DeviceClass
	if devicesChanged || old < 0 {
		shape := g.Classes[l.Class].Shape
		g.buffer = encode.Number(g.buffer[:0], uint64(shape))
		g.buffer = devices.AppendClassKey(g.buffer, s.node.Devices, s.deviceGroups, s.devices)
		to = all.findOrAdd(g.buffer, shape)
	}
	if old >= 0 {
		all.List[old].remove(g.deviceEditor, l.deviceClassKey, i)
	}
	en := g.deviceClassEntry(l, i)
	l.DeviceClass, l.deviceClassKey = to, en.Key
	all.List[to].insert(g.deviceEditor, en)
	if old >= 0 && old != to {
		all.removeIfEmpty(old)
	}
}

// leaveDeviceClass removes a node from its device class, if it is in one.
func (g *Catalog) leaveDeviceClass(l *Load, i int32) {
	all := &g.DeviceClasses
	if l.DeviceClass < 0 {
		return
	}
	all.List[l.DeviceClass].remove(g.deviceEditor, l.deviceClassKey, i)
	all.removeIfEmpty(l.DeviceClass)
	l.DeviceClass = -1
}
