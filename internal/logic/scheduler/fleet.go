package scheduler

import (
	"maps"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// classLabel is the label that the attribute node.class stands for.
const classLabel = "class"

// Node is what the scheduler knows of a machine.
type Node struct {
	Name  string
	State cluster.NodeState
	// Cordon keeps new tasks away, but for those of daemons. Drain says of a node with Cordon that it keeps those away,
	// too.
	Cordon, Drain    bool
	Arch, OS, Kernel string
	// Executors by name, such as "containerd".
	Executors []string
	// Labels are the agent's, overridden by the operator's.
	Labels cluster.Labels
	// Pool is the one that the node is in, or "".
	Pool     string
	Taints   []cluster.Taint
	Capacity cluster.Demand
	// Devices are those that tasks may reserve, each with an ID of its own.
	Devices []cluster.Device
	// Reserved are the reservations that keep it, those that are over left out, by when they begin.
	Reserved []*cluster.Reservation
	// Images are references of images that are on the node.
	Images []string
	// Volumes are the keys of volumes on the node that keep tasks with them.
	Volumes []string
	// Folders is what the node lends of its folders, and which copies it has of volumes that stick to a task.
	Folders *cluster.FolderFacts
	// ReservedPorts are never given to tasks.
	ReservedPorts []int
	// Networks are those that tasks can have beside the node's own, with what lacks for them.
	Networks []cluster.NetworkFact
}

// NodeOf joins the records of a node. A host or status that does not exist is nil; a node
// without a status has no capacity and no executor.
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
		maps.Copy(n.Labels, status.Facts.Offers())
	}
	if delete(n.Labels, cluster.LabelServices); status != nil && status.Facts.Services {
		n.Labels[cluster.LabelServices] = "true"
	}
	return n
}

// Reservation is what one attempt of a task takes up on a node, from its placement until nothing
// of it is left there.
type Reservation struct {
	// UUID of the attempt, or another text that names the reservation alone. A task may have several attempts
	// that take up room (P6.3).
	UUID string
	Task cluster.TaskID
	// Definition is what it runs. Where that is not known the attempt counts with the tasks of its own generation, as
	// long as all of its version that wait are of that.
	Definition cluster.Ref
	Node       string
	Demand     cluster.Demand
	// Ports are the numbers that the attempt holds on the node.
	Ports []int
	// Labels are the owner's, which relations look at, and Priority the task's.
	Labels   cluster.Labels
	Priority int
	// Devices are what it holds of the node's.
	Devices []cluster.DeviceUse
	// Away are the relations of its placement that keep other tasks away: those that are Required and Away.
	Away []cluster.Relation
}

// Fleet is the nodes of one domain and what is reserved on them. Its owner calls the methods that
// change it; several readers may use it at the same time between them.
type Fleet struct {
	slots  []slot
	loads  []load // by slot
	byName map[string]int32
	names  names   // of the nodes that are set
	vacant []int32 // slots to be used again
	// reserved counts what keeps the nodes that are set.
	reserved int
	catalog  catalog
	held     map[string]Reservation
	crowds   map[string]*crowd // by what tasksOf says; further ones are chained
	spare    []*crowd          // that were dispersed, to be used again
	// neighbours are the same reservations as relations look at them.
	neighbours neighbours
	images     images // of the nodes that are set
	volumes    images // likewise, the nodes that have a volume
	sticky     copies // likewise, the nodes that have a copy of one that sticks to a task
	worth      *Worth // nil: devices are worth nothing
}

// slot is one node of a fleet. It lives while the node is set or something is reserved on it.
type slot struct {
	node  Node
	set   bool
	ports *portSet // nil while none is taken
	// devices is what is used of them, also of such that the node has no more.
	devices deviceUses
	bays    []bay // the devices of a node that is set
}

// load is what a node has and what of it is used. It stands apart from the slot, as cycles copy those of the nodes that
// they use.
type load struct {
	capacity, used cluster.Demand
	key            [orders]uint64 // its place in the orders of its class
	at             [orders]uint64 // where the trees hold it
	stale          uint8          // of a cycle: bits of the orders whose trees do not hold it so yet
	tasks          int32
	class          int32  // -1 while the node is not set
	turn           int32  // of a cycle: how many touches there were with the last of the node
	shelf          int32  // where it is, by its devices; -1 on none
	shelved        uint64 // the key by which its shelf holds it
}

