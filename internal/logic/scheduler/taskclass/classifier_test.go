package taskclass_test

import (
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// classify returns the classes of tasks, in their order.
func classify(pending ...cluster.Pending) (*taskclass.Classifier, []*taskclass.Class) {
	o := fleet.NewOverlay(fleet.New())
	k := taskclass.NewClassifier(&o, pending, taskclass.Options{})
	var order []int32
	for i := range pending {
		order = append(order, int32(i))
	}
	k.Classify(order)
	return &k, k.At
}

// request returns a task with a demand of each kind.
func request(kind cluster.Kind) cluster.Pending {
	p := cluster.Pending{
		Task: cluster.ServiceTask("c", "web", 1, 0), Attempt: 1, Count: 2, Priority: 500,
		Owner:      cluster.OwnerRef{Kind: kind, Cluster: "c", Name: "web"},
		Definition: cluster.Ref{Name: "w", Version: 1}, Demand: cluster.Demand{CPU: 1000, Memory: 1, Disk: 1},
		Ports: []cluster.Port{{Name: "http", Port: 80}}, Labels: cluster.Labels{"app": "web"}, Images: []string{"i"},
		Devices:       []cluster.DeviceRequest{{Type: "gpu", Count: 1, Models: []string{"A"}}},
		ExcludedNodes: []string{"n1"}, PenalizedNodes: []string{"n2"}, TimeLimit: 5,
		Placement: cluster.Placement{
			Strategy: cluster.StrategyBinpack, Pool: "p",
			Constraints: []cluster.Constraint{{Attribute: "label.a", Op: cluster.OpIn, Values: []string{"b"}}},
			Affinities: []cluster.Affinity{
				{Constraint: cluster.Constraint{Attribute: "label.a", Value: "b"}, Weight: 5},
			},
			Tolerations: []cluster.Toleration{{Key: "k"}},
			Relations:   []cluster.Relation{{Labels: cluster.Labels{"app": "db"}}},
		},
	}
	if kind == cluster.KindJob {
		p.Task, p.Queue = cluster.JobTask("c", "web", 1, "s", 0), cluster.QueueEASY
	}
	return p
}

// TestWhatSplitsTaskClasses changes one thing of a request. Two tasks are of one class exactly if nodes answer both
// alike: what names a task, or counts for limits of its cluster alone, does not split classes. Tasks of two services
// have classes of their own.
func TestWhatSplitsTaskClasses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(p *cluster.Pending)
		splits bool
	}{
		"nothing":   {func(*cluster.Pending) {}, false},
		"attempt":   {func(p *cluster.Pending) { p.Attempt = 7 }, false},
		"user":      {func(p *cluster.Pending) { p.User = "u" }, false},
		"revision":  {func(p *cluster.Pending) { p.OwnerRev = 9 }, false},
		"group":     {func(p *cluster.Pending) { p.Concurrency = &cluster.Concurrency{Group: "g"} }, false},
		"CPU":       {func(p *cluster.Pending) { p.Demand.CPU++ }, true},
		"memory":    {func(p *cluster.Pending) { p.Demand.Memory++ }, true},
		"disk":      {func(p *cluster.Pending) { p.Demand.Disk++ }, true},
		"image":     {func(p *cluster.Pending) { p.NeedsImage = true }, true},
		"plain":     {func(p *cluster.Pending) { p.Plain = true }, true},
		"network":   {func(p *cluster.Pending) { p.Network = cluster.NetworkBridge }, true},
		"images":    {func(p *cluster.Pending) { p.Images = []string{"j"} }, true},
		"ports":     {func(p *cluster.Pending) { p.Ports = []cluster.Port{{Name: "http", Port: 81}} }, true},
		"labels":    {func(p *cluster.Pending) { p.Labels = cluster.Labels{"app": "api"} }, true},
		"count":     {func(p *cluster.Pending) { p.Count = 3 }, true},
		"limit":     {func(p *cluster.Pending) { p.TimeLimit = 6 }, true},
		"gang":      {func(p *cluster.Pending) { p.Gang = "g" }, true},
		"daemon":    {func(p *cluster.Pending) { p.Daemon = true }, true},
		"only node": {func(p *cluster.Pending) { p.OnlyNode = "n3" }, true},
		"promise":   {func(p *cluster.Pending) { p.Promised = "n3" }, true},
		"excluded":  {func(p *cluster.Pending) { p.ExcludedNodes = []string{"n3"} }, true},
		"penalized": {func(p *cluster.Pending) { p.PenalizedNodes = []string{"n3"} }, true},
		"device model": {func(p *cluster.Pending) {
			p.Devices = []cluster.DeviceRequest{{Type: "gpu", Count: 1}}
		}, true},
		"no devices":    {func(p *cluster.Pending) { p.Devices = nil }, true},
		"pool":          {func(p *cluster.Pending) { p.Placement.Pool = "q" }, true},
		"strategy":      {func(p *cluster.Pending) { p.Placement.Strategy = cluster.StrategyWhole }, true},
		"anti-affinity": {func(p *cluster.Pending) { p.Placement.AntiAffinity = cluster.AntiAffinityDemand }, true},
		"reservation":   {func(p *cluster.Pending) { p.Placement.Reservation = "r" }, true},
		"constraint": {func(p *cluster.Pending) {
			p.Placement.Constraints = []cluster.Constraint{
				{Attribute: "label.a", Op: cluster.OpNotIn, Values: []string{"b"}},
			}
		}, true},
		"values": {func(p *cluster.Pending) {
			p.Placement.Constraints = []cluster.Constraint{
				{Attribute: "label.a", Op: cluster.OpIn, Values: []string{"c"}},
			}
		}, true},
		"affinity":   {func(p *cluster.Pending) { p.Placement.Affinities = nil }, true},
		"toleration": {func(p *cluster.Pending) { p.Placement.Tolerations = []cluster.Toleration{{Key: "l"}} }, true},
		"relation": {func(p *cluster.Pending) {
			p.Placement.Relations = []cluster.Relation{{Labels: cluster.Labels{"app": "db"}, Away: true}}
		}, true},
		"spread": {func(p *cluster.Pending) { p.Placement.Spread = []cluster.Spread{{Attribute: "label.a"}} }, true},
		"distinct": {func(p *cluster.Pending) {
			p.Placement.Distinct = []cluster.Distinct{{Attribute: "label.a"}}
		}, true},
		"version": {func(p *cluster.Pending) { p.Definition.Version = 2 }, true},
	} {
		a, b := request(cluster.KindService), request(cluster.KindService)
		b.Task = cluster.ServiceTask("c", "web", 1, 1)
		c.change(&b)
		for _, pair := range [][]cluster.Pending{{a, b}, {b, a}} {
			if _, at := classify(pair...); (at[0] != at[1]) != c.splits {
				t.Errorf("%s: the tasks are of two classes: %v, want %v", name, at[0] != at[1], c.splits)
			}
		}
		// A third task in between must not change that, as equal tasks need not be adjacent.
		other := request(cluster.KindService)
		other.Task, other.Owner.Name = cluster.ServiceTask("c", "api", 1, 0), "api"
		if _, at := classify(a, other, b); (at[0] != at[2]) != c.splits || at[1] == at[0] || at[1] == at[2] {
			t.Errorf("%s: with another service in between, the tasks are of two classes: %v, want %v", name,
				at[0] != at[2], c.splits)
		}
	}
}

