package scheduler_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

func TestNodeOf(t *testing.T) {
	status := &cluster.NodeStatus{Name: "n1", Facts: cluster.Facts{
		OS: "linux", Arch: "arm64", Kernel: "6.1.0", CPU: 2000, Memory: cluster.GiB, Disk: cluster.TiB,
		Executors:     []cluster.ExecutorFact{{Name: "containerd", Version: "2.0"}, {Name: "process"}},
		ReservedPorts: []int{22},
		Labels:        cluster.Labels{"zone": "a", "rack": "7"},
	}}
	ready := &cluster.Node{Name: "n1", State: cluster.NodeReady}
	full := scheduler.Node{
		Name: "n1", State: cluster.NodeReady, Arch: "arm64", OS: "linux", Kernel: "6.1.0",
		Executors:     []string{"containerd", "process"},
		Labels:        cluster.Labels{"zone": "a", "rack": "7", cluster.LabelIsolation: cluster.IsolatesImages},
		Capacity:      cluster.Demand{CPU: 2000, Memory: cluster.GiB, Disk: cluster.TiB},
		ReservedPorts: []int{22},
	}
	overridden := full
	overridden.Labels, overridden.Cordon = cluster.Labels{
		"zone": "b", "rack": "7", "gpu": "1",
		cluster.LabelIsolation: cluster.IsolatesImages,
	}, true
	for _, test := range []struct {
		name   string
		host   *cluster.Host
		status *cluster.NodeStatus
		want   scheduler.Node
	}{
		{"agent only", nil, status, full},
		{
			"operator's labels override",
			&cluster.Host{Name: "n1", Cordon: true, Labels: cluster.Labels{"zone": "b", "gpu": "1"}}, status,
			overridden,
		},
		{"no status", nil, nil, scheduler.Node{Name: "n1", State: cluster.NodeReady, Labels: cluster.Labels{}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, scheduler.NodeOf(test.host, ready, test.status)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSentence(t *testing.T) {
	type counts = []cluster.RefusalCount
	count := func(n int, r cluster.Refusal) cluster.RefusalCount { return cluster.RefusalCount{Refusal: r, Nodes: n} }
	for _, test := range []struct {
		name string
		in   counts
		want string
	}{
		{"nothing", nil, ""},
		{"no nodes", counts{count(0, cluster.Refusal{Code: cluster.ReasonNoNodes})}, "no node has joined yet"},
		{
			"several",
			counts{
				count(3, cluster.Refusal{Code: cluster.ReasonShortMemory, Short: int64(200 * cluster.MiB)}),
				count(1, cluster.Refusal{Code: cluster.ReasonPort, Port: 8080}),
			},
			"3 nodes: memory short by 200 MiB; 1 node: port 8080 taken",
		},
		{"a code without words", counts{count(2, cluster.Refusal{Code: "strange"})}, "2 nodes: strange"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := scheduler.Sentence(test.in); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestOutsideAmounts checks that amounts which validation would reject neither overflow nor free room.
func TestOutsideAmounts(t *testing.T) {
	const huge = cluster.Bytes(math.MaxInt64)
	node := scheduler.Node{
		Name: "n1", State: cluster.NodeReady, Executors: []string{"process"},
		Capacity: cluster.Demand{CPU: 1000, Memory: cluster.GiB, Disk: cluster.GiB},
	}
	for _, test := range []struct {
		name     string
		held     []cluster.Demand
		ask      cluster.Demand
		capacity cluster.Bytes
		placed   bool
	}{
		{"a huge demand", nil, cluster.Demand{Memory: huge}, cluster.GiB, false},
		{
			"huge reservations",
			[]cluster.Demand{{Memory: huge}, {Memory: huge}},
			cluster.Demand{Memory: 1},
			cluster.GiB,
			false,
		},
		{
			"a negative reservation",
			[]cluster.Demand{{Memory: -cluster.GiB}},
			cluster.Demand{Memory: 2 * cluster.GiB},
			cluster.GiB, false,
		},
		{"a negative demand", nil, cluster.Demand{Memory: -cluster.GiB}, cluster.GiB, true},
		{"a negative capacity", nil, cluster.Demand{Memory: 1}, -cluster.GiB, false},
		{"a huge capacity", nil, cluster.Demand{Memory: cluster.TiB}, huge, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := scheduler.NewFleet()
			n := node
			n.Capacity.Memory = test.capacity
			f.SetNode(n)
			for i, d := range test.held {
				f.Reserve(scheduler.Reservation{UUID: string(rune('a' + i)), Task: "c.old.1.0", Node: "n1", Demand: d})
			}
			p := cluster.Pending{Task: "c.web.1.0", Priority: 1, Demand: test.ask}
			res := scheduler.Schedule(f, []cluster.Pending{p}, scheduler.Options{})
			if placed := len(res.Placements) == 1; placed != test.placed {
				t.Errorf("placed is %v, want %v: %+v", placed, test.placed, res.Waiting)
			}
		})
	}
}

// TestDoubledPort checks that a task which names one port twice is refused.
func TestDoubledPort(t *testing.T) {
	f := scheduler.NewFleet()
	f.SetNode(scheduler.Node{Name: "n1", State: cluster.NodeReady, Executors: []string{"process"}})
	res := scheduler.Schedule(f, []cluster.Pending{{
		Task: "c.web.1.0", Priority: 1, Ports: []cluster.Port{{Name: "a", Port: 80}, {Name: "b", Port: 80}},
	}}, scheduler.Options{})
	if len(res.Waiting) != 1 || res.Waiting[0].Refusals[0].Port != 80 {
		t.Errorf("got %+v, want a refusal for port 80", res)
	}
}

// TestDefaultStrategies checks that options set the strategy of owners that name none.
func TestDefaultStrategies(t *testing.T) {
	f := scheduler.NewFleet()
	for _, name := range []string{"n1", "n2"} {
		f.SetNode(scheduler.Node{
			Name: name, State: cluster.NodeReady, Executors: []string{"process"}, Capacity: cluster.Demand{CPU: 4000},
		})
	}
	for _, test := range []struct {
		name string
		kind cluster.Kind
		opts scheduler.Options
		same bool // both tasks on one node
	}{
		{"a service spreads", cluster.KindService, scheduler.Options{}, false},
		{"a job binpacks", cluster.KindJob, scheduler.Options{}, true},
		{"services are packed", cluster.KindService, scheduler.Options{Services: cluster.StrategyBinpack}, true},
		{"jobs are spread", cluster.KindJob, scheduler.Options{Jobs: cluster.StrategySpread}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := cluster.Pending{
				Task: "c.x.1.0", Priority: 1, Owner: cluster.OwnerRef{Kind: test.kind},
				Demand: cluster.Demand{CPU: 100},
			}
			q := p
			q.Task = "c.x.1.1"
			res := scheduler.Schedule(f, []cluster.Pending{p, q}, test.opts)
			if same := res.Placements[0].Node == res.Placements[1].Node; same != test.same {
				t.Errorf("on the same node: %v, want %v", same, test.same)
			}
		})
	}
}

// Only the agent decides whether it follows services: labels of that name are ignored.
func TestNodesThatFollowServices(t *testing.T) {
	node := &cluster.Node{Name: "n1", State: cluster.NodeReady}
	for _, follows := range []bool{false, true} {
		status := &cluster.NodeStatus{
			Name:  "n1",
			Facts: cluster.Facts{Services: follows, Labels: cluster.Labels{cluster.LabelServices: "true"}},
		}
		n := scheduler.NodeOf(&cluster.Host{Name: "n1", Labels: cluster.Labels{cluster.LabelServices: "true"}}, node,
			status)
		if got := n.Labels[cluster.LabelServices] == "true"; got != follows {
			t.Errorf("an agent that says %v counts as %v", follows, got)
		}
	}
	got := scheduler.Sentence(
		[]cluster.RefusalCount{{Refusal: cluster.Refusal{
			Code:   cluster.ReasonConstraint,
			Detail: `label.berth.services = "true"`,
		}, Nodes: 1}})
	if want := "1 node: its agent does not know how to follow the addresses of services: it is of an older " +
		"build, upgrade it"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestPlainProgramsWantTheirExecutor checks that a task without an image goes to no node that only runs images, and
// that the reason says so. A task with an image and a command runs on both kinds of nodes.
func TestPlainProgramsWantTheirExecutor(t *testing.T) {
	for _, test := range []struct {
		name      string
		executors []string
		task      cluster.Pending
		placed    bool
	}{
		{"plain, images alone", []string{"containerd"}, cluster.Pending{Plain: true}, false},
		{"plain, both", []string{"containerd", "process"}, cluster.Pending{Plain: true}, true},
		{"plain, plain alone", []string{"process"}, cluster.Pending{Plain: true}, true},
		{"an image, plain alone", []string{"process"}, cluster.Pending{NeedsImage: true}, false},
		{"an image with a command, plain alone", []string{"process"}, cluster.Pending{}, true},
		{"an image with a command, images alone", []string{"containerd"}, cluster.Pending{}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := scheduler.NewFleet()
			f.SetNode(scheduler.Node{
				Name: "n1", State: cluster.NodeReady, Executors: test.executors,
				Capacity: cluster.Demand{CPU: 1000, Memory: cluster.GiB},
			})
			p := test.task
			p.Task, p.Priority = "c.web.1.0", 1
			res := scheduler.Schedule(f, []cluster.Pending{p}, scheduler.Options{})
			if placed := len(res.Placements) == 1; placed != test.placed {
				t.Fatalf("placed is %v, want %v: %+v", placed, test.placed, res.Waiting)
			}
			if !test.placed && res.Waiting[0].Refusals[0].Code != cluster.ReasonNoExecutor {
				t.Errorf("it is told %q", res.Waiting[0].Sentence)
			}
		})
	}
}
