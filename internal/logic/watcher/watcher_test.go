package watcher_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
	"github.com/berthd/berth/internal/testkit"
)

// input draws a random input of a watcher.
func input(t *rapid.T) watcher.Input {
	at := func(label string) time.Duration {
		return time.Duration(rapid.IntRange(0, 600).Draw(t, label)) * time.Second
	}
	in := watcher.Input{
		Armed: at("armed"), Now: at("now"), Wall: time.Unix(5000, 0), Options: watcher.DefaultOptions(),
		Gone: rapid.IntRange(0, 9).Draw(t, "gone") == 0, Paused: rapid.IntRange(0, 4).Draw(t, "paused") == 0,
	}
	in.Now = max(in.Now, in.Armed)
	session := rapid.Uint64Range(1, 3).Draw(t, "session")
	if rapid.IntRange(0, 5).Draw(t, "status") > 0 {
		in.Status = &cluster.NodeStatus{Name: "n1", Session: session, Synced: rapid.Bool().Draw(t, "synced")}
	}
	if in.Status == nil || rapid.Bool().Draw(t, "node") {
		in.Node = &cluster.Node{
			Name: "n1", Domain: rapid.SampledFrom([]string{"default", "default", "default", "", "other"}).Draw(t,
				"domain"), Generation: 1, Session: session,
			State: rapid.SampledFrom([]cluster.NodeState{
				cluster.NodeJoining, cluster.NodeReady, cluster.NodeSuspect, cluster.NodeDown, cluster.NodeDraining,
				cluster.NodeDrained,
			}).Draw(t, "state"),
		}
	}
	in.Wall = in.Wall.Add(in.Now)
	if in.Node != nil {
		in.Node.Returns = rapid.IntRange(0, 4).Draw(t, "returns")
		if rapid.Bool().Draw(t, "held") {
			in.Node.Until = in.Wall.Add(at("until") - 5*time.Minute)
		}
	}
	if rapid.Bool().Draw(t, "host") {
		in.WantedDomain = rapid.SampledFrom([]string{"", "", "", "other"}).Draw(t, "assigned")
		in.Host = &cluster.Host{
			Name: "n1", Domain: in.WantedDomain,
			Generation: rapid.Uint64Range(0, 2).Draw(t, "forced"),
		}
		if rapid.Bool().Draw(t, "drain") {
			in.Host.Drain = &cluster.Drain{Force: rapid.Bool().Draw(t, "force")}
		}
		in.Left = rapid.IntRange(0, 2).Draw(t, "left")
	}
	if rapid.Bool().Draw(t, "pulse") {
		in.Pulse = &cluster.Pulse{
			Session: rapid.Uint64Range(1, 3).Draw(t, "pulse session"), At: min(at("at"), in.Now), Next: 5 * time.Second,
		}
	}
	return in
}

func TestTasksAreLostOnlyForSilenceThatThisWatcherSaw(t *testing.T) {
	seen := map[watcher.Absence]int{}
	rapid.Check(t, func(t *rapid.T) {
		in := input(t)
		v, _ := watcher.Judge(in)
		for _, batch := range []bool{false, true} {
			limit := in.Options.ServiceLost
			if batch {
				limit = in.Options.BatchLost
			}
			a := v.Absence(batch)
			seen[a]++
			if v.Foreign {
				continue
			}
			if (a == watcher.Gone) != in.Gone {
				t.Fatalf("absence %v, gone %v", a, in.Gone)
			}
			if a != watcher.Silent {
				continue
			}
			promised := time.Duration(0)
			if in.Pulse != nil {
				promised = in.Pulse.At + in.Pulse.Next
			}
			if in.Paused || in.Now-in.Armed < limit || in.Now-promised < limit {
				t.Fatalf("lost too early: %+v", in)
			}
		}
	})
	for _, a := range []watcher.Absence{watcher.Present, watcher.Suspected, watcher.Silent, watcher.Gone} {
		if seen[a] == 0 {
			t.Errorf("no case was %v", a)
		}
	}
}

func TestWrittenVerdictIsKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := input(t)
		v, ok := watcher.Judge(in)
		if !ok {
			t.Fatal("no verdict")
		}
		if v.Foreign || v.Event.Type == "node.released" {
			return
		}
		if v.Changed && in.Node != nil && v.Node == *in.Node {
			t.Fatal("a change without a difference")
		}
		node := v.Node
		in.Node = &node
		again, _ := watcher.Judge(in)
		if again.Event.Type == "node.released" { // second step of a change of owner
			return
		}
		if again.Changed || again.Event.Type != "" {
			t.Fatalf("the same input changes the verdict %+v to %+v", v.Node, again.Node)
		}
	})
}

func TestNothingChangesBeforeTheNextDecision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := input(t)
		v, _ := watcher.Judge(in)
		if v.Foreign || v.Event.Type == "node.released" {
			return
		}
		node := v.Node
		in.Node = &node
		if again, _ := watcher.Judge(in); again.Changed { // drained and about to be released
			return
		}
		end := v.NextDecision
		if end == 0 {
			end = in.Now + time.Hour
		}
		passed := time.Duration(rapid.Int64Range(0, int64(end-in.Now-1)).Draw(t, "later"))
		in.Now, in.Wall = in.Now+passed, in.Wall.Add(passed)
		later, _ := watcher.Judge(in)
		if later.Changed || later.Absence(false) != v.Absence(false) || later.Absence(true) != v.Absence(true) {
			t.Fatalf("at %v, before the next judgement at %v: %+v, was %+v", in.Now, v.NextDecision, later, v)
		}
	})
}

