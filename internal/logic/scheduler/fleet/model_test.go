package fleet

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/admission"
	"github.com/berthd/berth/internal/logic/scheduler/index"
)

// model is a fleet as plain maps. Each index of a fleet is a function of them.
type model struct {
	nodes map[string]Node
	held  map[string]Reservation
	kept  map[cluster.OwnerRef]KeptRoom
	fine  map[string]bool // labels
}

func newModel() *model {
	return &model{
		nodes: map[string]Node{}, held: map[string]Reservation{}, kept: map[cluster.OwnerRef]KeptRoom{},
		fine: map[string]bool{},
	}
}

func (m *model) clone() *model {
	return &model{maps.Clone(m.nodes), maps.Clone(m.held), maps.Clone(m.kept), maps.Clone(m.fine)}
}

func oneOf[T any](t *rapid.T, name string, from ...T) T { return rapid.SampledFrom(from).Draw(t, name) }

func drawNode(t *rapid.T, name string) Node {
	n := Node{
		Name: name, State: oneOf(t, "state", cluster.NodeReady, cluster.NodeReady, cluster.NodeDown),
		Cordon:   oneOf(t, "cordon", false, false, true),
		Labels:   cluster.Labels{"zone": oneOf(t, "zone", "a", "b"), "host": name},
		Pool:     oneOf(t, "pool", "", "", "p"),
		Capacity: cluster.Demand{CPU: oneOf[cluster.MilliCPU](t, "cpu", 0, 4000, 4001, 8000), Memory: cluster.GiB},
		Images:   oneOf(t, "images", nil, []string{"a"}, []string{"a", "b"}),
		Volumes:  oneOf(t, "volumes", nil, nil, []string{"v"}),

		ReservedPorts: oneOf(t, "reserved ports", nil, []int{22}, []int{22, 80}),
	}
	if oneOf(t, "no labels", false, false, true) {
		n.Labels = nil
	}
	if oneOf(t, "reservation", false, false, true) {
		n.Reserved = []*cluster.Reservation{{Name: "r", Clusters: []string{"c"}}}
	}
	if oneOf(t, "copies", false, false, true) {
		n.Folders = &cluster.FolderFacts{Sticky: []cluster.StickyCopy{{Key: "s"}}}
	}
	if oneOf(t, "has devices", false, true) {
		n.Devices = fewDevices(t)
	}
	return n
}

func drawReservation(t *rapid.T, uuid, node string) Reservation {
	r := Reservation{
		UUID: uuid, Node: node,
		Task: oneOf[cluster.TaskID](t, "task", "c.web.1.0", "c.web.1.1", "c.web.2.0", "d.web.1.0", "c.etl.1.load.3"),
		Demand: cluster.Demand{
			CPU:    oneOf[cluster.MilliCPU](t, "cpu", -5, 0, 100, 3000),
			Memory: oneOf[cluster.Bytes](t, "memory", 0, cluster.MiB),
		},
		Ports: oneOf(t, "ports", nil, []int{80}, []int{30000, 30001}, []int{80, 80}),
		Definition: oneOf(t, "definition", cluster.Ref{}, cluster.Ref{Name: "w", Version: 1},
			cluster.Ref{Name: "w", Version: 2}),
		Labels: oneOf(t, "labels", nil, cluster.Labels{"app": "web"}, cluster.Labels{"app": "web", "tier": "1"}),
	}
	if oneOf(t, "away", false, false, true) {
		r.Away = []cluster.Relation{{Labels: cluster.Labels{"app": "db"}, Away: true, Required: true}}
	}
	if r.Batch = r.Task == "c.etl.1.load.3"; r.Batch {
		r.Limit = oneOf(t, "limit", 0, time.Minute)
		r.Started = oneOf(t, "started", time.Time{}, time.Unix(100, 0))
	}
	if oneOf(t, "uses devices", false, true) {
		for _, d := range fewDevices(t) {
			r.Devices = append(r.Devices, cluster.DeviceUse{ID: d.ID, Share: cluster.WholeDevice})
		}
	}
	return r
}

