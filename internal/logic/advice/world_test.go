package advice_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

func noon() time.Time { return time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) }

func options() scheduler.Options { return scheduler.Options{Now: noon()} }

// draw draws from a seed, so that a case can be repeated by its number.
type draw struct {
	*rand.Rand
	// mild divides the frequency of demands and of faults.
	mild int
}

func seeded(seed, mild int) draw { return draw{rand.New(rand.NewPCG(uint64(seed), 7)), mild} }

func (d draw) oneIn(n int) bool { return d.IntN(n) == 0 }

func (d draw) rare(n int) bool { return d.IntN(n*d.mild) == 0 }

func pick[T any](d draw, from ...T) T { return from[d.IntN(len(from))] }

func ready(name string, cpu cluster.MilliCPU, memory cluster.Bytes) scheduler.Node {
	return scheduler.Node{
		Name: name, State: cluster.NodeReady, Arch: "amd64", Kernel: "6.1", Executors: []string{"containerd"},
		Labels:   cluster.Labels{},
		Capacity: cluster.Demand{CPU: cpu, Memory: memory, Disk: 100 * cluster.GiB},
	}
}

func (d draw) node(name string) scheduler.Node {
	n := ready(name, cluster.MilliCPU(1000*(1+d.IntN(4))), cluster.GiB*cluster.Bytes(1+d.IntN(4)))
	n.Labels = cluster.Labels{"zone": pick(d, "a", "b", "c"), "rack": pick(d, "1", "2")}
	n.Arch, n.Kernel = pick(d, "amd64", "amd64", "arm64"), pick(d, "6.1", "5.10", "")
	switch d.IntN(12 * d.mild) {
	case 0:
		n.State = pick(d, cluster.NodeDown, cluster.NodeSuspect, cluster.NodeJoining)
	case 1:
		n.Cordon = true
	case 2:
		n.Cordon, n.Drain, n.State = true, true, pick(d, cluster.NodeDraining, cluster.NodeDrained, cluster.NodeReady)
	case 3:
		n.Executors = pick(d, nil, []string{"process"})
	}
	if d.rare(4) {
		n.Taints = append(n.Taints,
			cluster.Taint{
				Key: pick(d, "x", "y"), Value: pick(d, "", "1"),
				Effect: pick(d, "", cluster.TaintEvict, cluster.TaintAvoid),
			})
	}
	if d.rare(5) {
		n.Taints = append(n.Taints, cluster.Taint{Key: "z"})
	}
	if d.rare(3) {
		n.Pool = pick(d, "p", "q")
	}
	if d.rare(3) {
		for i := range 1 + d.IntN(4) {
			n.Devices = append(n.Devices,
				cluster.Device{
					ID: fmt.Sprint("d", i), Type: "gpu", Model: pick(d, "A", "B"), Memory: 8 * cluster.GiB,
					Numa: -1,
				})
		}
	}
	if d.rare(8) {
		n.Reserved = []*cluster.Reservation{{
			Name: "r", From: noon().Add(-time.Hour), Until: noon().Add(time.Hour),
			Labels: cluster.Labels{"app": pick(d, "web", "db")},
		}}
	}
	if d.rare(8) {
		n.ReservedPorts = []int{8080}
	}
	return n
}

// fleet draws nodes with reservations.
func (d draw) fleet(most int) (f *scheduler.Fleet, names []string) {
	f = scheduler.NewFleet()
	for i := range d.IntN(most + 1) {
		names = append(names, fmt.Sprint("n", i))
		f.SetNode(d.node(names[i]))
	}
	for i := range 3 * len(names) {
		r := scheduler.Reservation{
			UUID: fmt.Sprintf("u%02d", i),
			Task: cluster.TaskID(fmt.Sprintf("c.%s.1.%d", pick(d, "other", "more", "web"), i)),
			Node: pick(d, names...),
			Demand: cluster.Demand{
				CPU:    cluster.MilliCPU(100 * d.IntN(12)),
				Memory: 100 * cluster.MiB * cluster.Bytes(d.IntN(12)),
			}, Priority: 1 + d.IntN(3),
			Definition: cluster.Ref{Name: "w", Version: 1},
		}
		if d.oneIn(3) {
			r.Labels = cluster.Labels{"app": pick(d, "db", "cache")}
		}
		if d.oneIn(6) {
			r.Ports = []int{8080}
		}
		if d.rare(6) {
			r.Away = []cluster.Relation{{
				Labels: cluster.Labels{"app": "web"}, Away: true, Required: true,
				Attribute: pick(d, "", "label.rack"),
			}}
		}
		if d.oneIn(5) {
			r.Devices = []cluster.DeviceUse{{ID: fmt.Sprint("d", d.IntN(3)), Share: cluster.WholeDevice}}
		}
		f.Reserve(r)
	}
	return f, names
}

