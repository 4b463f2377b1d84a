package external

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// mirror keeps what the lines of a feed are made from, and notes which lines may have changed. It implements
// fleetview.Observer. It is for one goroutine.
type mirror struct {
	// held are the reservations of the fleet by UUID, and onNode their UUIDs by node.
	held   map[string]scheduler.Reservation
	onNode map[string]map[string]bool
	groups map[groupKey]*group
	// ofOwner are the groups of an owner.
	ofOwner map[cluster.OwnerRef]map[groupKey]bool
	// nodes and owners are those whose lines may have changed.
	nodes  map[string]bool
	owners map[cluster.OwnerRef]bool
}

// groupKey identifies a group.
type groupKey struct {
	owner      cluster.OwnerRef
	step       string
	definition cluster.Ref
}

// id is SchedulingGroup.ID.
func (k *groupKey) id() string {
	id := k.owner.Cluster + "/" + k.owner.Name + "/"
	if k.step != "" {
		id += k.step + "/"
	}
	return id + k.definition.Name + "@" + strconv.Itoa(k.definition.Version)
}

// group is the tasks of a group.
type group struct {
	running int
	// template is the request of one of its tasks; known says that there is one.
	template cluster.Pending
	known    bool
	// demands is the text of its line without tasks, and changedAt the position of the feed since which it is so.
	demands   []byte
	changedAt uint64
}

func newMirror() *mirror {
	return &mirror{
		held: map[string]scheduler.Reservation{}, onNode: map[string]map[string]bool{}, groups: map[groupKey]*group{},
		ofOwner: map[cluster.OwnerRef]map[groupKey]bool{},
		nodes:   map[string]bool{}, owners: map[cluster.OwnerRef]bool{},
	}
}

// NodeChanged implements fleetview.Observer.
func (m *mirror) NodeChanged(name string) { m.nodes[name] = true }

// Reserved implements fleetview.Observer.
func (m *mirror) Reserved(r *scheduler.Reservation) {
	m.Released(r.UUID)
	m.held[r.UUID] = *r
	if m.onNode[r.Node] == nil {
		m.onNode[r.Node] = map[string]bool{}
	}
	m.onNode[r.Node][r.UUID] = true
	m.nodes[r.Node] = true
	if key, ok := keyOf(r); ok {
		m.group(key).running++
		m.owners[key.owner] = true
	}
}

// Released implements fleetview.Observer.
func (m *mirror) Released(uuid string) {
	r, ok := m.held[uuid]
	if !ok {
		return
	}
	delete(m.held, uuid)
	m.nodes[r.Node] = true
	if delete(m.onNode[r.Node], uuid); len(m.onNode[r.Node]) == 0 {
		delete(m.onNode, r.Node)
	}
	if key, ok := keyOf(&r); ok {
		m.group(key).running--
		m.owners[key.owner] = true
	}
}

// Ended implements fleetview.Observer.
func (m *mirror) Ended(uuid string) {
	if r, ok := m.held[uuid]; ok && !r.Ended {
		r.Ended = true
		m.held[uuid] = r
		m.nodes[r.Node] = true
	}
}

// keyOf returns the group of a reservation.
func keyOf(r *scheduler.Reservation) (groupKey, bool) {
	o, ok := r.Task.Owner()
	parts, _ := r.Task.Parts()
	return groupKey{o, parts.Step, r.Definition}, ok
}

// keyOfPending returns the group of a request.
func keyOfPending(p *cluster.Pending) groupKey {
	parts, _ := p.Task.Parts()
	return groupKey{p.Owner, parts.Step, p.Definition}
}

func (m *mirror) group(key groupKey) *group {
	g := m.groups[key]
	if g == nil {
		g = &group{}
		m.groups[key] = g
		if m.ofOwner[key.owner] == nil {
			m.ofOwner[key.owner] = map[groupKey]bool{}
		}
		m.ofOwner[key.owner][key] = true
	}
	return g
}

// forget removes a group without tasks.
func (m *mirror) forget(key groupKey) {
	delete(m.groups, key)
	if delete(m.ofOwner[key.owner], key); len(m.ofOwner[key.owner]) == 0 {
		delete(m.ofOwner, key.owner)
	}
}

// nodeLine returns the line of a node, or that of its removal if the fleet lacks it.
func (m *mirror) nodeLine(f *scheduler.Fleet, name string) (text []byte, exists bool) {
	n, used, ok := f.Node(name)
	if !ok || n.State == "" { // a node that left, on which something is still reserved, has no state
		return encode(&cluster.SchedulingLine{RemovedNode: name}), false
	}
	v := &cluster.SchedulingNode{
		Name: name, State: n.State, Accepts: n.State == cluster.NodeReady && !n.Cordon, Draining: n.Drain, Pool: n.Pool,
		Arch: n.Arch, OS: n.OS, Kernel: n.Kernel, Labels: n.Labels, Taints: n.Taints, Executors: n.Executors,
		Capacity: cluster.RoomOf(n.Capacity), Free: cluster.RoomOf(n.Capacity.Sub(used)),
		ReservedPorts: n.ReservedPorts, Devices: n.Devices,
		Volumes: n.Volumes,
	}
	for uuid := range m.onNode[name] { // order-free: sorted below
		r := m.held[uuid]
		t := cluster.SchedulingTask{
			Task: r.Task, UUID: uuid, Demand: cluster.RoomOf(r.Demand), Ports: r.Ports, Devices: r.Devices,
			Ended: r.Ended,
		}
		if key, ok := keyOf(&r); ok {
			t.Group = key.id()
		}
		v.Tasks = append(v.Tasks, t)
	}
	slices.SortFunc(v.Tasks, func(a, b cluster.SchedulingTask) int {
		return bytes.Compare([]byte(string(a.Task)+"\x00"+a.UUID), []byte(string(b.Task)+"\x00"+b.UUID))
	})
	return encode(&cluster.SchedulingLine{Node: v}), true
}