// step makes a random change of a fleet and of its model.
func step(t *rapid.T, f *Fleet, m *model) {
	node := oneOf(t, "name", "n1", "n2", "n3", "n4")
	uuid := oneOf(t, "attempt", "u1", "u2", "u3", "u4", "u5")
	owner := oneOf(t, "owner", keepers...)
	switch rapid.IntRange(0, 9).Draw(t, "change") {
	case 0, 1:
		m.nodes[node] = drawNode(t, node)
		f.SetNode(m.nodes[node])
	case 2:
		delete(m.nodes, node)
		f.RemoveNode(node)
	case 3, 4:
		m.held[uuid] = drawReservation(t, uuid, node)
		f.Reserve(m.held[uuid])
	case 5:
		delete(m.held, uuid)
		f.Release(uuid)
	case 6:
		k := KeptRoom{Owner: owner, Node: node, Demand: cluster.Demand{CPU: 500}, Ports: []int{80}}
		m.kept[owner] = k
		f.Keep(k)
	case 7:
		delete(m.kept, owner)
		f.EndKeep(owner)
	case 8:
		at := time.Unix(200, 0)
		if r, found := m.held[uuid]; found && r.Batch {
			if oneOf(t, "ends", false, true) {
				r.Ended = true
				f.End(uuid)
			} else {
				r.Started = at
				f.Begin(uuid, at)
			}
			m.held[uuid] = r
		} else {
			f.End(uuid) // no error
			f.Begin(uuid, at)
		}
	case 9:
		key := oneOf(t, "label", "zone", "host", "none")
		f.SwitchFineLabels([]string{key})
		if len(m.withLabel(key)) > 0 {
			m.fine[key] = !m.fine[key]
		}
	}
	for key := range m.fine { // order-free: each by itself
		if len(m.withLabel(key)) == 0 {
			delete(m.fine, key)
		}
	}
	for _, key := range []string{"zone", "host"} { // the fleet may have switched a label by itself
		if l := f.Catalog.Labels.byKey[key]; l != nil {
			m.fine[key] = l.fine
		}
	}
}

func (m *model) withLabel(key string) (nodes []string) {
	for name, n := range m.nodes { // order-free: only counted
		if _, has := n.Labels[key]; has {
			nodes = append(nodes, name)
		}
	}
	return nodes
}

// used returns what is charged to a node, and how many tasks and services hold something there.
func (m *model) used(name string) (sum cluster.Demand, holders int32) {
	for _, r := range m.held { // order-free: a sum
		if r.Node == name {
			sum, holders = sum.Add(index.Clamp(r.Demand)), holders+1
		}
	}
	for _, k := range m.kept { // order-free: a sum
		if k.Node == name {
			sum, holders = sum.Add(k.Demand), holders+1
		}
	}
	return sum, holders
}

// TestFleetSameAsModel changes a fleet, and copies of it, step by step. Each of them must then have what a model of
// plain maps has, in all indexes: none keeps anything of what has left, and no copy shares anything with its original.
func TestFleetSameAsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleets, models := []*Fleet{New()}, []*model{newModel()}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			at := rapid.IntRange(0, len(fleets)-1).Draw(t, "fleet")
			step(t, fleets[at], models[at])
			if len(fleets) < 3 && rapid.IntRange(0, 9).Draw(t, "copy") == 0 {
				fleets, models = append(fleets, fleets[at].Clone()), append(models, models[at].clone())
			}
		}
		for at := range fleets {
			checkNodes(t, fleets[at], models[at])
			checkClasses(t, fleets[at], models[at])
			checkReservations(t, fleets[at], models[at])
			checkRuns(t, fleets[at], models[at])
		}
	})
}

