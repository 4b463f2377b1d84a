package fleet

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
)

// fullNode returns a node that has something of each kind.
func fullNode() Node {
	at := time.Unix(5000, 0)
	return Node{
		Name: "n1", State: cluster.NodeReady, Arch: "amd64", OS: "linux", Kernel: "6.1", Pool: "p",
		Executors: []string{"process"}, Labels: cluster.Labels{"zone": "a"},
		Taints:   []cluster.Taint{{Key: "k", Value: "v", Effect: cluster.TaintAvoid}},
		Capacity: cluster.Demand{CPU: 64_000, Memory: 64 * cluster.GiB, Disk: 64 * cluster.GiB},
		Devices: []cluster.Device{
			{ID: "0", Type: "gpu", Model: "A", Memory: 16, Numa: 0}, {ID: "1", Type: "fpga"},
		},
		Reserved: []*cluster.Reservation{{
			Name: "r", From: at, Until: at.Add(1), Lead: 5, Clusters: []string{"c"},
			Labels: cluster.Labels{"a": "b"},
		}},
		Images: []string{"i"}, Volumes: []string{"v"}, ReservedPorts: []int{22},
		Folders: &cluster.FolderFacts{
			HostVolumes: []cluster.HostVolume{{Name: "h"}}, Paths: []string{"/srv"},
			Sticky: []cluster.StickyCopy{{Key: "s"}},
		},
		Networks: []cluster.NetworkFact{{Mode: cluster.NetworkBridge}},
	}
}

