package fleet

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
)

// TestAttributesOfNodes checks each attribute that constraints may name. Of attributes with several values on a node no
// value is known.
func TestAttributesOfNodes(t *testing.T) {
	n := &Node{
		Name: "n1", Arch: "arm64", OS: "linux", Kernel: "6.1", Pool: "p", Executors: []string{"process"},
		Labels: cluster.Labels{"class": "large", "rack": "r1", "empty": ""},
		Devices: []cluster.Device{
			{ID: "0", Type: "gpu", Model: "A"},
			{ID: "1", Type: "gpu", Model: "B"},
			{ID: "2", Type: "gpu", Model: "A"},
			{ID: "3", Type: "fpga"},
		},
	}
	for attribute, want := range map[string]struct {
		value string
		known bool
	}{
		"node.name": {"n1", true}, "node.arch": {"arm64", true}, "node.os": {"linux", true},
		"node.kernel": {"6.1", true}, "node.pool": {"p", true}, "node.class": {"large", true},
		"label.rack": {"r1", true}, "label.empty": {"", true}, "label.none": {"", true},
		"device.gpu.count": {"3", true}, "device.fpga.count": {"1", true}, "device.tpu.count": {"0", true},
		"device.gpu.model": {"", false}, "node.executor": {"", false}, "node.unknown": {"", false}, "rack": {"", false},
		"": {"", false},
	} {
		value, known := n.Attribute(attribute)
		if value != want.value || known != want.known || n.Value(attribute) != want.value {
			t.Errorf("%q is %q, known %v, want %q, %v", attribute, value, known, want.value, want.known)
		}
	}
	if diff := cmp.Diff([]string{"A", "B"}, n.Models("gpu")); diff != "" || n.Models("tpu") != nil {
		t.Errorf("models (-want +got):\n%s", diff)
	}
}

// TestLabelsBecomeFine checks the limits at which a fleet makes a label fine, and coarse again, for each number of
// values: above 256 values, or above 64 values of fewer than 8 nodes.
func TestLabelsBecomeFine(t *testing.T) {
	for _, c := range []struct {
		values, nodes int
		fine, was     bool
	}{
		{values: 64, nodes: 64},
		{values: 65, nodes: 65, fine: true},
		{values: 65, nodes: 65*8 - 1, fine: true},
		{values: 65, nodes: 65 * 8},
		{values: 256, nodes: 256 * 8},
		{values: 257, nodes: 1_000_000, fine: true},
		// A fine label stays fine until it has at most 128 values of more than 32 nodes each.
		{values: 128, nodes: 128 * 32, was: true, fine: true},
		{values: 128, nodes: 128*32 + 1, was: true},
		{values: 129, nodes: 1_000_000, was: true, fine: true},
		{values: 1, nodes: 32, was: true, fine: true},
		{values: 1, nodes: 33, was: true},
	} {
		l := Label{nodes: map[string]int32{}, fine: c.was}
		for i := range c.values {
			l.nodes[fmt.Sprint(i)] = 1
		}
		if got := l.shouldBeFine(c.nodes); got != c.fine {
			t.Errorf("%d values on %d nodes, fine before: %v: got %v, want %v", c.values, c.nodes, c.was, got, c.fine)
		}
	}
}

// TestFineLabelsSaveClasses adds nodes with a label of their own each. The fleet makes it fine by itself, after which
// all nodes are of one class, and coarse again when most nodes have one value.
func TestFineLabelsSaveClasses(t *testing.T) {
	f := New()
	node := func(i int, serial string) Node {
		return Node{
			Name: fmt.Sprintf("n%04d", i), Labels: cluster.Labels{"serial": serial, "zone": fmt.Sprint(i % 2)},
			Capacity: cluster.Demand{CPU: 1000},
		}
	}
	for i := range 200 {
		f.SetNode(node(i, fmt.Sprint("s", i)))
		if want := 2; i > 65 && f.Catalog.InUse() != want {
			t.Fatalf("%d node classes of %d nodes, want %d", f.Catalog.InUse(), i+1, want)
		}
	}
	if !f.Catalog.Labels.IsPerNode("label.serial") || f.Catalog.Labels.IsPerNode("label.zone") ||
		!f.Catalog.Labels.IsPerNode(NodeName) {
		t.Error("want the label serial and the name to be per node, and the label zone not")
	}
	for i := range 200 {
		f.SetNode(node(i, "same"))
	}
	if f.Catalog.Labels.IsPerNode("label.serial") || f.Catalog.InUse() != 2 {
		t.Errorf("the label is fine, %d node classes, want a coarse label and 2", f.Catalog.InUse())
	}
}

