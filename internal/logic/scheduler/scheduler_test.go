package scheduler_test

import (
	"math"
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

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
		{
			"a reserved port",
			counts{count(2, cluster.Refusal{Code: cluster.ReasonPort, Port: 80, Detail: "port 80 reserved"})},
			"2 nodes: port 80 reserved",
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
	if want := "1 node: agent does not follow service addresses"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestNodesThatRegisterTasks checks that a registered task is placed only where the agent uses Consul. Only the agent
// decides about that: labels of that name are ignored. The reason names the flag.
func TestNodesThatRegisterTasks(t *testing.T) {
	def := &cluster.TaskDefinition{Name: "web", Version: 1}
	def.Discovery.Consul = []cluster.ConsulService{{}}
	for _, test := range []struct {
		facts  cluster.DiscoveryFact
		placed bool
	}{
		{cluster.DiscoveryFact{}, false},
		{cluster.DiscoveryFact{Name: "other"}, false},
		{cluster.DiscoveryFact{Name: cluster.DiscoveryConsul}, true},
		{cluster.DiscoveryFact{Name: cluster.DiscoveryConsul, Problem: "consul does not answer"}, true},
	} {
		labels := cluster.Labels{cluster.LabelDiscovery: cluster.DiscoveryConsul}
		f := scheduler.NewFleet()
		f.SetNode(scheduler.NodeOf(&cluster.Host{Name: "n1", Labels: labels},
			&cluster.Node{Name: "n1", State: cluster.NodeReady}, &cluster.NodeStatus{Name: "n1", Facts: cluster.Facts{
				Labels: labels, Discovery: test.facts, Executors: []cluster.ExecutorFact{{Name: "process"}},
			}}))
		res := scheduler.Schedule(f, []cluster.Pending{{
			Task: "c.web.1.0", Priority: 1, Plain: true, Placement: cluster.Placement{Constraints: def.Needs()},
		}}, scheduler.Options{})
		if placed := len(res.Placements) == 1; placed != test.placed {
			t.Errorf("with an agent that says %+v: placed is %v, want %v", test.facts, placed, test.placed)
		}
		if test.placed {
			continue
		}
		want := "1 node: agent does not register tasks in Consul (berth agent --discovery)"
		if got := scheduler.Sentence(res.Waiting[0].Refusals); got != want {
			t.Errorf("the reason is %q, want %q", got, want)
		}
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
				t.Errorf("its sentence is %q", res.Waiting[0].Sentence)
			}
		})
	}
}

// A task with a network of its own goes only to nodes that offer it, and the others state what they lack. Other tasks
// go anywhere.
func TestNetworks(t *testing.T) {
	f := scheduler.NewFleet()
	node := func(name string, networks ...cluster.NetworkFact) scheduler.Node {
		n := numaNode(name)
		n.Networks = networks
		return n
	}
	p := pinnedPending("web", 0, "")
	decide := func(mode cluster.NetworkMode) string {
		t.Helper()
		p.Network = mode
		res := scheduler.Schedule(f, []cluster.Pending{p}, scheduler.Options{})
		if len(res.Placements) == 1 {
			return res.Placements[0].Node
		}
		if code := res.Waiting[0].Refusals[0].Code; code != cluster.ReasonNetwork {
			t.Errorf("refused for %s", code)
		}
		blockers := scheduler.Blockers(f, p, []string{"a"}, scheduler.Options{})[0]
		if len(blockers) != 1 || blockers[0].Code != cluster.ReasonNetwork {
			t.Errorf("blockers %+v", blockers)
		}
		return res.Waiting[0].Sentence
	}
	f.SetNode(node("a"))
	f.SetNode(node("b", cluster.NetworkFact{Mode: cluster.NetworkBridge, Lacks: "it has no plugins"},
		cluster.NetworkFact{Mode: cluster.NetworkNone}))
	for _, c := range []struct {
		mode cluster.NetworkMode
		want string
	}{
		{"", "a"},
		{cluster.NetworkNone, "b"},
		{
			cluster.NetworkBridge,
			"1 node: network bridge: it has no plugins; 1 node: network bridge: its agent offers no such network; " +
				"the agent's log gives the reason",
		},
	} {
		if got := decide(c.mode); got != c.want {
			t.Errorf("network %q: got %q, want %q", c.mode, got, c.want)
		}
	}
	f.SetNode(node("b", cluster.NetworkFact{Mode: cluster.NetworkBridge}))
	if got := decide(cluster.NetworkBridge); got != "b" {
		t.Errorf("once b has the plugins: got %q, want b", got)
	}
	// Tasks that differ only in their networks are decided separately.
	q := pinnedPending("web", 1, "")
	p.Network = ""
	q.Network = cluster.NetworkBridge
	f.SetNode(node("b"))
	if res := scheduler.Schedule(f, []cluster.Pending{p, q}, scheduler.Options{}); len(res.Placements) != 1 ||
		len(res.Waiting) != 1 {
		t.Errorf("got %+v, want one placed and the one with a network waiting", res)
	}
}
