package scheduler

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
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
func (f *Fleet) updateDeviceClass(i int32, devicesChanged bool) {
	s, l, all := &f.slots[i], &f.loads[i], &f.catalog.deviceClasses
	if l.class < 0 || len(s.node.Devices) == 0 {
		return
	}
	old, to := l.deviceClass, l.deviceClass
	if devicesChanged || old < 0 {
		shape := f.catalog.classes[l.class].shape
		f.catalog.buffer = appendDeviceClassKey(f.catalog.buffer[:0], shape, &s.node, s.deviceGroups, s.devices)
		to = all.findOrAdd(f.catalog.buffer, shape)
	}
	if old >= 0 {
		all.list[old].remove(f.deviceIndexEditor(), l.deviceClassKey, i)
	}
	en := f.catalog.deviceClassEntry(l, i)
	l.deviceClass, l.deviceClassKey = to, en.key
	all.list[to].insert(f.deviceIndexEditor(), en)
	if old >= 0 && old != to {
		all.removeIfEmpty(old)
	}
}

// leaveDeviceClass removes a node from its device class, if it is in one.
func (f *Fleet) leaveDeviceClass(i int32) {
	l, all := &f.loads[i], &f.catalog.deviceClasses
	if l.deviceClass < 0 {
		return
	}
	all.list[l.deviceClass].remove(f.deviceIndexEditor(), l.deviceClassKey, i)
	all.removeIfEmpty(l.deviceClass)
	l.deviceClass = -1
}

func (f *Fleet) deviceIndexEditor() indexEditor { return indexEditor{names: &f.names, withSpans: true} }

// appendDeviceClassKey appends all that the device class of a node depends on: its shape, its devices and what is free
// of each. Equal devices of one type are sorted. Devices that differ keep their order, because list order and ID order
// decide between devices that both suit.
func appendDeviceClassKey(b []byte, shape int32, n *Node, groups []deviceGroup, used deviceUses) []byte {
	b = appendNumber(b, uint64(shape))
	order := make([]int, 0, 8)
	for i := range groups {
		order = append(order, i)
	}
	slices.SortFunc(order, func(i, j int) int { return strings.Compare(groups[i].deviceType, groups[j].deviceType) })
	for _, i := range order {
		b = appendDeviceGroupKey(b, n, &groups[i], used)
	}
	return b
}

// devicesAlike reports whether the devices of one type differ only in their usage and their NUMA node, and are few
// enough for package packing.
func devicesAlike(n *Node, v *deviceGroup) bool {
	first := &n.Devices[v.positions[0]]
	return len(v.positions) <= packing.MostDevices && !slices.ContainsFunc(v.positions, func(at uint16) bool {
		d := &n.Devices[at]
		return d.Model != first.Model || d.Memory != first.Memory
	})
}

// deviceState is the part of a device's state that the key of a device class contains.
type deviceState struct {
	numa, share int
	memory      cluster.Bytes
}

func appendDeviceGroupKey(b []byte, n *Node, v *deviceGroup, used deviceUses) []byte {
	first := &n.Devices[v.positions[0]]
	b = appendNumber(textKey(b, v.deviceType), uint64(len(v.positions)))
	b = appendNumber(textKey(b, first.Model), uint64(first.Memory))
	all := make([]deviceState, 0, 16)
	for _, at := range v.positions {
		d := &n.Devices[at]
		p := deviceState{numa: d.Numa}
		if len(used) > 0 {
			u := used.of(d.ID)
			p.share, p.memory = u.Share, u.Memory
		}
		all = append(all, p)
	}
	alike := devicesAlike(n, v)
	if alike {
		slices.SortFunc(all, func(a, b deviceState) int {
			return cmp.Or(cmp.Compare(a.numa, b.numa), cmp.Compare(a.share, b.share), cmp.Compare(a.memory, b.memory))
		})
	}
	for _, p := range all {
		b = appendNumber(appendNumber(appendNumber(b, uint64(p.numa)), uint64(p.share)), uint64(p.memory))
	}
	if alike {
		return b
	}
	byID := slices.Clone(v.positions)
	slices.SortFunc(byID, func(i, j uint16) int { return strings.Compare(n.Devices[i].ID, n.Devices[j].ID) })
	for i, at := range v.positions {
		d := &n.Devices[at]
		b = appendNumber(appendNumber(textKey(b, d.Model), uint64(d.Memory)), uint64(byID[i]-v.positions[0]))
	}
	return b
}