// TestTasksOf checks under which name tasks are counted: of services by definition, with their generation apart, of
// jobs by step.
func TestTasksOf(t *testing.T) {
	known := cluster.Ref{Name: "w", Version: 3}
	for _, c := range []struct {
		id         cluster.TaskID
		definition cluster.Ref
		tasks      string
		generation uint64
		counted    cluster.Ref
	}{
		{"c.web.12.7", known, "c.web", 12, known},
		{"c.web.12.7", cluster.Ref{}, "c.web.12", 0, cluster.Ref{}},
		{"c.etl.2.load.5", known, "c.etl.2.load", 0, cluster.Ref{}},
		{"c.etl.2.load5.5", known, "c.etl.2.load5", 0, cluster.Ref{}},
		{"odd", known, "odd", 0, cluster.Ref{}},
		{"", known, "", 0, cluster.Ref{}},
	} {
		tasks, generation, counted := TasksOf(c.id, c.definition)
		if tasks != c.tasks || generation != c.generation || counted != c.counted {
			t.Errorf("%s of %v counts as %s of generation %d of %v, want %s, %d, %v", c.id, c.definition, tasks,
				generation, counted, c.tasks, c.generation, c.counted)
		}
	}
}

// TestSlotGenerations checks that a slot and a generation come back, and that a generation that is too large does not
// change the slot.
func TestSlotGenerations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slot := rapid.Int32Range(0, 1<<27).Draw(t, "slot")
		generation := rapid.Uint64().Draw(t, "generation") >> rapid.IntRange(0, 63).Draw(t, "shift")
		s := SlotGenerationOf(slot, generation)
		if want := min(generation, 1<<generationBits-1); s.Slot() != slot || s.Generation() != want {
			t.Fatalf("slot %d and generation %d became %d and %d", slot, generation, s.Slot(), s.Generation())
		}
	})
}

// TestHoldings checks what attempts count for limits: the job by its name, a service by none.
func TestHoldings(t *testing.T) {
	for id, want := range map[cluster.TaskID][2]string{
		"c.etl.1.load.0": {"c", "etl"}, "c.web.1.0": {"c", ""}, "c": {"c", ""}, "c.a.1.b.c.d": {"c", ""},
	} {
		r := Reservation{Task: id, Group: "g", JobGroup: "h", User: "u", Demand: cluster.Demand{CPU: 5}}
		h := r.Holding()
		if h.Cluster != want[0] || h.Job != want[1] || h.Group != "g" || h.JobGroup != "h" || h.User != "u" ||
			h.Demand.CPU != 5 || h.Task != id {
			t.Errorf("%s counts as %+v, want cluster and job %q", id, h, want)
		}
	}
}

