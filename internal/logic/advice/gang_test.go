package advice_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/advice"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// whole reports whether all members of a gang are placed after a suggestion.
func whole(f *scheduler.Fleet, members []cluster.Pending, sg *cluster.Suggestion) bool {
	g := f.Clone()
	var all []cluster.Pending
	for i := range members {
		q := members[i]
		if i == 0 {
			advice.Apply(sg, g, &q)
		} else {
			advice.ApplyToTask(sg, &q)
		}
		all = append(all, q)
	}
	return len(scheduler.Schedule(g, all, options()).Placements) >= members[0].GangSize
}

func gangOf(size int, like cluster.Pending) (members []cluster.Pending) {
	for i := range size {
		q := like
		q.Task = cluster.TaskID(fmt.Sprint("c.train.1.work.", i))
		q.Owner, q.Gang, q.GangSize = cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "train"}, "g", size
		members = append(members, q)
	}
	return members
}

// TestGangs applies suggestions for whole gangs: all members are placed.
func TestGangs(t *testing.T) {
	placed, parts, none := 0, 0, 0
	for seed := range 400 {
		d := seeded(3_000_000+seed, 2)
		f, names := d.fleet(6)
		p := d.task(names)
		p.OnlyNode, p.ExcludedNodes, p.Placement.AntiAffinity = "", nil, ""
		members := gangOf(2+d.IntN(3), p)
		r := advice.Find(advice.Input{Options: options(), Fleet: f, Task: members[0], Gang: members})
		if r.Placed {
			continue
		}
		if len(r.Suggestions) == 0 {
			none++
		}
		for i := range r.Suggestions {
			sg := &r.Suggestions[i]
			if sg.Size > 0 {
				parts++
				continue
			}
			placed++
			if !whole(f, members, sg) {
				t.Fatalf("seed %d: %q does not place the gang", seed, sg.Text)
			}
		}
	}
	t.Logf("%d suggestions for whole gangs, %d for a part, none for %d gangs", placed, parts, none)
	if placed < 300 || none > 30 {
		t.Errorf("%d suggestions for whole gangs, none for %d gangs", placed, none)
	}
}

// TestGangStories checks the texts of suggestions for gangs.
func TestGangStories(t *testing.T) {
	f := scheduler.NewFleet()
	for i := range 2 {
		f.SetNode(ready(fmt.Sprint("n", i), 4000, 8*cluster.GiB))
	}
	gang := func(size int, cpu cluster.MilliCPU) []string {
		members := gangOf(size, cluster.Pending{Priority: 1, Demand: cluster.Demand{CPU: cpu, Memory: cluster.GiB}})
		return texts(advice.Find(advice.Input{Options: options(), Fleet: f, Task: members[1], Gang: members}))
	}
	if diff := cmp.Diff([]string(nil), gang(4, 2000)); diff != "" {
		t.Errorf("a gang that fits (-want +got):\n%s", diff)
	}
	want := []string{
		"lower its request to 2 CPU (it asks for 3 CPU)",
		"add 2 nodes, each with 3 CPU and 1 GiB memory free",
	}
	if diff := cmp.Diff(want, gang(4, 3000)); diff != "" {
		t.Errorf("a gang with room for half of it (-want +got):\n%s", diff)
	}
	// No node has the executor: each of four members needs another node, which is said once.
	f = scheduler.NewFleet()
	f.SetNode(scheduler.Node{
		Name: "plain", State: cluster.NodeReady, Executors: []string{"process"},
		Capacity: cluster.Demand{CPU: 100_000, Memory: 100 * cluster.GiB},
	})
	members := gangOf(4, cluster.Pending{
		Priority: 1, NeedsImage: true, Demand: cluster.Demand{CPU: 3000},
		Placement: cluster.Placement{AntiAffinity: cluster.AntiAffinityDemand},
	})
	got := texts(advice.Find(advice.Input{Options: options(), Fleet: f, Task: members[0], Gang: members}))
	if want := "add 4 nodes, each with 3 CPU free and executor containerd"; !slices.Contains(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, text := range got {
		if n := strings.Count(text, "add "); n > 1 {
			t.Errorf("%q says the same %d times", text, n)
		}
	}
}
