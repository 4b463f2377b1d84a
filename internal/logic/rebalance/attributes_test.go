package rebalance_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/rebalance"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// TestSpreadIsTheSameOverEachAttribute has two nodes with one value of an attribute and a third node with another one.
// It does not matter by which attribute the nodes differ: the same tasks move to the same nodes.
func TestSpreadIsTheSameOverEachAttribute(t *testing.T) {
	gpu := cluster.Device{ID: "g", Type: "gpu"}
	for attribute, set := range map[string]func(n *scheduler.Node, last bool){
		"node.arch":   func(n *scheduler.Node, last bool) { n.Arch = pickOne(last, "arm64", "amd64") },
		"node.os":     func(n *scheduler.Node, last bool) { n.OS = pickOne(last, "linux", "freebsd") },
		"node.kernel": func(n *scheduler.Node, last bool) { n.Kernel = pickOne(last, "6.1", "5.10") },
		"node.pool":   func(n *scheduler.Node, last bool) { n.Pool = pickOne(last, "p", "q") },
		"node.class":  func(n *scheduler.Node, last bool) { n.Labels["class"] = pickOne(last, "large", "small") },
		"label.rack":  func(n *scheduler.Node, last bool) { n.Labels["rack"] = pickOne(last, "r1", "r2") },
		"device.gpu.count": func(n *scheduler.Node, last bool) {
			n.Devices = pickOne(last, []cluster.Device{gpu}, nil)
		},
	} {
		t.Run(attribute, func(t *testing.T) {
			w := &world{}
			for i := range 3 {
				set(w.node(fmt.Sprintf("n%d", i+1), 8, 16), i == 2)
			}
			w.service("web", cluster.Placement{
				AntiAffinity: cluster.AntiAffinityNone,
				Spread:       []cluster.Spread{{Attribute: attribute, Weight: 100}},
			}, one(100, 0), times("n1*3 n2*3")...)
			res := rebalance.Rebalance(w.input(), rebalance.Options{})
			w.all(t, res.Moves)
			if diff := cmp.Diff(map[string]int{"n1": 1, "n2": 2, "n3": 3}, sorted(w.counts("web"))); diff != "" {
				t.Errorf("%v\ntasks by node (-want +got):\n%s", shown(res.Moves), diff)
			}
			if res.Before.Uneven <= res.After.Uneven {
				t.Errorf("got %+v after %+v, want it more even", res.After, res.Before)
			}
		})
	}
}

func pickOne[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

// sorted exchanges the counts of n1 and n2, which are alike, so that n1 has the fewer tasks.
func sorted(counts map[string]int) map[string]int {
	counts["n1"], counts["n2"] = min(counts["n1"], counts["n2"]), max(counts["n1"], counts["n2"])
	return counts
}

// TestNearbyTasksOfEachStepStay has a job whose two steps require different services nearby. The tasks of both services
// stay: each step has relations of its own.
func TestNearbyTasksOfEachStepStay(t *testing.T) {
	w := three(&world{})
	w.service("cache", cluster.Placement{}, one(1000, 1), times("n1*3")...)
	w.service("queue", cluster.Placement{}, one(1000, 1), times("n1*3")...)
	owner := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "etl"}
	for step, app := range map[string]string{"extract": "cache", "load": "queue"} {
		id := cluster.JobTask("c", "etl", 1, step, 0)
		w.tasks = append(w.tasks, rebalance.Task{
			Pending: cluster.Pending{
				Task: id, Owner: owner, Priority: 500, Demand: one(100, 0),
				Definition: cluster.Ref{Name: step, Version: 1}, Placement: cluster.Placement{
					Relations: []cluster.Relation{{Labels: cluster.Labels{"app": app}, Required: true}},
				},
			},
			UUID: string(id), Node: "n1", Unmovable: "of jobs",
		})
	}
	res := rebalance.Rebalance(w.input(), rebalance.Options{})
	if len(res.Moves) > 0 || res.Stays["that other tasks must be near"] != 6 {
		t.Errorf("got %v, %v stay, want all tasks to stay", shown(res.Moves), res.Stays)
	}
}

// TestNearbyTasksOfOtherClusters has a service in cluster c that requires tasks nearby. A relation concerns the tasks
// of its own cluster unless it names clusters, and only tasks that have all of its labels.
func TestNearbyTasksOfOtherClusters(t *testing.T) {
	app, more := cluster.Labels{"app": "cache"}, cluster.Labels{"app": "cache", "tier": "1"}
	for name, c := range map[string]struct {
		relation cluster.Relation
		in       string // cluster of the tasks
		labels   cluster.Labels
		stay     bool
	}{
		"own cluster":            {cluster.Relation{Labels: app}, "c", app, true},
		"another cluster":        {cluster.Relation{Labels: app}, "d", app, false},
		"an empty list is own":   {cluster.Relation{Labels: app, Clusters: []string{}}, "c", app, true},
		"a named cluster":        {cluster.Relation{Labels: app, Clusters: []string{"d"}}, "d", app, true},
		"not the named one":      {cluster.Relation{Labels: app, Clusters: []string{"d"}}, "c", app, false},
		"one label of two":       {cluster.Relation{Labels: more}, "c", app, false},
		"more labels than asked": {cluster.Relation{Labels: app}, "c", more, true},
		"away":                   {cluster.Relation{Labels: cluster.Labels{"app": "no"}, Away: true}, "c", app, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := three(&world{})
			for _, task := range w.service("cache", cluster.Placement{}, one(1000, 1), times("n1*3")...) {
				w.spare[cluster.OwnerRef{Kind: cluster.KindService, Cluster: c.in, Name: "cache"}] = 1
				task.Owner.Cluster, task.Labels = c.in, c.labels
				parts, _ := task.Task.Parts()
				task.Task = cluster.ServiceTask(c.in, "cache", 1, parts.Index)
			}
			c.relation.Required = true
			w.service("web", cluster.Placement{Relations: []cluster.Relation{c.relation}}, one(100, 0), "n1")
			res := rebalance.Rebalance(w.input(), rebalance.Options{})
			moved := slices.ContainsFunc(res.Moves, func(m rebalance.Move) bool { return m.Owner.Name == "cache" })
			if moved == c.stay {
				t.Errorf("got %v, want the tasks to stay: %v", shown(res.Moves), c.stay)
			}
		})
	}
}