// source gives a mirror what it needs of the leader.
type source struct {
	fleet *scheduler.Fleet
	// pending are the pending tasks of an owner.
	pending func(cluster.OwnerRef) []cluster.Pending
	// next returns what the next attempts of an owner's tasks would request.
	next func(cluster.OwnerRef) map[cluster.TaskID]cluster.Pending
	// isUndecided reports whether a decision about an owner is due, before which its pending tasks are not known.
	isUndecided func(cluster.OwnerRef) bool
}

// hasUndecided reports whether a decision is due about an owner whose lines may have changed.
func (m *mirror) hasUndecided(isUndecided func(cluster.OwnerRef) bool) bool {
	for o := range m.owners { // order-free: any suffices
		if isUndecided(o) {
			return true
		}
	}
	return false
}

// collect returns the lines that may have changed, and the texts of removals, by key. at is the position of the feed
// that they get.
func (m *mirror) collect(from source, at uint64) (set, remove map[string][]byte) {
	set, remove = map[string][]byte{}, map[string][]byte{}
	for name := range m.nodes { // order-free: a map is filled
		if text, exists := m.nodeLine(from.fleet, name); exists {
			set["node/"+name] = text
		} else {
			remove["node/"+name] = text
		}
	}
	clear(m.nodes)
	for o := range m.owners { // order-free: a map is filled
		if from.isUndecided(o) {
			continue
		}
		delete(m.owners, o)
		m.collectOwner(from, o, at, set, remove)
	}
	return set, remove
}

// collectOwner adds the lines of an owner's groups.
func (m *mirror) collectOwner(from source, o cluster.OwnerRef, at uint64, set, remove map[string][]byte) {
	pending := map[groupKey][]cluster.Pending{}
	for _, p := range from.pending(o) {
		key := keyOfPending(&p)
		if pending[key] == nil {
			g := m.group(key)
			g.template, g.known = p, true
		}
		pending[key] = append(pending[key], p)
	}
	var next map[cluster.TaskID]cluster.Pending
	for key := range maps.Clone(m.ofOwner[o]) { // order-free: maps are filled
		g := m.groups[key]
		if g.running <= 0 && len(pending[key]) == 0 {
			m.forget(key)
			remove["group/"+key.id()] = encode(&cluster.SchedulingLine{RemovedGroup: key.id()})
			continue
		}
		if !g.known {
			if next == nil {
				next = from.next(o)
			}
			for _, p := range next { // order-free: the requests of a group are equal
				if keyOfPending(&p) == key {
					g.template, g.known = p, true
					break
				}
			}
		}
		v := g.view(&key)
		if demands := encode(&cluster.SchedulingLine{Group: v}); !bytes.Equal(demands, g.demands) {
			g.demands, g.changedAt = demands, at
		}
		v.Running = g.running
		for i := range pending[key] {
			v.Pending = append(v.Pending, pendingView(&pending[key][i]))
		}
		set["group/"+key.id()] = encode(&cluster.SchedulingLine{Group: v})
	}
}

// view returns the group without its tasks.
func (g *group) view(key *groupKey) *cluster.SchedulingGroup {
	p := &g.template
	return &cluster.SchedulingGroup{
		ID: key.id(), Owner: key.owner, Step: key.step, Definition: key.definition,
		Priority: p.Priority, Demand: cluster.RoomOf(p.Demand), Ports: p.Ports, Devices: p.Devices,
		Placement: p.Placement, Network: p.Network, Gang: p.GangSize, Labels: p.Labels, TimeLimit: p.TimeLimit,
	}
}

func pendingView(p *cluster.Pending) cluster.SchedulingPending {
	return cluster.SchedulingPending{
		Task: p.Task, Further: p.Further, Attempt: p.Attempt, Since: p.Since, OnlyNode: p.OnlyNode,
		ExcludedNodes: p.ExcludedNodes, PenalizedNodes: p.PenalizedNodes, Held: heldText(p),
	}
}

// heldText returns why a task may not be placed yet, "" if it may.
func heldText(p *cluster.Pending) string {
	if p.Hold != (cluster.Hold{}) {
		return p.Hold.Message
	}
	if p.Priority == 0 {
		return "its priority is 0"
	}
	return ""
}

// encode returns a line as JSON. All lines can be encoded.
func encode(l *cluster.SchedulingLine) []byte {
	text, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	return text
}