func (l *load) free() cluster.Demand { return l.capacity.Sub(l.used) }

// NewFleet returns a fleet without nodes.
func NewFleet() *Fleet {
	f := &Fleet{
		byName:  map[string]int32{},
		catalog: newCatalog(),
		held:    map[string]Reservation{},
		crowds:  map[string]*crowd{},

		neighbours: newNeighbours(),
		images:     images{},
		volumes:    images{},
		sticky:     copies{},
	}
	f.names.of = f.name
	return f
}

// SetNode adds the node, or replaces what is known of it. Its reservations stay. The fleet keeps n's
// slices and map, which must not be changed afterwards.
func (f *Fleet) SetNode(n Node) {
	i := f.slot(n.Name)
	s := &f.slots[i]
	if s.set {
		f.withdraw(i)
	} else {
		f.names.add(i)
	}
	s.node, s.set = n, true
	f.reserved += len(n.Reserved)
	s.bays = baysOf(&s.node, s.devices, f.worth)
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
		f.plant(order, i)
	}
	f.shelve(i, true)
	f.refine(n.Labels)
}

// withdraw takes out of the index what is known of a node that is set.
func (f *Fleet) withdraw(i int32) {
	l := &f.loads[i]
	for order := range orders {
		f.uproot(order, i)
	}
	f.unshelve(i)
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

// plant puts a node into one of the trees of its class.
func (f *Fleet) plant(order int, i int32) {
	l := &f.loads[i]
	l.at[order] = l.key[order]
	t := &f.catalog.trees[order][l.class]
	*t = topOf(f.editor().insert(t.page, entry{key: l.key[order], slot: i, free: l.free()}))
}

// uproot takes a node out of one of the trees of its class.
func (f *Fleet) uproot(order int, i int32) {
	l := &f.loads[i]
	t := &f.catalog.trees[order][l.class]
	*t = topOf(f.editor().remove(t.page, l.at[order], i))
}

// charge changes what is used of a node. What is used of its devices has changed before.
func (f *Fleet) charge(i int32, used cluster.Demand, tasks int32, devices bool) {
	l := &f.loads[i]
	l.used, l.tasks = used, l.tasks+tasks
	if l.class < 0 {
		return
	}
	f.catalog.rekey(l)
	for order := range orders {
		f.uproot(order, i)
		f.plant(order, i)
	}
	f.shelve(i, devices)
}

// useDevices changes what is used of a node's devices.
func (f *Fleet) useDevices(i int32, uses []cluster.DeviceUse, sign int) {
	if len(uses) == 0 {
		return
	}
	s := &f.slots[i]
	for _, u := range uses {
		s.devices = s.devices.add(u, sign)
	}
	fillBays(s.bays, &s.node, s.devices)
}

func (f *Fleet) editor() editor { return editor{names: &f.names} }

func (f *Fleet) name(i int32) string { return f.slots[i].node.Name }

// ports returns the set of the ports taken on a node, to be changed.
func (f *Fleet) ports(i int32) *portSet {
	s := &f.slots[i]
	if s.ports == nil {
		s.ports = &portSet{}
	}
	return s.ports
}

// RemoveNode forgets the node. What is reserved there stays charged until it is released, and counts
// again if the node comes back.
func (f *Fleet) RemoveNode(name string) {
	i, found := f.search(name)
	if !found {
		return
	}
	f.withdraw(i)
	f.names.remove(i)
	s := &f.slots[i]
	s.node, s.set, s.bays = Node{Name: name}, false, nil
	f.vacate(i)
}

// Grow makes room for so many reservations in all, which spares a fleet that is filled at once most of the work of
// growing. It changes nothing else.
func (f *Fleet) Grow(reservations int) {
	held := make(map[string]Reservation, max(reservations, len(f.held)))
	maps.Copy(held, f.held)
	f.held = held
}

// Reserve charges an attempt to its node, which need not be set yet. A reservation with the same
// UUID is replaced. The fleet keeps r's slices and map.
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
	first := f.crowds[tasks]
	c := first.of(definition)
	if c == nil {
		c = f.gather(definition, first)
		f.crowds[tasks] = c
	}
	c.add(spotOf(i, generation))
	f.neighbours.add(&r, i, 1)
}