// currentDeviceClasses returns the device classes after the cycle's placements so far.
func (y *cycle) currentDeviceClasses() *deviceClasses {
	base := &y.fleet.catalog.deviceClasses
	if y.deviceClassesSeen == len(y.touched) {
		return cmp.Or(y.deviceClasses, base)
	}
	if y.deviceClasses == nil {
		y.deviceClasses = &deviceClasses{
			list: slices.Clone(base.list), byKey: map[string]int32{}, fleetByKey: base.byKey,
		}
	}
	for _, slot := range y.touched[y.deviceClassesSeen:] {
		l := y.ownLoad(slot)
		if l.stale&staleDeviceClass == 0 || l.deviceClass < 0 {
			continue
		}
		l.stale &^= staleDeviceClass
		to := l.deviceClass
		if used, own := y.devices[slot]; own {
			shape := y.fleet.catalog.classes[l.class].shape
			y.buffer = appendDeviceClassKey(y.buffer[:0], shape, y.node(slot), y.deviceGroups[slot], used)
			to = y.deviceClasses.findOrAdd(y.buffer, shape)
		}
		y.deviceClasses.list[l.deviceClass].remove(y.deviceIndexEditor, l.deviceClassKey, slot)
		en := y.fleet.catalog.deviceClassEntry(l, slot)
		l.deviceClass, l.deviceClassKey = to, en.key
		y.deviceClasses.list[to].insert(y.deviceIndexEditor, en)
	}
	y.deviceClassesSeen = len(y.touched)
	return y.deviceClasses
}

// deviceFit is the result of a task class's device requests on the nodes of a device class.
type deviceFit struct {
	known, fits bool
	shape       int32
	groupValues []groupValue // by device type that the value model knows; nil if the value model does not apply
}

type groupValue struct{ before, after packing.DeviceValue }

// deviceFits are the results for all task classes with equal requests, by device class.
type deviceFits struct {
	list       []deviceFit
	store      []groupValue // backs all groupValues
	deviceless []bool       // by node class: it lacks the devices even when unused
}

// fitsByDeviceClass reports whether the class gets equal devices on all nodes of a device class. It does not if two of
// its requests share devices of one type: equal devices may then differ in the memory that is left.
func (c *taskClass) fitsByDeviceClass() bool {
	for i := range c.requests {
		if c.requests[i].Share > 0 && slices.ContainsFunc(c.requests[:i], func(r cluster.DeviceRequest) bool {
			return r.Share > 0 && r.Type == c.requests[i].Type
		}) {
			return false
		}
	}
	return true
}

// deviceFitsOf returns the results for the requests of a task class, which may be empty yet.
func (y *cycle) deviceFitsOf(c *taskClass) *deviceFits {
	if c.deviceFits != nil {
		return c.deviceFits
	}
	y.buffer = append(y.buffer[:0], 0)
	if c.usesValueModel {
		y.buffer[0] = 1
	}
	for i := range c.requests {
		y.buffer = requestKey(y.buffer, &c.requests[i])
	}
	p := y.deviceFits[string(y.buffer)]
	if p == nil {
		if y.deviceFits == nil {
			y.deviceFits = map[string]*deviceFits{}
		}
		p = &deviceFits{}
		y.deviceFits[string(y.buffer)] = p
	}
	c.deviceFits = p
	return p
}

// requestKey appends all fields of a request.
func requestKey(b []byte, r *cluster.DeviceRequest) []byte {
	numa := uint64(0)
	if r.OneNuma {
		numa = 1
	}
	b = textKey(b, r.Type)
	for _, n := range []uint64{uint64(r.Count), uint64(r.Share), uint64(r.Memory), numa, uint64(len(r.Models))} {
		b = appendNumber(b, n)
	}
	for _, model := range r.Models {
		b = textKey(b, model)
	}
	return b
}

// deviceFit returns the result of a task class's requests on a device class. It examines one node of it, once.
func (y *cycle) deviceFit(c *taskClass, all *deviceClasses, i int32) *deviceFit {
	list := y.deviceFitsOf(c)
	if len(list.list) < len(all.list) {
		list.list = append(list.list, make([]deviceFit, len(all.list)-len(list.list))...)
	}
	p := &list.list[i]
	if p.known {
		return p
	}
	slot := all.list[i].tree.slot
	p.known, p.fits, p.shape = true, !y.missesDevices(c, slot), all.list[i].shape
	if !p.fits || !y.valueModelApplies(c, y.fleet.loads[slot].class) {
		return p
	}
	groups := y.deviceGroupsOf(slot)
	after := groups
	if len(c.requests) > 0 {
		y.allocate(c, slot)
		after = y.tentative
	}
	from := len(list.store)
	for b := range groups {
		if groups[b].typeNumber >= 0 {
			w := y.fleet.valueModel.types[groups[b].typeNumber].values
			list.store = append(list.store,
				groupValue{w.DeviceValue(groups[b].devices), w.DeviceValue(after[b].devices)})
		}
	}
	p.groupValues = slices.Clip(list.store[from:])
	return p
}