// bind gives the task a volume with data on some nodes, and removes most of its other demands.
func (d draw) bind(f *scheduler.Fleet, p *cluster.Pending) {
	p.Volumes, p.Demand.CPU = []string{"c/web/data"}, 100
	if d.oneIn(2) {
		p.Placement, p.Devices = cluster.Placement{}, nil
	}
	for _, name := range f.Nodes() {
		if n, _, _ := f.Node(name); d.oneIn(3) {
			n.Volumes, n.Cordon = p.Volumes, d.oneIn(3)
			n.State = pick(d, n.State, n.State, cluster.NodeDown)
			f.SetNode(n)
		}
	}
}

func constraints() []cluster.Constraint {
	return []cluster.Constraint{
		{Attribute: "label.zone", Op: cluster.OpEqual, Value: "b"},
		{Attribute: "label.zone", Op: cluster.OpIn, Values: []string{"a", "c"}},
		{Attribute: "label.zone", Op: cluster.OpNotIn, Values: []string{"a", "b"}},
		{Attribute: "node.kernel", Op: cluster.OpAtLeast, Value: "6.0"},
		{Attribute: "node.arch", Op: cluster.OpNotEqual, Value: "arm64"},
		{Attribute: "label.disk", Op: cluster.OpExists},
		{Attribute: "label.rack", Op: cluster.OpMore, Value: "1"},
		{Attribute: "device.gpu.count", Op: cluster.OpMore, Value: "1"},
		{Attribute: "node.name", Op: cluster.OpIn, Values: []string{"n0", "n1"}},
	}
}

// task draws a task with large demands.
func (d draw) task(names []string) cluster.Pending {
	p := cluster.Pending{
		Task: "c.web.1.90", Attempt: 1, Owner: cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "web"},
		Priority:   pick(d, 5, 5, 5, 5, 0),
		Definition: cluster.Ref{Name: "w", Version: 1}, Count: 4, NeedsImage: d.oneIn(2),
		Labels: cluster.Labels{"app": "web"},
		Demand: cluster.Demand{
			CPU:    cluster.MilliCPU(100 * (1 + d.IntN(30))),
			Memory: 100 * cluster.MiB * cluster.Bytes(1+d.IntN(30)),
		},
	}
	p.Plain = !p.NeedsImage && p.Demand.CPU%500 == 0 // derived, not drawn: older seeds keep their worlds
	for range d.IntN(3) / d.mild {
		p.Placement.Constraints = append(p.Placement.Constraints, pick(d, constraints()...))
	}
	if d.rare(5) {
		p.Placement.Pool = pick(d, "p", "q", "r")
	}
	if d.rare(16) {
		p.Placement.Reservation = pick(d, "r", "s")
	}
	if d.rare(4) {
		p.Ports = []cluster.Port{{Name: "http", Port: 8080}}
	}
	if d.rare(5) {
		p.Placement.AntiAffinity = cluster.AntiAffinityDemand
	}
	if d.rare(5) {
		p.Placement.Distinct = []cluster.Distinct{
			{Attribute: pick(d, "label.zone", "label.rack", "node.name"), Most: 1 + d.IntN(2)},
		}
	}
	if d.rare(5) {
		p.Placement.Spread = []cluster.Spread{{Attribute: pick(d, "label.zone", "label.rack", "node.name"), MaxSkew: 1}}
	}
	if d.rare(4) {
		p.Placement.Relations = []cluster.Relation{{
			Labels: cluster.Labels{"app": pick(d, "db", "cache", "none")}, Required: true, Away: d.oneIn(2),
			Attribute: pick(d, "", "label.zone"),
		}}
	}
	if d.rare(5) {
		p.Devices = []cluster.DeviceRequest{{Count: 1 + d.IntN(3), Models: pick(d, nil, []string{"A"}, []string{"C"})}}
	}
	if d.rare(6) && len(names) > 0 {
		p.ExcludedNodes = []string{pick(d, names...)}
	}
	if d.rare(12) && len(names) > 0 {
		p.OnlyNode = pick(d, append(slices.Clone(names), "gone")...)
	}
	return p
}

// places reports whether Schedule places the task.
func places(f *scheduler.Fleet, p cluster.Pending) bool {
	return len(scheduler.Schedule(f, []cluster.Pending{p}, options()).Placements) == 1
}