// TestJobsShareClasses has tasks of two jobs with equal requests: they share a class, unless they differ in what orders
// or limits them, or count other tasks of their job.
func TestJobsShareClasses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(p *cluster.Pending) // of both
		other  func(p *cluster.Pending) // of the second one
		shares bool
	}{
		"equal":            {nil, nil, true},
		"another user":     {nil, func(p *cluster.Pending) { p.User = "u" }, true},
		"another version":  {nil, func(p *cluster.Pending) { p.Definition.Name = "v" }, true},
		"another priority": {nil, func(p *cluster.Pending) { p.Priority++ }, false},
		"another queue":    {nil, func(p *cluster.Pending) { p.Queue = cluster.QueueSJBF }, false},
		"another cluster": {nil, func(p *cluster.Pending) {
			p.Owner.Cluster, p.Task = "d", cluster.JobTask("d", "other", 1, "s", 0)
		}, false},
		"first come, first served": {func(p *cluster.Pending) { p.Queue = cluster.QueueFIFO }, nil, false},
		"spread": {func(p *cluster.Pending) {
			p.Placement.Spread = []cluster.Spread{{Attribute: "label.a"}}
		}, nil, false},
		"anti-affinity": {func(p *cluster.Pending) {
			p.Placement.AntiAffinity = cluster.AntiAffinityPrefer
		}, nil, false},
		"a gang": {func(p *cluster.Pending) { p.Gang = "g" }, nil, false},
	} {
		a, b := request(cluster.KindJob), request(cluster.KindJob)
		b.Owner.Name, b.Task = "other", cluster.JobTask("c", "other", 1, "s", 0)
		if c.change != nil {
			c.change(&a)
			c.change(&b)
		}
		if c.other != nil {
			c.other(&b)
		}
		if _, at := classify(a, b); (at[0] == at[1]) != c.shares {
			t.Errorf("%s: the tasks share a class: %v, want %v", name, at[0] == at[1], c.shares)
		}
	}
}

// TestTakeFirst takes the tasks of a request one after the other. Each gets a position of its own, the request stands
// for the others, and the list of the caller stays as it is.
func TestTakeFirst(t *testing.T) {
	p := request(cluster.KindJob)
	p.Further = 2
	given := []cluster.Pending{p}
	k, at := classify(given...)
	if at[0].Left != 3 || at[0].Group.Left != 3 {
		t.Errorf("%d tasks are left in the class and %d in its group, want 3", at[0].Left, at[0].Group.Left)
	}
	for i, wantMore := range []bool{true, true, false} {
		first, more := k.TakeFirst(0)
		task := k.Task(first)
		want := p.Task.Offset(i)
		if task.Task != want || task.Further != 0 || more != wantMore || k.At[first] != at[0] {
			t.Errorf("task %d: got %s with %d further, more %v, want %s and %v", i, task.Task, task.Further, more, want,
				wantMore)
		}
	}
	if given[0].Further != 2 || given[0].Task != p.Task {
		t.Errorf("the request of the caller is %s with %d further", given[0].Task, given[0].Further)
	}
	if all := k.Given(); len(all) != 3 {
		t.Errorf("%d requests, want one and the two that were taken of it", len(all))
	}
}
