package scheduler

import (
	"maps"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// classLabel is the label that the attribute node.class refers to.
const classLabel = "class"

// Node is what the scheduler knows of a node.
type Node struct {
	Name  string
	State cluster.NodeState
	// Cordon keeps new tasks away, except those of daemons. With Drain it keeps those away, too.
	Cordon, Drain    bool
	Arch, OS, Kernel string
	// Executors by name, such as "containerd".
	Executors []string
	// Labels are the agent's labels, overridden by the operator's.
	Labels cluster.Labels
	// Pool is the pool of the node, or "".
	Pool     string
	Taints   []cluster.Taint
	Capacity cluster.Demand
	// Devices are the devices that tasks may reserve, with unique IDs.
	Devices []cluster.Device
	// Reserved are the reservations of the node that have not ended, ordered by their begin.
	Reserved []*cluster.Reservation
	// Images are references of images that the node has.
	Images []string
	// Volumes are the keys of volumes on the node that bind their tasks to it.
	Volumes []string
	// Folders is what the node lends of its folders, and its copies of sticky volumes.
	Folders *cluster.FolderFacts
	// ReservedPorts are never given to tasks.
	ReservedPorts []int
	// Networks are the networks for tasks beside the node's own, with what each lacks.
	Networks []cluster.NetworkFact
}

// NodeOf joins the records of a node. A host or status that does not exist is nil. A node without a status has no
// capacity and no executor.
func NodeOf(host *cluster.Host, node *cluster.Node, status *cluster.NodeStatus) Node {
	n := Node{Name: node.Name, State: node.State, Labels: cluster.Labels{}}
	if status != nil {
		f := &status.Facts
		n.Arch, n.OS, n.Kernel = f.Arch, f.OS, f.Kernel
		n.Capacity = cluster.Demand{CPU: f.CPU, Memory: f.Memory, Disk: f.Disk}
		n.ReservedPorts, n.Devices, n.Images, n.Volumes, n.Networks = f.ReservedPorts, f.Devices, f.Images, f.Volumes,
			f.Networks
		n.Folders = f.Folders
		for _, e := range f.Executors {
			n.Executors = append(n.Executors, e.Name)
		}
		maps.Copy(n.Labels, f.Labels)
	}
	if host != nil {
		n.Drain = host.Drain != nil || host.Gone
		n.Cordon = host.Cordon || n.Drain
		n.Pool, n.Taints = host.Pool, host.Taints
		maps.Copy(n.Labels, host.Labels)
	}
	for _, name := range []string{cluster.LabelSecrets, cluster.LabelArtifacts, cluster.LabelIsolation} {
		delete(n.Labels, name)
	}
	if status != nil {
		maps.Copy(n.Labels, status.Facts.CapabilityLabels())
	}
	if delete(n.Labels, cluster.LabelServices); status != nil && status.Facts.Services {
		n.Labels[cluster.LabelServices] = "true"
	}
	return n
}

// Reservation is what one attempt of a task holds on a node, from its placement until nothing of it is left there.
type Reservation struct {
	// UUID is that of the attempt, or another text that is unique among reservations. A task may have several attempts
	// that hold room (P6.3).
	UUID string
	Task cluster.TaskID
	// Definition is what the attempt runs. If it is unknown, the attempt counts with the tasks of its own generation.
	// It does so only while all waiting tasks of its version are of that generation.
	Definition cluster.Ref
	Node       string
	Demand     cluster.Demand
	// Ports are the port numbers that the attempt holds on the node.
	Ports []int
	// Labels are the owner's labels, which relations select by. Priority is the task's.
	Labels   cluster.Labels
	Priority int
	// Devices are the devices that the attempt holds.
	Devices []cluster.DeviceUse
	// Away are the relations of its placement that are Required and Away: they exclude other tasks.
	Away []cluster.Relation
}

// Fleet is the nodes of one domain with their reservations. Its owner calls the methods that change it. Between these
// calls, several readers may use it at once.
type Fleet struct {
	slots  []slot
	loads  []load // by slot
	byName map[string]int32
	names  names   // of the nodes that are set
	vacant []int32 // slots to be reused
	// reserved is the number of operator's reservations on the nodes that are set.
	reserved       int
	catalog        catalog
	held           map[string]Reservation
	reservedGroups map[string]*reservedGroup // by the name that tasksOf returns; further definitions are chained
	spareGroups    []*reservedGroup          // empty groups for reuse
	// relationIndex counts the same reservations for relations.
	relationIndex relationIndex
	images        nodesByImage // of the nodes that are set
	volumes       nodesByImage // nodes that are set and have a volume
	sticky        nodesByCopy  // nodes that are set and have a copy of a sticky volume
	valueModel    *ValueModel  // nil if devices have no value
}

// slot is one node of a fleet. It exists while the node is set or something is reserved on it.
type slot struct {
	node  Node
	set   bool
	ports *portSet // nil if none is taken
	// devices is what is used, also of devices that the node no longer has.
	devices      deviceUses
	deviceGroups []deviceGroup // nil if the node is not set
}

// load is the capacity and usage of a node. It is apart from slot because cycles copy the loads that they change.
type load struct {
	capacity, used cluster.Demand
	key            [orders]uint64 // its keys in the trees of its node class
	at             [orders]uint64 // the keys by which the trees hold it
	stale          uint8          // in a cycle: bits of the orders whose trees hold an older state
	tasks          int32
	class          int32  // the node class; -1 if the node is not set
	turn           int32  // in a cycle: the number of touches up to the node's last
	deviceClass    int32  // the device class; -1 if none
	deviceClassKey uint64 // the key by which the tree of its device class holds it
}

func (l *load) free() cluster.Demand { return l.capacity.Sub(l.used) }

// NewFleet returns a fleet without nodes.
func NewFleet() *Fleet {
	f := &Fleet{
		byName:         map[string]int32{},
		catalog:        newCatalog(),
		held:           map[string]Reservation{},
		reservedGroups: map[string]*reservedGroup{},

		relationIndex: newRelationIndex(),
		images:        nodesByImage{},
		volumes:       nodesByImage{},
		sticky:        nodesByCopy{},
	}
	f.names.of = f.name
	return f
}

// SetNode adds the node, or replaces what is known of it. Its reservations stay. The fleet keeps n's slices and map;
// the caller must not change them afterwards.
func (f *Fleet) SetNode(n Node) {
	i := f.slot(n.Name)
	s := &f.slots[i]
	if s.set {
		f.removeFromIndex(i)
	} else {
		f.names.add(i)
	}
	s.node, s.set = n, true
	f.reserved += len(n.Reserved)
	s.deviceGroups = groupDevices(&s.node, s.devices, f.valueModel)
	f.images.add(i, n.Images)
	f.volumes.add(i, n.Volumes)
	f.sticky.add(i, n.Folders)
	for _, p := range n.ReservedPorts {
		f.ports(i).add(p)
	}
	f.noteLabels(i, n.Labels, 1)
	l := &f.loads[i]
	l.capacity, l.class = clamp(n.Capacity), f.catalog.enter(&n)
	f.catalog.rekey(l)
	for order := range orders {
		f.addToTree(order, i)
	}
	f.updateDeviceClass(i, true)
	f.updateFineLabels(n.Labels)
}

// removeFromIndex removes a node that is set from all indexes.
func (f *Fleet) removeFromIndex(i int32) {
	l := &f.loads[i]
	for order := range orders {
		f.removeFromTree(order, i)
	}
	f.leaveDeviceClass(i)
	f.catalog.leave(l.class)
	f.noteLabels(i, f.slots[i].node.Labels, -1)
	f.reserved -= len(f.slots[i].node.Reserved)
	f.images.remove(i, f.slots[i].node.Images)
	f.volumes.remove(i, f.slots[i].node.Volumes)
	f.sticky.remove(i, f.slots[i].node.Folders)
	l.class = -1
	for _, p := range f.slots[i].node.ReservedPorts {
		f.ports(i).remove(p)
	}
}

// addToTree adds a node to one of the trees of its class.
func (f *Fleet) addToTree(order int, i int32) {
	l := &f.loads[i]
	l.at[order] = l.key[order]
	t := &f.catalog.trees[order][l.class]
	*t = nodeTreeOf(f.nodeIndexEditor().insert(t.page, entry{key: l.key[order], slot: i, free: l.free()}))
}

// removeFromTree removes a node from one of the trees of its class.
func (f *Fleet) removeFromTree(order int, i int32) {
	l := &f.loads[i]
	t := &f.catalog.trees[order][l.class]
	*t = nodeTreeOf(f.nodeIndexEditor().remove(t.page, l.at[order], i))
}

// charge sets the usage of a node. If devices is true, the caller has changed the device usage already.
func (f *Fleet) charge(i int32, used cluster.Demand, tasks int32, devices bool) {
	l := &f.loads[i]
	l.used, l.tasks = used, l.tasks+tasks
	if l.class < 0 {
		return
	}
	f.catalog.rekey(l)
	for order := range orders {
		f.removeFromTree(order, i)
		f.addToTree(order, i)
	}
	f.updateDeviceClass(i, devices)
}

// useDevices adds device uses to a node, or with a sign of -1 removes them.
func (f *Fleet) useDevices(i int32, uses []cluster.DeviceUse, sign int) {
	if len(uses) == 0 {
		return
	}
	s := &f.slots[i]
	for _, u := range uses {
		s.devices = s.devices.add(u, sign)
	}
	updateFreeDevices(s.deviceGroups, &s.node, s.devices)
}

func (f *Fleet) nodeIndexEditor() indexEditor { return indexEditor{names: &f.names} }

func (f *Fleet) name(i int32) string { return f.slots[i].node.Name }

// ports returns the set of the ports taken on a node, for changing.
func (f *Fleet) ports(i int32) *portSet {
	s := &f.slots[i]
	if s.ports == nil {
		s.ports = &portSet{}
	}
	return s.ports
}

// RemoveNode forgets the node. Its reservations stay charged until they are released, and count again if the node comes
// back.
func (f *Fleet) RemoveNode(name string) {
	i, found := f.search(name)
	if !found {
		return
	}
	f.removeFromIndex(i)
	f.names.remove(i)
	s := &f.slots[i]
	s.node, s.set, s.deviceGroups = Node{Name: name}, false, nil
	f.vacate(i)
}

// Grow makes room for so many reservations in all, which speeds up filling a fleet. It changes nothing else.
func (f *Fleet) Grow(reservations int) {
	held := make(map[string]Reservation, max(reservations, len(f.held)))
	maps.Copy(held, f.held)
	f.held = held
}

// Reserve charges an attempt to its node, which need not be set yet. It replaces a reservation with the same UUID. The
// fleet keeps r's slices and map.
func (f *Fleet) Reserve(r Reservation) {
	f.Release(r.UUID)
	r.Demand = clamp(r.Demand)
	f.held[r.UUID] = r
	i := f.slot(r.Node)
	f.useDevices(i, r.Devices, 1)
	f.charge(i, f.loads[i].used.Add(r.Demand), 1, len(r.Devices) > 0)
	for _, p := range r.Ports {
		f.ports(i).add(p)
	}
	tasks, generation, definition := tasksOf(r.Task, r.Definition)
	first := f.reservedGroups[tasks]
	c := first.of(definition)
	if c == nil {
		c = f.newReservedGroup(definition, first)
		f.reservedGroups[tasks] = c
	}
	c.add(slotGenerationOf(i, generation))
	f.relationIndex.add(&r, i, 1)
}

// Release removes the reservation of an attempt. An unknown UUID is no error.
func (f *Fleet) Release(uuid string) {
	r, found := f.held[uuid]
	if !found {
		return
	}
	delete(f.held, uuid)
	i := f.byName[r.Node]
	f.useDevices(i, r.Devices, -1)
	f.charge(i, f.loads[i].used.Sub(r.Demand), -1, len(r.Devices) > 0)
	for _, p := range r.Ports {
		f.ports(i).remove(p)
	}
	tasks, generation, definition := tasksOf(r.Task, r.Definition)
	c := f.reservedGroups[tasks].of(definition)
	if c.remove(slotGenerationOf(i, generation)); len(c.counts) == 0 {
		f.removeReservedGroup(tasks, c)
	}
	f.relationIndex.add(&r, i, -1)
	f.vacate(i)
}

// Reserved returns the reservation of an attempt.
func (f *Fleet) Reserved(uuid string) (Reservation, bool) {
	r, found := f.held[uuid]
	return r, found
}

// Reservations returns the number of reservations.
func (f *Fleet) Reservations() int { return len(f.held) }

// Nodes returns the names of the nodes in order.
func (f *Fleet) Nodes() []string {
	names := make([]string, 0, f.names.count)
	for i := range f.names.all {
		names = append(names, f.name(i))
	}
	return names
}

// Node returns a node and its usage.
func (f *Fleet) Node(name string) (n Node, used cluster.Demand, found bool) {
	i, found := f.search(name)
	if !found {
		return Node{}, cluster.Demand{}, false
	}
	return f.slots[i].node, f.loads[i].used, true
}

// Clone returns an independent copy of the fleet, for what-if questions.
func (f *Fleet) Clone() *Fleet {
	c := &Fleet{
		slots:          slices.Clone(f.slots),
		loads:          slices.Clone(f.loads),
		byName:         maps.Clone(f.byName),
		vacant:         slices.Clone(f.vacant),
		catalog:        f.catalog.clone(),
		reserved:       f.reserved,
		held:           maps.Clone(f.held),
		reservedGroups: make(map[string]*reservedGroup, len(f.reservedGroups)),

		relationIndex: f.relationIndex.clone(),
		images:        make(nodesByImage, len(f.images)),
		volumes:       make(nodesByImage, len(f.volumes)),
		sticky:        f.sticky.clone(),
		valueModel:    f.valueModel,
	}
	c.names = f.names.clone(c.name)
	for image, nodes := range f.images { // order-free: a copy
		c.images[image] = maps.Clone(nodes)
	}
	for volume, nodes := range f.volumes { // order-free: a copy
		c.volumes[volume] = maps.Clone(nodes)
	}
	for i := range c.slots {
		c.slots[i].ports = c.slots[i].ports.clone()
		c.slots[i].devices = slices.Clone(c.slots[i].devices)
		if groups := c.slots[i].deviceGroups; groups != nil {
			c.slots[i].deviceGroups = copyDeviceGroups(nil, groups)
		}
	}
	for tasks, first := range f.reservedGroups { // order-free: a copy
		for o := first; o != nil; o = o.next {
			c.reservedGroups[tasks] = &reservedGroup{
				o.definition, maps.Clone(o.counts), slices.Clone(o.generations), c.reservedGroups[tasks],
			}
		}
	}
	return c
}

// search finds the slot of a node that is set.
func (f *Fleet) search(name string) (slot int32, found bool) {
	i, found := f.byName[name]
	return i, found && f.slots[i].set
}

// slot returns the slot of that name, and adds one if there is none.
func (f *Fleet) slot(name string) int32 {
	if i, found := f.byName[name]; found {
		return i
	}
	var i int32
	if last := len(f.vacant) - 1; last >= 0 {
		i, f.vacant = f.vacant[last], f.vacant[:last]
	} else {
		i = int32(len(f.slots))
		f.slots = append(f.slots, slot{})
		f.loads = append(f.loads, load{})
		f.names.order = append(f.names.order, 0)
	}
	f.slots[i] = slot{node: Node{Name: name}}
	f.loads[i] = load{class: -1, deviceClass: -1}
	f.byName[name] = i
	return i
}

// vacate frees the slot if its node is not set and nothing is reserved there.
func (f *Fleet) vacate(i int32) {
	if f.slots[i].set || f.loads[i].tasks > 0 {
		return
	}
	delete(f.byName, f.slots[i].node.Name)
	f.slots[i], f.loads[i] = slot{}, load{class: -1, deviceClass: -1}
	f.vacant = append(f.vacant, i)
}

// maxAmount is the largest amount of a resource, in its unit. Sums over the tasks of a node, and products with parts,
// stay within 64 bits.
const maxAmount = 1 << 53

// clamp brings outside amounts into the range from 0 to maxAmount.
func clamp(d cluster.Demand) cluster.Demand {
	return cluster.Demand{
		CPU:    min(max(d.CPU, 0), maxAmount),
		Memory: min(max(d.Memory, 0), maxAmount),
		Disk:   min(max(d.Disk, 0), maxAmount),
	}
}