// checkNodes compares the nodes with their usage, images, volumes and ports.
func checkNodes(t *rapid.T, f *Fleet, m *model) {
	t.Helper()
	if diff := cmp.Diff(slices.Sorted(maps.Keys(m.nodes)), f.Nodes(), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("nodes (-want +got):\n%s", diff)
	}
	images, volumes, copies := map[string][]string{}, map[string][]string{}, map[string][]string{}
	var capacity cluster.Demand
	reserved, gpus := 0, 0
	for _, name := range slices.Sorted(maps.Keys(m.nodes)) {
		want := m.nodes[name]
		got, used, _ := f.Node(name)
		wantUsed, holders := m.used(name)
		if diff := cmp.Diff(want, got); diff != "" || used != wantUsed {
			t.Fatalf("node %s uses %v, want %v (-want +got):\n%s", name, used, wantUsed, diff)
		}
		i, _ := f.Search(name)
		if l := f.loads[i]; l.Tasks != holders || l.Capacity != want.Capacity {
			t.Fatalf("node %s has %+v, want %d holders", name, l, holders)
		}
		capacity = capacity.Add(want.Capacity)
		reserved, gpus = reserved+len(want.Reserved), gpus+len(want.Devices)
		for _, image := range want.Images {
			images[image] = append(images[image], name)
		}
		for _, volume := range want.Volumes {
			volumes[volume] = append(volumes[volume], name)
		}
		if want.Folders != nil {
			copies["s"] = append(copies["s"], name)
		}
		for _, port := range []int{22, 80, 30000, 30001} {
			taken := slices.Contains(want.ReservedPorts, port)
			for _, r := range m.held { // order-free: any of them
				taken = taken || r.Node == name && slices.Contains(r.Ports, port)
			}
			for _, k := range m.kept { // order-free: any of them
				taken = taken || k.Node == name && slices.Contains(k.Ports, port)
			}
			if has := f.slots[i].ports != nil && f.slots[i].ports.Has(port); has != taken {
				t.Fatalf("port %d of node %s is taken: %v, want %v", port, name, has, taken)
			}
		}
	}
	if c := f.Capacity(); c.Demand != capacity || c.Devices["gpu"] != gpus || f.NodeReservations != reserved {
		t.Fatalf("capacity %+v with %d reservations, want %v, %d GPUs and %d", c, f.NodeReservations, capacity, gpus,
			reserved)
	}
	namesIn := func(slots map[int32]struct{}) []string { return namesOf(slots, f.Name) }
	for what, pair := range map[string][2]map[string][]string{
		"images":  {images, byName(f.Images, namesIn)},
		"volumes": {volumes, byName(f.Volumes.kept, namesIn)},
		"copies": {copies, byName(f.Volumes.sticky, func(slots map[int32]*cluster.StickyCopy) (names []string) {
			for slot := range slots { // order-free: sorted next
				names = append(names, f.Name(slot))
			}
			slices.Sort(names)
			return names
		})},
	} {
		if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
			t.Fatalf("nodes by their %s (-want +got):\n%s", what, diff)
		}
	}
	if len(f.byName)+len(f.vacant) != len(f.slots) {
		t.Fatalf("%d slots, of which %d have names and %d are vacant", len(f.slots), len(f.byName), len(f.vacant))
	}
}

func byName[M ~map[string]map[int32]V, V any](all M, names func(map[int32]V) []string) map[string][]string {
	sorted := map[string][]string{}
	for key, slots := range all { // order-free: a copy
		sorted[key] = names(slots)
	}
	return sorted
}

// alike reports whether two nodes belong to one node class: they differ in their names, images, reserved ports, copies,
// IDs of devices and fine labels at most, and in the last digits of their capacity.
func (m *model) alike(a, b Node) bool {
	plain := func(n Node) Node {
		n.Name, n.Images, n.ReservedPorts, n.Capacity = "", nil, nil, index.ShapeOf(n.Capacity)
		if n.Folders != nil {
			n.Folders = &cluster.FolderFacts{}
		}
		labels := cluster.Labels{}
		for key, value := range n.Labels { // order-free: a copy
			if !m.fine[key] {
				labels[key] = value
			}
		}
		n.Labels, n.Devices = labels, kinds(n.Devices)
		return n
	}
	return cmp.Equal(plain(a), plain(b))
}

func kinds(list []cluster.Device) (sorted []cluster.Device) {
	for _, d := range list {
		d.ID = ""
		sorted = append(sorted, d)
	}
	slices.SortFunc(sorted, func(a, b cluster.Device) int {
		return slices.Compare([]string{a.Model, fmt.Sprint(a.Numa)}, []string{b.Model, fmt.Sprint(b.Numa)})
	})
	return sorted
}