// TestWhatSplitsNodeClasses changes one thing of a node. A node class is split by all that a task may ask of a node
// itself. Names, images, reserved ports, copies of sticky volumes, IDs of devices and small differences in capacity do
// not split it.
func TestWhatSplitsNodeClasses(t *testing.T) {
	at := time.Unix(5000, 0)
	reservation := func(change func(r *cluster.Reservation)) func(n *Node) {
		return func(n *Node) { change(n.Reserved[0]) }
	}
	for name, c := range map[string]struct {
		change func(n *Node)
		splits bool
	}{
		"nothing":              {func(*Node) {}, false},
		"state":                {func(n *Node) { n.State = cluster.NodeDown }, true},
		"cordon":               {func(n *Node) { n.Cordon = true }, true},
		"drain":                {func(n *Node) { n.Drain = true }, true},
		"architecture":         {func(n *Node) { n.Arch = "arm64" }, true},
		"operating system":     {func(n *Node) { n.OS = "freebsd" }, true},
		"kernel":               {func(n *Node) { n.Kernel = "6.2" }, true},
		"pool":                 {func(n *Node) { n.Pool = "q" }, true},
		"executors":            {func(n *Node) { n.Executors = []string{"containerd"} }, true},
		"more executors":       {func(n *Node) { n.Executors = []string{"process", "containerd"} }, true},
		"a label":              {func(n *Node) { n.Labels = cluster.Labels{"zone": "b"} }, true},
		"no labels":            {func(n *Node) { n.Labels = nil }, true},
		"key of a taint":       {func(n *Node) { n.Taints[0].Key = "x" }, true},
		"value of a taint":     {func(n *Node) { n.Taints[0].Value = "x" }, true},
		"effect of a taint":    {func(n *Node) { n.Taints[0].Effect = cluster.TaintEvict }, true},
		"age of a taint":       {func(n *Node) { n.Taints[0].Since = at }, false},
		"no taints":            {func(n *Node) { n.Taints = nil }, true},
		"half the CPUs":        {func(n *Node) { n.Capacity.CPU /= 2 }, true},
		"half the memory":      {func(n *Node) { n.Capacity.Memory /= 2 }, true},
		"half the disk":        {func(n *Node) { n.Capacity.Disk /= 2 }, true},
		"a little more memory": {func(n *Node) { n.Capacity.Memory += cluster.MiB }, false},
		"type of a device":     {func(n *Node) { n.Devices[1].Type = "tpu" }, true},
		"model of a device":    {func(n *Node) { n.Devices[0].Model = "B" }, true},
		"memory of a device":   {func(n *Node) { n.Devices[0].Memory = 8 }, true},
		"NUMA node":            {func(n *Node) { n.Devices[0].Numa = 1 }, true},
		"ID of a device":       {func(n *Node) { n.Devices[0].ID = "7" }, false},
		"order of devices":     {func(n *Node) { n.Devices = []cluster.Device{n.Devices[1], n.Devices[0]} }, false},
		"a device less":        {func(n *Node) { n.Devices = n.Devices[:1] }, true},
		"images":               {func(n *Node) { n.Images = nil }, false},
		"volumes":              {func(n *Node) { n.Volumes = nil }, true},
		"other volumes":        {func(n *Node) { n.Volumes = []string{"w"} }, true},
		"reserved ports":       {func(n *Node) { n.ReservedPorts = nil }, false},
		"no folders":           {func(n *Node) { n.Folders = nil }, true},
		"a host volume":        {func(n *Node) { n.Folders.HostVolumes[0].Name = "g" }, true},
		"a read-only volume":   {func(n *Node) { n.Folders.HostVolumes[0].ReadOnly = true }, true},
		"a path":               {func(n *Node) { n.Folders.Paths = []string{"/data"} }, true},
		"a sticky copy":        {func(n *Node) { n.Folders.Sticky = nil }, false},
		"a network":            {func(n *Node) { n.Networks[0].Mode = cluster.NetworkNone }, true},
		"what a network lacks": {func(n *Node) { n.Networks[0].Lacks = "nft" }, true},
		"no reservation":       {func(n *Node) { n.Reserved = nil }, true},
		"name of it":           {reservation(func(r *cluster.Reservation) { r.Name = "s" }), true},
		"begin of it":          {reservation(func(r *cluster.Reservation) { r.From = at.Add(-1) }), true},
		"end of it":            {reservation(func(r *cluster.Reservation) { r.Until = at.Add(time.Hour) }), true},
		"lead of it":           {reservation(func(r *cluster.Reservation) { r.Lead = 6 }), true},
		"clusters of it":       {reservation(func(r *cluster.Reservation) { r.Clusters = nil }), true},
		"labels of it":         {reservation(func(r *cluster.Reservation) { r.Labels = nil }), true},
	} {
		f := New()
		f.SetNode(fullNode())
		other := fullNode()
		other.Name = "n2"
		c.change(&other)
		f.SetNode(other)
		if splits := f.Catalog.InUse() == 2; splits != c.splits {
			t.Errorf("%s: %d node classes, want them split: %v", name, f.Catalog.InUse(), c.splits)
		}
	}
}

// TestPortsOfATask checks that a task gets the ports that it names, and free ports for the others: the first ones from
// where its search starts, never one that it names itself.
func TestPortsOfATask(t *testing.T) {
	p := &cluster.Pending{Task: "c.web.1.0", Attempt: 1}
	first := FirstPort(p.Task, p.Attempt)
	after := func(port int) int {
		if port == cluster.LastAutoPort {
			return cluster.FirstAutoPort
		}
		return port + 1
	}
	p.Ports = []cluster.Port{{Name: "a"}, {Name: "fixed", Port: first}, {Name: "b"}, {Name: "http", Port: 80}}
	var s PortSet
	s.Add(after(after(first))) // of another task
	want := map[string]int{
		"a": after(first), "b": after(after(after(first))), "fixed": first, "http": 80,
	}
	if diff := cmp.Diff(want, s.Assign(p)); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
	for name, port := range want {
		if !s.Has(port) {
			t.Errorf("port %d of %s is not taken", port, name)
		}
	}
	if s.AutoUsed != 4 {
		t.Errorf("%d assignable ports are in use, want 4", s.AutoUsed)
	}
}