func TestRearm(t *testing.T) {
	o := watcher.DefaultOptions()
	for _, tt := range []struct {
		name                   string
		armed, last, now, want time.Duration
	}{
		{"on time", 10, 20 * time.Second, 25 * time.Second, 10},
		{"late", 10, 20 * time.Second, 25*time.Second + 1, 25*time.Second + 1},
		{"the clock restarted", 10, 20 * time.Second, time.Second, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := watcher.Rearm(tt.armed, tt.last, tt.now, o); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestMassSilence(t *testing.T) {
	const now = time.Hour
	nodes := func(healthy int, silences ...time.Duration) (all []watcher.Verdict) {
		for range healthy {
			all = append(all, watcher.Verdict{Heard: true})
		}
		for _, s := range silences {
			all = append(all, watcher.Verdict{Silence: s})
		}
		return all
	}
	gone := watcher.Verdict{Gone: true, Silence: 30 * time.Second}
	for _, tt := range []struct {
		name string
		in   []watcher.Verdict
		want bool
	}{
		{"no node", nil, false},
		{"all ready", nodes(20), false},
		{"three of ten", nodes(7, 30*time.Second, 40*time.Second, 50*time.Second), false},
		{"four of ten", nodes(6, 30*time.Second, 40*time.Second, 50*time.Second, 90*time.Second), true},
		{
			"four of nine are too few nodes", nodes(5, 30*time.Second, 40*time.Second, 50*time.Second, 60*time.Second),
			false,
		},
		{
			"four of ten, one after the other",
			nodes(6, 30*time.Second, 100*time.Second, 170*time.Second, 240*time.Second), false,
		},
		{"four of ten, long ago", nodes(6, 30*time.Minute, 30*time.Minute, 30*time.Minute, 30*time.Minute), true},
		{"late is not silent", nodes(6, time.Second, time.Second, time.Second, time.Second), false},
		{"destroyed nodes do not count", append(nodes(9, 30*time.Second), gone, gone, gone, gone), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := watcher.IsMassSilence(tt.in, now, watcher.DefaultOptions()); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestUnknownNodeHasNoVerdict(t *testing.T) {
	if v, ok := watcher.Judge(watcher.Input{Host: &cluster.Host{Name: "n9"}, Options: watcher.DefaultOptions()}); ok {
		t.Errorf("a verdict on a node that never registered: %+v", v)
	}
}

func TestOnlyAReadyNodeTakesTasks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, _ := watcher.Judge(input(t))
		want := v.Node.State == cluster.NodeReady && !v.Gone && !v.Foreign
		if diff := cmp.Diff(want, v.Takes()); diff != "" {
			t.Fatalf("%s: %s", v.Node.State, diff)
		}
	})
}

// P7.1: only the owner releases a node, and only a drained one. Other domains claim a node without an owner, or by
// force.
func TestOnlyTheOwnerReleases(t *testing.T) {
	claims, releases, forced := 0, 0, 0
	check := func(t *rapid.T) {
		in := input(t)
		if in.Node != nil && rapid.Bool().Draw(t, "hand-over") { // rare by chance
			in.Gone = false
			in.Node.Until = time.Time{}
			in.Status = &cluster.NodeStatus{Name: "n1", Session: 1, Synced: true}
			in.Pulse = &cluster.Pulse{Session: 1, At: in.Now, Next: time.Second}
			in.Node.State = rapid.SampledFrom(
				[]cluster.NodeState{cluster.NodeDraining, cluster.NodeDrained, cluster.NodeDrained}).Draw(t, "drain")
			in.Host = &cluster.Host{
				Name: "n1", Generation: rapid.Uint64Range(0, 3).Draw(t, "raised"),
			}
			in.WantedDomain = rapid.SampledFrom([]string{"other", "default"}).Draw(t, "to")
		}
		v, _ := watcher.Judge(in)
		if in.Node == nil || v.Foreign || v.Node.Domain == in.Node.Domain {
			return
		}
		switch {
		case v.Node.Domain == "":
			releases++
			if in.Node.Domain != "default" || in.Node.State != cluster.NodeDrained || in.Left > 0 {
				t.Fatalf("released %+v with %d tasks left", in.Node, in.Left)
			}
		case in.Node.Domain == "":
			claims++
		default:
			forced++
			if in.Host == nil || in.Host.Generation <= in.Node.Generation {
				t.Fatalf("%+v was taken without force", in.Node)
			}
		}
		if v.Node.Domain != "" && v.Node.Generation <= in.Node.Generation {
			t.Fatalf("a new owner under generation %d, after %d", v.Node.Generation, in.Node.Generation)
		}
	}
	testkit.CheckRounds(t, 20, check, nil) // rare cases need more than one round
	if claims == 0 || releases == 0 || forced == 0 {
		t.Errorf("%d claims, %d releases, %d by force: too few were drawn", claims, releases, forced)
	}
}

// A node that returns again and again is delayed longer each time, up to a limit.
func TestReturnDelayGrows(t *testing.T) {
	o := watcher.DefaultOptions()
	node := &cluster.Node{Name: "n1", Domain: "default", Generation: 1, Session: 1, State: cluster.NodeSuspect}
	at := time.Unix(0, 0)
	var got []time.Duration
	for range 8 {
		v, _ := watcher.Judge(watcher.Input{
			Node: node, Status: &cluster.NodeStatus{Name: "n1", Session: 1, Synced: true}, Wall: at, Options: o,
			Pulse: &cluster.Pulse{Session: 1, Next: time.Second},
		})
		hold := max(0, v.Node.Until.Sub(at))
		got = append(got, hold)
		at = at.Add(hold + time.Minute)
		n := v.Node
		n.State, n.Until, node = cluster.NodeSuspect, time.Time{}, &n
	}
	const m = time.Minute
	want := []time.Duration{0, m / 2, m, 2 * m, 4 * m, 8 * m, 10 * m, 10 * m}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("delays (-want +got):\n%s", diff)
	}
}