// checkClasses compares the node classes, the trees, the device classes and the nodes by fine labels.
func checkClasses(t *rapid.T, f *Fleet, m *model) {
	t.Helper()
	counts, inDeviceClass := map[int32]int{}, map[int32][]int32{}
	for a := range m.nodes { // order-free: each by itself
		i, _ := f.Search(a)
		class := f.loads[i].Class
		counts[class]++
		if dc := f.loads[i].DeviceClass; dc >= 0 {
			inDeviceClass[dc] = append(inDeviceClass[dc], i)
		} else if len(m.nodes[a].Devices) > 0 {
			t.Fatalf("node %s has devices and no device class", a)
		}
		for b := range m.nodes { // order-free: each by itself
			k, _ := f.Search(b)
			if same := class == f.loads[k].Class; same != m.alike(m.nodes[a], m.nodes[b]) {
				t.Fatalf("%+v and\n%+v\nare of one class: %v", m.nodes[a], m.nodes[b], same)
			}
			if f.loads[i].DeviceClass >= 0 && f.loads[k].DeviceClass == f.loads[i].DeviceClass &&
				!cmp.Equal(kinds(m.nodes[a].Devices), kinds(m.nodes[b].Devices)) {
				t.Fatalf("%+v and\n%+v\nare of one device class", m.nodes[a], m.nodes[b])
			}
		}
		for order := range orders {
			checkEntry(t, f, f.Catalog.Trees[order][class].Page, i, f.loads[i].Key[order])
		}
	}
	if f.Catalog.InUse() != len(counts) {
		t.Fatalf("%d node classes are in use, want %d", f.Catalog.InUse(), len(counts))
	}
	for class := range f.Catalog.Classes {
		for order := range orders {
			p := f.Catalog.Trees[order][class].Page
			if n := f.Catalog.Classes[class].Count; n != counts[int32(class)] || p == nil && n > 0 ||
				p != nil && p.Nodes() != n {
				t.Fatalf("class %d counts %d nodes, want %d", class, n, counts[int32(class)])
			}
		}
	}
	for i := range f.Catalog.DeviceClasses.List {
		d := &f.Catalog.DeviceClasses.List[i]
		want := inDeviceClass[int32(i)]
		if (d.Tree.Page == nil) != (len(want) == 0) || d.Tree.Page != nil && d.Tree.Page.Nodes() != len(want) {
			t.Fatalf("device class %d has other nodes than %v", i, want)
		}
		for _, slot := range want {
			checkEntry(t, f, d.Tree.Page, slot, f.loads[slot].deviceClassKey)
		}
	}
	checkFineLabels(t, f, m)
}

// checkEntry checks that a tree has a slot with its present key and free room.
func checkEntry(t *rapid.T, f *Fleet, p *index.Page, slot int32, key uint64) {
	t.Helper()
	q := index.Query{Need: f.loads[slot].Free(), Suit: func(s int32) bool { return s == slot }}
	if p == nil || q.Lowest(p, key, key) == nil {
		t.Fatalf("node %s is not in its tree by its key", f.Name(slot))
	}
}

func checkFineLabels(t *rapid.T, f *Fleet, m *model) {
	t.Helper()
	for _, key := range []string{"zone", "host"} {
		l := f.Catalog.Labels.Fine("label." + key)
		if (l != nil) != m.fine[key] {
			t.Fatalf("label %s is fine: %v, want %v", key, l != nil, m.fine[key])
		}
		if l == nil {
			continue
		}
		for value, slots := range l.At { // order-free: each by itself
			var want []string
			for name, n := range m.nodes { // order-free: sorted next
				if n.Labels[key] == value {
					want = append(want, name)
				}
			}
			var got []string
			for _, slot := range slots {
				got = append(got, f.Name(slot))
			}
			slices.Sort(want)
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("nodes with %s = %q (-want +got):\n%s", key, value, diff)
			}
		}
	}
}

