package scheduler

import (
	"maps"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// classLabel is the label that the attribute node.class stands for.
const classLabel = "class"

// Node is what the scheduler knows of a machine.
type Node struct {
	Name  string
	State cluster.NodeState
	// Cordon keeps new tasks away, but for those of daemons. Drain says of a node with Cordon that it keeps those away, too.
	Cordon, Drain    bool
	Arch, OS, Kernel string
	// Executors by name, such as "containerd".
	Executors []string
	// Labels are the agent's, overridden by the operator's.
	Labels   cluster.Labels
	Capacity cluster.Demand
	// ReservedPorts are never given to tasks.
	ReservedPorts []int
}

// NodeOf joins the records of a node. A host or status that does not exist is nil; a node
// without a status has no capacity and no executor.
func NodeOf(host *cluster.Host, node *cluster.Node, status *cluster.NodeStatus) Node {
	n := Node{Name: node.Name, State: node.State, Labels: cluster.Labels{}}
	if status != nil {
		f := &status.Facts
		n.Arch, n.OS, n.Kernel = f.Arch, f.OS, f.Kernel
		n.Capacity = cluster.Demand{CPU: f.CPU, Memory: f.Memory, Disk: f.Disk}
		n.ReservedPorts = f.ReservedPorts
		for _, e := range f.Executors {
			n.Executors = append(n.Executors, e.Name)
		}
		maps.Copy(n.Labels, f.Labels)
	}
	if host != nil {
		n.Drain = host.Drain != nil || host.Gone
		n.Cordon = host.Cordon || n.Drain
		maps.Copy(n.Labels, host.Labels)
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
	// Definition is what it runs. Where that is not known the attempt counts with the tasks of its own generation, as long as all
	// of its version that wait are of that.
	Definition cluster.Ref
	Node       string
	Demand     cluster.Demand
	// Ports are the numbers that the attempt holds on the node.
	Ports []int
}

// Fleet is the nodes of one domain and what is reserved on them. Its owner calls the methods that
// change it; several readers may use it at the same time between them.
type Fleet struct {
	slots  []slot
	loads  []load // by slot
	byName map[string]int32
	order  []int32 // slots of the nodes that are set, by name
	vacant []int32 // slots to be used again
	held   map[string]Reservation
	crowds map[string]*crowd // by what tasksOf says; further ones are chained
	spare  []*crowd          // that were dispersed, to be used again
}

// slot is one node of a fleet. It lives while the node is set or something is reserved on it.
type slot struct {
	node  Node
	set   bool
	ports portSet
}

// load is what a node has and what of it is used. It stands apart from the slot, as each cycle copies it.
type load struct {
	capacity, used cluster.Demand
	tasks          int
}

// crowd is the reservations that are counted together: those of which anti-affinity keeps apart. Of a service these are the
// tasks of one definition, so that a new version can be rolled out onto the nodes of the old one, and holds its distance when that is
// gone; of a job those of one step.
type crowd struct {
	definition cluster.Ref // zero for steps, and where it is not known
	at         map[spot]int32
	next       *crowd // of the same tasks, another definition
}

// spot is a slot and, in the lower bits, the generation of a service's task.
type spot uint64

const generationBits = 36

func spotOf(slot int32, generation uint64) spot {
	return spot(slot)<<generationBits | spot(min(generation, 1<<generationBits-1))
}

func (s spot) slot() int32 { return int32(s >> generationBits) }

func (s spot) generation() uint64 { return uint64(s & (1<<generationBits - 1)) }

// NewFleet returns a fleet without nodes.
func NewFleet() *Fleet {
	return &Fleet{
		byName: map[string]int32{},
		held:   map[string]Reservation{},
		crowds: map[string]*crowd{},
	}
}

// SetNode adds the node, or replaces what is known of it. Its reservations stay. The fleet keeps n's
// slices and map, which must not be changed afterwards.
func (f *Fleet) SetNode(n Node) {
	i := f.slot(n.Name)
	s := &f.slots[i]
	if s.set {
		for _, p := range s.node.ReservedPorts {
			s.ports.remove(p)
		}
	} else {
		at, _ := f.search(n.Name)
		f.order = slices.Insert(f.order, at, i)
	}
	s.node, s.set = n, true
	f.loads[i].capacity = clamp(n.Capacity)
	for _, p := range n.ReservedPorts {
		s.ports.add(p)
	}
}

// RemoveNode forgets the node. What is reserved there stays charged until it is released, and counts
// again if the node comes back.
func (f *Fleet) RemoveNode(name string) {
	at, found := f.search(name)
	if !found {
		return
	}
	i := f.order[at]
	f.order = slices.Delete(f.order, at, at+1)
	s := &f.slots[i]
	for _, p := range s.node.ReservedPorts {
		s.ports.remove(p)
	}
	s.node, s.set = Node{Name: name}, false
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
// UUID is replaced. The fleet keeps r's slice of ports.
func (f *Fleet) Reserve(r Reservation) {
	f.Release(r.UUID)
	r.Demand = clamp(r.Demand)
	f.held[r.UUID] = r
	i := f.slot(r.Node)
	f.loads[i].used = f.loads[i].used.Add(r.Demand)
	f.loads[i].tasks++
	for _, p := range r.Ports {
		f.slots[i].ports.add(p)
	}
	tasks, generation, definition := tasksOf(r.Task, r.Definition)
	first := f.crowds[tasks]
	c := first.of(definition)
	if c == nil {
		c = f.gather(definition, first)
		f.crowds[tasks] = c
	}
	c.at[spotOf(i, generation)]++
}

// Release gives back what the attempt took up. One that holds nothing is no error.
func (f *Fleet) Release(uuid string) {
	r, found := f.held[uuid]
	if !found {
		return
	}
	delete(f.held, uuid)
	i := f.byName[r.Node]
	f.loads[i].used = f.loads[i].used.Sub(r.Demand)
	f.loads[i].tasks--
	for _, p := range r.Ports {
		f.slots[i].ports.remove(p)
	}
	tasks, generation, definition := tasksOf(r.Task, r.Definition)
	c, at := f.crowds[tasks].of(definition), spotOf(i, generation)
	if left := c.at[at] - 1; left > 0 {
		c.at[at] = left
	} else if delete(c.at, at); len(c.at) == 0 {
		f.disperse(tasks, c)
	}
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
	names := make([]string, len(f.order))
	for at, i := range f.order {
		names[at] = f.slots[i].node.Name
	}
	return names
}

// Node returns a node and what is reserved on it.
func (f *Fleet) Node(name string) (n Node, used cluster.Demand, found bool) {
	at, found := f.search(name)
	if !found {
		return Node{}, cluster.Demand{}, false
	}
	i := f.order[at]
	return f.slots[i].node, f.loads[i].used, true
}

// Clone returns a fleet that changes independently of f: to try what would be if.
func (f *Fleet) Clone() *Fleet {
	c := &Fleet{
		slots:  slices.Clone(f.slots),
		loads:  slices.Clone(f.loads),
		byName: maps.Clone(f.byName),
		order:  slices.Clone(f.order),
		vacant: slices.Clone(f.vacant),
		held:   maps.Clone(f.held),
		crowds: make(map[string]*crowd, len(f.crowds)),
	}
	for i := range c.slots {
		c.slots[i].ports = c.slots[i].ports.clone()
	}
	for tasks, first := range f.crowds { // order-free: a copy
		for o := first; o != nil; o = o.next {
			c.crowds[tasks] = &crowd{o.definition, maps.Clone(o.at), c.crowds[tasks]}
		}
	}
	return c
}

// search finds a node that is set in the order of names.
func (f *Fleet) search(name string) (at int, found bool) {
	return slices.BinarySearchFunc(f.order, name, func(i int32, name string) int {
		return strings.Compare(f.slots[i].node.Name, name)
	})
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
	}
	f.slots[i] = slot{node: Node{Name: name}}
	f.byName[name] = i
	return i
}

// vacate frees the slot if its node is not set and nothing is reserved there.
func (f *Fleet) vacate(i int32) {
	if f.slots[i].set || f.loads[i].tasks > 0 {
		return
	}
	delete(f.byName, f.slots[i].node.Name)
	f.slots[i], f.loads[i] = slot{}, load{}
	f.vacant = append(f.vacant, i)
}

// of returns the crowd of a definition in the chain, or nil.
func (c *crowd) of(definition cluster.Ref) *crowd {
	for c != nil && c.definition != definition {
		c = c.next
	}
	return c
}

// gather returns a crowd without anybody.
func (f *Fleet) gather(definition cluster.Ref, next *crowd) *crowd {
	last := len(f.spare) - 1
	if last < 0 {
		return &crowd{definition, map[spot]int32{}, next}
	}
	c := f.spare[last]
	f.spare = f.spare[:last]
	c.definition, c.next = definition, next
	return c
}

// mostSpare bounds the crowds that are kept to be used again, as their maps stay as large as they were.
const mostSpare = 16

// disperse takes a crowd out that has nobody left.
func (f *Fleet) disperse(tasks string, c *crowd) {
	first := f.crowds[tasks]
	switch {
	case first != c:
		for first.next != c {
			first = first.next
		}
		first.next = c.next
	case c.next != nil:
		f.crowds[tasks] = c.next
	default:
		delete(f.crowds, tasks)
	}
	if len(f.spare) < mostSpare {
		f.spare = append(f.spare, c)
	}
}

// tasksOf says which tasks are counted together with one: <cluster>.<service> and a definition, with the generation apart; or all of the
// task's id but its index, for one of a job's step and for one whose definition is not known.
func tasksOf(id cluster.TaskID, definition cluster.Ref) (tasks string, generation uint64, known cluster.Ref) {
	tasks = withoutIndex(id)
	if definition.Name == "" {
		return tasks, 0, cluster.Ref{}
	}
	dot := strings.LastIndexByte(tasks, '.')
	if dot < 0 {
		return tasks, 0, cluster.Ref{}
	}
	for _, c := range []byte(tasks[dot+1:]) {
		if c < '0' || c > '9' { // a step
			return tasks, 0, cluster.Ref{}
		}
		generation = generation*10 + uint64(c-'0')
	}
	return tasks[:dot], generation, definition
}

// withoutIndex returns all of a task's id but its index.
func withoutIndex(id cluster.TaskID) string {
	if dot := strings.LastIndexByte(string(id), '.'); dot >= 0 {
		return string(id[:dot])
	}
	return string(id)
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
