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

// placesAfter reports whether a task, or all members of a gang, are placed after some changes.
func placesAfter(f *scheduler.Fleet, members []cluster.Pending, changes []cluster.Remedy) bool {
	sg := cluster.Suggestion{Changes: changes}
	if members[0].Gang != "" {
		return whole(f, members, &sg)
	}
	g, q := f.Clone(), members[0]
	advice.Apply(&sg, g, &q)
	return places(g, q)
}

// TestNoChangeIsSpare leaves out one change of each suggestion: the others do not place the task.
func TestNoChangeIsSpare(t *testing.T) {
	tried := map[bool]int{}
	for seed := range 700 {
		d := seeded(4_000_000+seed, 2)
		f, names := d.fleet(6)
		p := d.task(names)
		members := []cluster.Pending{p}
		in := advice.Input{Options: options(), Fleet: f, Task: p, MaxSuggestions: 20}
		if seed%3 == 0 {
			p.OnlyNode, p.ExcludedNodes, p.Placement.AntiAffinity = "", nil, ""
			members = gangOf(2+d.IntN(2), p)
			in.Task, in.Gang = members[0], members
		}
		for _, sg := range advice.Find(in).Suggestions {
			if sg.Size > 0 || len(sg.Changes) < 2 {
				continue // it places a part of the gang
			}
			tried[in.Gang != nil]++
			for i := range sg.Changes {
				if rest := slices.Delete(slices.Clone(sg.Changes), i, i+1); placesAfter(f, members, rest) {
					t.Errorf("seed %d: %q is not needed in %q", seed, sg.Changes[i].Text, sg.Text)
				}
			}
		}
	}
	if tried[false] < 100 || tried[true] < 20 {
		t.Errorf("suggestions of several changes: %d for tasks and %d for gangs", tried[false], tried[true])
	}
}

// TestTextsOfGangsAreClear checks that no suggestion for a gang asks for two different values of one thing.
func TestTextsOfGangsAreClear(t *testing.T) {
	for seed := range 300 {
		d := seeded(5_000_000+seed, 2)
		f, names := d.fleet(6)
		p := d.task(names)
		p.OnlyNode, p.ExcludedNodes, p.Placement.AntiAffinity = "", nil, ""
		members := gangOf(2+d.IntN(3), p)
		in := advice.Input{Options: options(), Fleet: f, Task: members[0], Gang: members}
		for _, sg := range advice.Find(in).Suggestions {
			kinds := map[string]int{}
			for i := range sg.Changes {
				c := &sg.Changes[i]
				switch c.Kind {
				case cluster.ChangeLower, cluster.ChangeQuota, cluster.ChangeConcurrency, cluster.ChangeRelease,
					cluster.ChangePool, cluster.ChangeApart, cluster.ChangeUnasked:
					kinds[string(c.Kind)]++
				case cluster.ChangeDistinct, cluster.ChangeSkew, cluster.ChangeDevices, cluster.ChangeModel,
					cluster.ChangeWish:
					kinds[fmt.Sprint(c.Kind, c.Number)]++
				default:
					kinds[c.Text]++
				}
			}
			for kind, n := range kinds {
				if n > 1 {
					t.Errorf("seed %d: %q has %d changes of %s", seed, sg.Text, n, kind)
				}
			}
		}
	}
}

// TestSuggestionsAreRepeatable checks that suggestions do not depend on the UUIDs of attempts, which are random, nor on
// the order in which nodes and attempts came, and that the same question has one answer.
func TestSuggestionsAreRepeatable(t *testing.T) {
	for seed := range 300 {
		d := seeded(6_000_000+seed, 2)
		f, names := d.fleet(7)
		p := d.task(names)
		nodes, held := state(f)
		other := scheduler.NewFleet()
		d.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
		d.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
		for _, n := range nodes {
			other.SetNode(n)
		}
		for i, r := range held {
			r.UUID = fmt.Sprint("other-", i)
			other.Reserve(r)
		}
		find := func(f *scheduler.Fleet) []string {
			return texts(advice.Find(advice.Input{Options: options(), Fleet: f, Task: p, MaxSuggestions: 20}))
		}
		want := find(f)
		for range 3 {
			if diff := cmp.Diff(want, find(other)); diff != "" {
				t.Fatalf("seed %d: other UUIDs (-want +got):\n%s", seed, diff)
			}
		}
	}
}

// TestFewerSuggestions checks that a smaller number of suggestions keeps the smallest ones, and the added node as the
// last one.
func TestFewerSuggestions(t *testing.T) {
	for seed := range 200 {
		d := seeded(7_000_000+seed, 2)
		f, names := d.fleet(6)
		p := d.task(names)
		find := func(most int) []string {
			return texts(advice.Find(advice.Input{Options: options(), Fleet: f, Task: p, MaxSuggestions: most}))
		}
		all := find(100)
		for _, most := range []int{1, 2, 3, advice.DefaultMaxSuggestions} {
			want := all
			if len(all) > most {
				want = all[:most]
				if last := all[len(all)-1]; strings.Contains(last, "add a node") {
					want = append(slices.Clone(all[:most-1]), last)
				}
			}
			if diff := cmp.Diff(want, find(most)); diff != "" {
				t.Errorf("seed %d: at most %d (-want +got):\n%s", seed, most, diff)
			}
		}
		if diff := cmp.Diff(find(0), find(advice.DefaultMaxSuggestions)); diff != "" {
			t.Errorf("seed %d: the default (-want +got):\n%s", seed, diff)
		}
	}
}

// TestOtherNodesWouldDoAsWell checks the number of nodes of suggestions that change a single node: the same change of
// as many nodes places the task.
func TestOtherNodesWouldDoAsWell(t *testing.T) {
	checked := 0
	for seed := range 1000 {
		d := seeded(8_000_000+seed, 2)
		f, names := d.fleet(8)
		p := d.task(names)
		p.Priority = 5
		in := advice.Input{Options: options(), Fleet: f, Task: p, MaxSuggestions: 100}
		for _, sg := range advice.Find(in).Suggestions {
			c := sg.Changes[0]
			if len(sg.Changes) > 1 || c.Node == "" {
				continue
			}
			suffices := 0
			for _, name := range f.Nodes() {
				n, _, _ := f.Node(name)
				isOff := n.State == cluster.NodeDraining || n.State == cluster.NodeDrained
				c.Node = name
				switch c.Kind {
				case cluster.ChangeRevive:
					if isOff || n.State == cluster.NodeReady {
						continue
					}
				case cluster.ChangeUncordon, cluster.ChangeJoin, cluster.ChangeExecutor, cluster.ChangeUntaint:
				default:
					suffices = -1
				}
				if suffices < 0 {
					break
				}
				if placesAfter(f, []cluster.Pending{p}, []cluster.Remedy{c}) {
					suffices++
				}
			}
			if suffices < 0 {
				continue
			}
			checked++
			if sg.Nodes != suffices {
				t.Errorf("seed %d: %q counts %d nodes, want %d", seed, sg.Text, sg.Nodes, suffices)
			}
		}
	}
	if checked < 30 {
		t.Errorf("%d suggestions were checked", checked)
	}
}