// checkReservations compares what relations and anti-affinity groups count.
func checkReservations(t *rapid.T, f *Fleet, m *model) {
	t.Helper()
	if f.Reservations() != len(m.held) || f.KeepsRoom() != (len(m.kept) > 0) {
		t.Fatalf("%d reservations and kept room: %v, want %d and %d", f.Reservations(), f.KeepsRoom(), len(m.held),
			len(m.kept))
	}
	selected, excluding := map[string]int32{}, map[string]int32{}
	grouped := map[string]int32{}
	var limits admission.Ledger
	for uuid, r := range m.held { // order-free: counted
		got, _ := f.Reserved(uuid)
		if want := r; got.Node != want.Node || got.Demand != index.Clamp(want.Demand) || got.Task != want.Task ||
			!got.Started.Equal(want.Started) || got.Ended != want.Ended {
			t.Fatalf("reservation %+v, want %+v", got, want)
		}
		if len(r.Labels) > 0 {
			selected[fmt.Sprint(ClusterOf(r.Task), r.Labels, r.Node)]++
		}
		if len(r.Away) > 0 {
			excluding[ClusterOf(r.Task)+r.Node]++
		}
		tasks, generation, definition := TasksOf(r.Task, r.Definition)
		grouped[fmt.Sprint(tasks, definition, r.Node, generation)]++
		holding := got.Holding()
		limits.Add(&holding, 1)
	}
	for _, name := range []string{"c", "d"} {
		if diff := cmp.Diff(limits.Use(name), f.Limits.Use(name)); diff != "" {
			t.Fatalf("what counts for the limits of cluster %s (-want +got):\n%s", name, diff)
		}
	}
	gotSelected, gotExcluding, gotGrouped := map[string]int32{}, map[string]int32{}, map[string]int32{}
	for _, g := range f.RelationIndex.LabelGroups { // order-free: counted
		for slot, n := range g.At { // order-free: counted
			gotSelected[fmt.Sprint(g.Cluster, g.Labels, f.Name(slot))] = n
		}
	}
	for _, g := range f.RelationIndex.Exclusions { // order-free: counted
		for slot, n := range g.At { // order-free: counted
			gotExcluding[g.Away.Clusters[0]+f.Name(slot)] = n
		}
	}
	for tasks, g := range f.ReservedGroups.byTasks { // order-free: counted
		for ; g != nil; g = g.next {
			sum, perGeneration := int32(0), map[uint64]int32{}
			for at, n := range g.Counts { // order-free: counted
				gotGrouped[fmt.Sprint(tasks, g.definition, f.Name(at.Slot()), at.Generation())] = n
				sum, perGeneration[at.Generation()] = sum+n, perGeneration[at.Generation()]+n
			}
			for _, c := range g.Generations {
				if c.tasks != perGeneration[c.Generation] {
					t.Fatalf("generation %d of %s has %d tasks, want %d", c.Generation, tasks, c.tasks,
						perGeneration[c.Generation])
				}
				sum -= c.tasks
			}
			if sum != 0 || len(g.Counts) == 0 || f.ReservedGroups.Of(tasks, g.definition) != g {
				t.Fatalf("the generations of %s miss %d tasks, or the group of %d nodes is not found", tasks, sum,
					len(g.Counts))
			}
		}
	}
	for what, pair := range map[string][2]map[string]int32{
		"what relations select":  {selected, gotSelected},
		"what excludes others":   {excluding, gotExcluding},
		"tasks that are counted": {grouped, gotGrouped},
	} {
		if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", what, diff)
		}
	}
}

// checkRuns compares the runs of jobs, and what is free once they have ended.
func checkRuns(t *rapid.T, f *Fleet, m *model) {
	t.Helper()
	want := map[string]Run{}
	left := map[string]cluster.Demand{} // by node, what jobs hold
	for uuid, r := range m.held {       // order-free: each by itself
		if !r.Batch {
			continue
		}
		i := f.SlotNamed(r.Node)
		want[uuid] = Run{
			UUID: uuid, Task: r.Task, Slot: i, Demand: index.Clamp(r.Demand), IsPlain: len(r.Ports)+len(r.Devices) == 0,
			Started: r.Started, Limit: r.Limit, Ended: r.Ended,
		}
		left[r.Node] = left[r.Node].Add(index.Clamp(r.Demand))
	}
	got := map[string]Run{}
	for _, r := range f.Runs() {
		got[r.UUID] = r
	}
	if diff := cmp.Diff(want, got); diff != "" || len(f.Runs()) != len(want) {
		t.Fatalf("runs (-want +got):\n%s", diff)
	}
	emptied := f.Emptied()
	for name, n := range m.nodes { // order-free: each by itself
		used, _ := m.used(name)
		if free := n.Capacity.Sub(used).Add(left[name]); emptied[f.SlotNamed(name)] != free {
			t.Fatalf("after all runs %v is free on %s, want %v", emptied[f.SlotNamed(name)], name, free)
		}
	}
}

// TestLongestLeft checks how long a run may still take.
func TestLongestLeft(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		run  Run
		left time.Duration
		ok   bool
	}{
		"no limit":             {Run{Started: now}, 0, false},
		"no limit, ended":      {Run{Started: now, Ended: true}, 0, true},
		"not started":          {Run{Limit: time.Minute}, time.Minute, true},
		"has just started":     {Run{Limit: time.Minute, Started: now}, time.Minute, true},
		"in the middle":        {Run{Limit: time.Minute, Started: now.Add(-20 * time.Second)}, 40 * time.Second, true},
		"at its limit":         {Run{Limit: time.Minute, Started: now.Add(-time.Minute)}, 0, true},
		"beyond its limit":     {Run{Limit: time.Minute, Started: now.Add(-time.Hour)}, 0, true},
		"ended before it":      {Run{Limit: time.Minute, Started: now, Ended: true}, 0, true},
		"a clock that is late": {Run{Limit: time.Minute, Started: now.Add(time.Second)}, 61 * time.Second, true},
	} {
		left, ok := c.run.LongestLeft(now)
		if left != c.left || ok != c.ok {
			t.Errorf("%s: %s, %v, want %s, %v", name, left, ok, c.left, c.ok)
		}
	}
}
