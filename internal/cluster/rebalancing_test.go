package cluster_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
)

// longRebalancing has that many moves with names as long as the clusters and nodes of a large fleet have them.
func longRebalancing(moves, name int) *cluster.Rebalancing {
	r := &cluster.Rebalancing{
		ID: 1, Domain: cluster.DefaultDomain, Created: time.Unix(1e9, 0).UTC(), Parallel: 5,
		State: cluster.RebalancingRunning,
	}
	for i := range moves {
		r.Moves = append(r.Moves, cluster.RebalancingMove{
			Task: cluster.ServiceTask("default", strings.Repeat("a", name), 1, i), Attempt: 1,
			UUID: "01234567-89ab-cdef-0123-456789abcdef",
			From: "node-1.example", To: "node-2.example", Cause: "even", Gain: 100,
			Message: "node n1 has 3 of its tasks, n2 none", State: cluster.MoveWaiting,
		})
	}
	return r
}

// TestRebalancingFits: a record within the limits stays below the size of a value, whatever is written into it until
// its end.
func TestRebalancingFits(t *testing.T) {
	const engine = (512<<10 - 128*128) / 4 * 3 // what Consul takes
	r := longRebalancing(cluster.MaxRebalanceMoves, 20)
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	for i := range r.Moves {
		r.Moves[i].Pass(cluster.ReasonWaitForHealth, strings.Repeat("ä", 500), time.Now())
	}
	b, err := json.Marshal(r)
	if err != nil || len(b) > engine {
		t.Errorf("%v: it takes %d bytes at its end, want at most %d", err, len(b), engine)
	}
	for i := range r.Moves {
		r.Moves[i].Message = strings.Repeat("m", 400)
	}
	if err := r.Validate(); err == nil || !strings.Contains(err.Error(), "submit fewer moves") {
		t.Errorf("got %v for a record that is too large", err)
	}
	if err := longRebalancing(cluster.MaxRebalanceMoves+1, 3).Validate(); err == nil ||
		!strings.Contains(err.Error(), "holds 501 moves, at most 500") {
		t.Errorf("got %v", err)
	}
}

func TestRebalancingCauses(t *testing.T) {
	for _, cause := range append(cluster.CauseEven.Values(), "") {
		r := longRebalancing(1, 3)
		r.Moves[0].Cause = cause
		if err := r.Validate(); err != nil {
			t.Errorf("cause %q: %v", cause, err)
		}
	}
	r := longRebalancing(1, 3)
	r.Moves[0].Cause = "mood"
	want := `moves[0].cause: is "mood", want one of violation, empty, whole, even`
	if err := r.Validate(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

func TestRebalanceText(t *testing.T) {
	for _, text := range []string{
		"", "short", strings.Repeat("x", cluster.MaxRebalanceText), strings.Repeat("ä", 300),
		strings.Repeat("€", 300),
	} {
		got := cluster.ClipRebalanceText(text)
		if len(got) > cluster.MaxRebalanceText || !utf8.ValidString(got) || len(text) <= cluster.MaxRebalanceText &&
			got != text {
			t.Errorf("%.20q…: got %d bytes %q", text, len(got), got)
		}
	}
}

func TestRebalancingCounts(t *testing.T) {
	r := longRebalancing(4, 3)
	r.Moves[0].Enter(cluster.MoveDone, time.Now())
	r.Moves[1].Enter(cluster.MoveMoving, time.Now())
	r.Moves[2].Pass(cluster.ReasonPermit, "why", time.Now())
	if diff := cmp.Diff(cluster.RebalanceCounts{Waiting: 1, Moving: 1, Done: 1, Passed: 1, Gain: 100},
		r.Counts()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	over := ""
	for i := range r.Moves {
		over += fmt.Sprint(r.Moves[i].Over(), " ")
	}
	if over != "true false true false " {
		t.Errorf("over: %s", over)
	}
}
