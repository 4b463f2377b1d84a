package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
)

// tiny writes two nodes and five kinds of pods as the traces are written.
func tiny(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"openb_node_list_gpu_node.csv": `sn,cpu_milli,memory_mib,gpu,model
n0,32000,65536,4,G2
n1,64000,65536,2,T4
`,
		"openb_pod_list_default.csv": `name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos
p0,4000,4096,1,1000,,LS
p1,2000,4096,1,500,,LS
p2,16000,4096,0,0,,LS
p3,8000,8192,2,1000,G2|T4,LS
p4,2000,4096,1,500,,LS
`,
		"openb_pod_list_multigpu20.csv": `name,cpu_milli,memory_mib,num_gpu,gpu_milli
p0,4000,4096,1,1000
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestReadTrace(t *testing.T) {
	got, err := readTrace(tiny(t), "default")
	if err != nil {
		t.Fatal(err)
	}
	want := []packing.Demand{
		{CPU: 4000, Memory: 4 << 30, Devices: 1},
		{CPU: 2000, Memory: 4 << 30, Devices: 1, Share: 500},
		{CPU: 16000, Memory: 4 << 30},
		{CPU: 8000, Memory: 8 << 30, Devices: 2, Models: 0b11},
	}
	if diff := cmp.Diff(want, got.demands); diff != "" {
		t.Errorf("demands (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{0, 1, 2, 3, 1}, got.pods); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	if got.capacity() != 6000 {
		t.Errorf("capacity: got %d, want 6000", got.capacity())
	}
}

// inOrder is a rule that prefers nodes by a fixed order.
type inOrder struct{ *trace }

func (inOrder) arrive(int) bool { return false }

func (o inOrder) score(n *packing.Node, demand int) (uint64, uint64, bool) {
	devices, ok := tightest(n, &o.demands[demand])
	return uint64(len(n.Devices)), devices, ok
}

// TestReplay: pods arrive until their demand is 130 % of the devices. The result counts the placed ones.
func TestReplay(t *testing.T) {
	for _, c := range []struct {
		name           string
		nodes          []packing.Node
		demands        []packing.Demand
		allocated, dry float64
		placed, turns  int
	}{
		{
			"whole devices fill the fleet",
			[]packing.Node{fleetNode(100, 2)},
			[]packing.Demand{{CPU: 1, Devices: 1}},
			100,
			0, 2, 3,
		},
		{"CPU is gone first", []packing.Node{fleetNode(10, 2)}, []packing.Demand{{CPU: 10, Devices: 1}}, 50, 50, 1, 3},
		{
			"what nothing fits beside",
			[]packing.Node{fleetNode(100, 2)},
			[]packing.Demand{{CPU: 1, Devices: 1, Share: 600}},
			60, 0, 2, 5,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := &trace{nodes: c.nodes, demands: c.demands, pods: []int{0}}
			got := replay(tr, newFleet(tr, inOrder{tr}), rand.New(rand.NewPCG(1, 1)))
			if got.allocated != c.allocated || got.dry != c.dry || got.placed != c.placed || got.arrived != c.turns {
				t.Errorf("got %+v, want %v %% allocated, %v %% dry, %d placed of %d", got, c.allocated, c.dry, c.placed,
					c.turns)
			}
			if free := c.nodes[0].Devices[0].Free; free != 1000 {
				t.Errorf("the trace's own node was changed: %d of a device free", free)
			}
		})
	}
}

// TestBerth: the scheduler keeps the node with little CPU for the light pods, and puts shares onto one device.
func TestBerth(t *testing.T) {
	poor, rich := fleetNode(8000, 4), fleetNode(64000, 4)
	poor.Memory, rich.Memory = 64<<30, 64<<30
	tr := &trace{
		nodes: []packing.Node{rich, poor},
		demands: []packing.Demand{
			{CPU: 1000, Devices: 1},
			{CPU: 12000, Devices: 1},
			{CPU: 1000, Devices: 1, Share: 300},
		},
		models: map[string]uint8{"": 0},
	}
	for _, strategy := range []cluster.Strategy{"", cluster.StrategyWhole} {
		b := newBerth(tr, strategy)
		for range 100 {
			b.arrive(0)
			b.arrive(1)
			b.arrive(2)
		}
		for _, k := range []int{2, 0, 2, 1, 1, 1, 1, 0} {
			if !b.place(k) {
				t.Errorf("strategy %q: a pod of demand %d found no place", strategy, k)
			}
		}
		var free []int
		for _, n := range b.nodes() {
			for _, v := range n.Devices {
				free = append(free, v.Free)
			}
		}
		slices.Sort(free)
		if diff := cmp.Diff([]int{0, 0, 0, 0, 0, 0, 400, 1000}, free); diff != "" {
			t.Errorf("strategy %q: free of the devices (-want +got):\n%s", strategy, diff)
		}
	}
}

func fleetNode(cpu cluster.MilliCPU, devices int) packing.Node {
	n := packing.Node{CPU: cpu, FreeCPU: cpu}
	for range devices {
		n.Devices = append(n.Devices, packing.Device{Free: 1000})
	}
	return n
}

// TestGradient: the policy prefers the device of a node that is already shared, and the node whose devices no typical
// pod loses.
func TestGradient(t *testing.T) {
	tr := &trace{
		demands: []packing.Demand{{CPU: 1, Devices: 1}, {CPU: 1, Devices: 1, Share: 500}},
		pods:    []int{0, 0, 1},
	}
	g := newGradient(tr)
	n := fleetNode(100, 2)
	n.Devices[1].Free = 500
	_, devices, ok := g.score(&n, 1)
	if !ok || devices != 1<<1 {
		t.Errorf("devices: got %b, %t, want 10", devices, ok)
	}
	whole := fleetNode(100, 2)
	broken, _, _ := g.score(&n, 1)
	if fresh, _, _ := g.score(&whole, 1); broken >= fresh {
		t.Errorf("cost: got %d on a broken device, want less than %d on a whole one", broken, fresh)
	}
}

// TestRun prints a line for each strategy, and names missing data at the end.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run([]string{"-data", tiny(t), "-seeds", "2", "-order", "shuffled"}, &out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, s := range strategies {
		if strings.Count(text, "| "+s.name+" |") != 1 {
			t.Errorf("no line for %s in:\n%s", s.name, text)
		}
	}
	if !strings.Contains(text, "| default | multigpu20 |") || !strings.Contains(text, "no data") ||
		!strings.HasSuffix(strings.TrimSpace(text), "BERTH_DATA.") {
		t.Errorf("got:\n%s", text)
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if last := lines[len(lines)-1]; !strings.Contains(last, "cpu100, gpuspec10") {
		t.Errorf("last line: got %q, want it to name cpu100 and gpuspec10", last)
	}
}

func TestRunRefuses(t *testing.T) {
	dir := tiny(t)
	bad := filepath.Join(dir, "openb_pod_list_cpu100.csv")
	if err := os.WriteFile(bad, []byte("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,many,1,0,0\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	idle := filepath.Join(dir, "openb_pod_list_gpuspec10.csv")
	if err := os.WriteFile(idle, []byte("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,1,1,0,0\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"-data", dir, "-trace", "gpuspec10"},
		{"-order", "by-name"},
		{"-seeds", "0"},
		{"-data", dir, "-trace", "cpu100"},
	} {
		if err := run(args, &bytes.Buffer{}); err == nil {
			t.Errorf("%q: got no error", args)
		}
	}
}