// TestRelations checks which tasks a relation selects: those of its clusters that have all of its labels. A task
// without labels is never selected.
func TestRelations(t *testing.T) {
	web, both := cluster.Labels{"app": "web"}, cluster.Labels{"app": "web", "tier": "1"}
	for name, c := range map[string]struct {
		relation cluster.Relation
		other    cluster.TaskID
		labels   cluster.Labels
		want     bool
	}{
		"its own cluster":       {cluster.Relation{Labels: web}, "c.web.1.0", web, true},
		"more labels":           {cluster.Relation{Labels: web}, "c.web.1.0", both, true},
		"fewer labels":          {cluster.Relation{Labels: both}, "c.web.1.0", web, false},
		"another value":         {cluster.Relation{Labels: web}, "c.web.1.0", cluster.Labels{"app": "db"}, false},
		"another cluster":       {cluster.Relation{Labels: web}, "d.web.1.0", web, false},
		"a named cluster":       {cluster.Relation{Labels: web, Clusters: []string{"d", "e"}}, "e.web.1.0", web, true},
		"not its own then":      {cluster.Relation{Labels: web, Clusters: []string{"d"}}, "c.web.1.0", web, false},
		"no labels select all":  {cluster.Relation{}, "c.web.1.0", web, true},
		"no labels on the task": {cluster.Relation{}, "c.web.1.0", nil, false},
	} {
		if got := Concerns(c.relation, "c.own.1.0", c.other, c.labels); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
	away := []cluster.Relation{{Away: true, Required: true, Weight: 1}}
	all := append([]cluster.Relation{{Required: true}, {Away: true}}, away...)
	if diff := cmp.Diff(away, AwayOf(&cluster.Placement{Relations: all})); diff != "" {
		t.Errorf("relations that exclude (-want +got):\n%s", diff)
	}
}

// TestRelationKeys checks that two relations have one key exactly if they select the same tasks near the same
// attribute, whatever their weights and signs, and whatever the order of their clusters.
func TestRelationKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func() cluster.Relation {
			return WholeRelation(cluster.Relation{
				Labels: oneOf(t, "labels", nil, cluster.Labels{"a": "b"}, cluster.Labels{"a": "bc"},
					cluster.Labels{"ab": "c"}, cluster.Labels{"a": "b", "c": ""}),
				Clusters: oneOf(t, "clusters", nil, []string{"c"}, []string{"c", "d"}, []string{"d", "c"},
					[]string{"cd"}),
				Attribute: oneOf(t, "attribute", "", NodeName, "label.a"),
				Weight:    oneOf(t, "weight", 0, 1, 50), Away: oneOf(t, "away", false, true),
			}, "c")
		}
		a, b := draw(), draw()
		sorted := func(r cluster.Relation) []string { return slices.Sorted(slices.Values(r.Clusters)) }
		same := a.Attribute == b.Attribute && cmp.Equal(a.Labels, b.Labels) && slices.Equal(sorted(a), sorted(b))
		if got := RelationKey(&a) == RelationKey(&b); got != same {
			t.Fatalf("%+v and\n%+v\nhave one key: %v, want %v", a, b, got, same)
		}
	})
}

// TestVolumesConstrain checks what volumes add to a task: a constraint for the nodes that have a kept volume, and
// affinities for the copies of a sticky one, the newest first. Daemons and new volumes get nothing.
func TestVolumesConstrain(t *testing.T) {
	f := New()
	for i, name := range []string{"n1", "n2", "n3", "n4", "n5", "n6"} {
		n := Node{Name: name, State: cluster.NodeDown}
		if i%2 == 1 {
			n.Volumes = []string{"c/db/data"}
		}
		plan := []uint64{3, 9, 9, 1, 2, 4}[i]
		n.Folders = &cluster.FolderFacts{Sticky: []cluster.StickyCopy{{Key: "c/db/cache", Plan: plan}}}
		f.SetNode(n)
	}
	own := cluster.Constraint{Attribute: "label.zone", Value: "a"}
	pending := []cluster.Pending{
		{Task: "kept", Volumes: []string{"c/db/new", "c/db/data"}},
		{Task: "daemon", Volumes: []string{"c/db/data"}, Sticky: []string{"c/db/cache"}, Daemon: true},
		{Task: "sticky", Sticky: []string{"c/db/cache", "c/db/other"}},
		{Task: "new", Volumes: []string{"c/db/new"}},
		{Task: "none"},
	}
	for i := range pending {
		pending[i].Placement.Constraints = []cluster.Constraint{own}
	}
	got := f.Volumes.Constrain(pending, f.Name)
	volume := cluster.Constraint{
		Attribute: AttributeVolume, Op: cluster.OpExists, Value: "c/db/data", Values: []string{"n2", "n4", "n6"},
	}
	var copies []cluster.Affinity
	for i, name := range []string{"n2", "n3", "n6", "n1"} { // at most four, equal ones by name
		a := cluster.Affinity{
			Constraint: cluster.Constraint{Attribute: NodeName, Op: cluster.OpEqual, Value: name},
			Weight:     olderCopyWeight,
		}
		if i == 0 {
			a.Weight = newestCopyWeight
		}
		if !IsCopy(&a) {
			t.Errorf("%+v does not count as a copy", a)
		}
		copies = append(copies, a)
	}
	for i, want := range []cluster.Placement{
		{Constraints: []cluster.Constraint{own, volume}},
		{Constraints: []cluster.Constraint{own}},
		{Constraints: []cluster.Constraint{own}, Affinities: copies},
		{Constraints: []cluster.Constraint{own}},
		{Constraints: []cluster.Constraint{own}},
	} {
		if diff := cmp.Diff(want, got[i].Placement); diff != "" {
			t.Errorf("%s (-want +got):\n%s", got[i].Task, diff)
		}
		given := cluster.Placement{Constraints: []cluster.Constraint{own}}
		if diff := cmp.Diff(given, pending[i].Placement); diff != "" {
			t.Errorf("%s of the caller was changed:\n%s", pending[i].Task, diff)
		}
	}
	if IsCopy(&cluster.Affinity{Weight: cluster.MaxWeight}) {
		t.Error("the largest weight of a user counts as a copy")
	}
}