// Release gives back what the attempt took up. One that holds nothing is no error.
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
	c := f.crowds[tasks].of(definition)
	if c.remove(spotOf(i, generation)); len(c.at) == 0 {
		f.disperse(tasks, c)
	}
	f.neighbours.add(&r, i, -1)
	f.vacate(i)
}

// Reserved returns the reservation of an attempt.
func (f *Fleet) Reserved(uuid string) (Reservation, bool) {
	r, found := f.held[uuid]
	return r, found
}

// Reservations returns how many attempts hold something.
func (f *Fleet) Reservations() int { return len(f.held) }

// Nodes returns the names of the nodes, ordered.
func (f *Fleet) Nodes() []string {
	names := make([]string, 0, f.names.count)
	for i := range f.names.all {
		names = append(names, f.name(i))
	}
	return names
}

// Node returns a node and what is reserved on it.
func (f *Fleet) Node(name string) (n Node, used cluster.Demand, found bool) {
	i, found := f.search(name)
	if !found {
		return Node{}, cluster.Demand{}, false
	}
	return f.slots[i].node, f.loads[i].used, true
}

// Clone returns a fleet that changes independently of f: to try what would be if.
func (f *Fleet) Clone() *Fleet {
	c := &Fleet{
		slots:    slices.Clone(f.slots),
		loads:    slices.Clone(f.loads),
		byName:   maps.Clone(f.byName),
		vacant:   slices.Clone(f.vacant),
		catalog:  f.catalog.clone(),
		reserved: f.reserved,
		held:     maps.Clone(f.held),
		crowds:   make(map[string]*crowd, len(f.crowds)),

		neighbours: f.neighbours.clone(),
		images:     make(images, len(f.images)),
		volumes:    make(images, len(f.volumes)),
		sticky:     f.sticky.clone(),
		worth:      f.worth,
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
		if bays := c.slots[i].bays; bays != nil {
			c.slots[i].bays = copyBays(nil, bays)
		}
	}
	for tasks, first := range f.crowds { // order-free: a copy
		for o := first; o != nil; o = o.next {
			c.crowds[tasks] = &crowd{o.definition, maps.Clone(o.at), slices.Clone(o.versions), c.crowds[tasks]}
		}
	}
	return c
}

// search finds a node that is set.
func (f *Fleet) search(name string) (slot int32, found bool) {
	i, found := f.byName[name]
	return i, found && f.slots[i].set
}

// slot returns the slot of that name, a new one if there is none.
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
		f.names.label = append(f.names.label, 0)
	}
	f.slots[i] = slot{node: Node{Name: name}}
	f.loads[i] = load{class: -1, shelf: -1}
	f.byName[name] = i
	return i
}

// vacate frees the slot if its node is not set and nothing is reserved there.
func (f *Fleet) vacate(i int32) {
	if f.slots[i].set || f.loads[i].tasks > 0 {
		return
	}
	delete(f.byName, f.slots[i].node.Name)
	f.slots[i], f.loads[i] = slot{}, load{class: -1, shelf: -1}
	f.vacant = append(f.vacant, i)
}

// mostOfAny bounds an amount of a resource, so that the sum over the tasks of a node, or an amount in parts of
// another, stays far from the end of the integers.
const mostOfAny = 1 << 53

// clamp brings amounts that came from outside into 0 to mostOfAny.
func clamp(d cluster.Demand) cluster.Demand {
	return cluster.Demand{
		CPU:    min(max(d.CPU, 0), mostOfAny),
		Memory: min(max(d.Memory, 0), mostOfAny),
		Disk:   min(max(d.Disk, 0), mostOfAny),
	}
}