// TestKeptText checks the sentence that names the services which keep what a task needs.
func TestKeptText(t *testing.T) {
	f := New()
	names := []string{"web", "db", "api", "cache"}
	for i, want := range []string{
		"",
		"kept for the service c/web, which keeps its room",
		"kept for the services c/db, c/web, which keep their room",
		"kept for the services c/api, c/db, c/web, which keep their room",
		"kept for the services c/api, c/cache, c/db and others, which keep their room",
	} {
		if got := f.KeptText("n1", func(k *KeptRoom) bool { return slices.Contains(k.Ports, 80) }); got != want {
			t.Errorf("%d services: got %q, want %q", i, got, want)
		}
		if i < len(names) {
			o := cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: names[i]}
			f.Keep(KeptRoom{Owner: o, Node: "n1", Ports: []int{80}})
			o.Name += "-other"
			f.Keep(KeptRoom{Owner: o, Node: "n1", Ports: []int{81}})
			o.Name += "-far"
			f.Keep(KeptRoom{Owner: o, Node: "n2", Ports: []int{80}})
		}
	}
}

// TestEqualKeptRoom checks that each field of kept room counts, but not the devices that are held for it.
func TestEqualKeptRoom(t *testing.T) {
	room := KeptRoom{
		Owner: keepers[0], Node: "n1", Demand: cluster.Demand{CPU: 5}, Ports: []int{80},
		Devices: []cluster.DeviceRequest{{Type: "gpu"}},
	}
	held := room
	held.held = []cluster.DeviceUse{{ID: "0"}}
	if !room.Equal(&held) {
		t.Error("held devices make kept rooms differ")
	}
	for name, change := range map[string]func(k *KeptRoom){
		"owner":   func(k *KeptRoom) { k.Owner = keepers[1] },
		"node":    func(k *KeptRoom) { k.Node = "n2" },
		"demand":  func(k *KeptRoom) { k.Demand.Memory = 1 },
		"ports":   func(k *KeptRoom) { k.Ports = []int{81} },
		"devices": func(k *KeptRoom) { k.Devices = nil },
		"model":   func(k *KeptRoom) { k.Devices = []cluster.DeviceRequest{{Type: "gpu", Models: []string{"A"}}} },
	} {
		other := room
		if change(&other); room.Equal(&other) {
			t.Errorf("another %s makes no difference", name)
		}
	}
}

// TestGrowChangesNothing checks that room for more reservations loses none, and that less room than needed is harmless.
func TestGrowChangesNothing(t *testing.T) {
	f := New()
	for i := range 10 {
		f.Reserve(Reservation{UUID: fmt.Sprint(i), Node: "n1", Task: "c.web.1.0"})
	}
	for _, reservations := range []int{1000, 0, -1} {
		f.Grow(reservations)
		if f.Reservations() != 10 {
			t.Fatalf("%d reservations with room for %d, want 10", f.Reservations(), reservations)
		}
	}
}
