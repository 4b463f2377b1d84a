package sim

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/clause"
)

// trace is a scripted story of a trace in docs/reference/protocol.md: it breaks nothing, and one of the invariants once
// its clause is off.
type trace struct {
	name    string
	off     clause.Set
	catches []string
	story   string
}

// only keeps every server but the first down until the first leads.
const only = `0s server-crash s2 for 3s
0s server-crash s3 for 3s
`

var traces = []trace{
	{
		name: "T1 a barrier that passes after the outcome was written", off: clause.Barrier,
		catches: []string{"late-barrier", "start-after"},
		story: `berth-sim-story-1 seed 1 servers 3 nodes 2 consul false
` + only + `0s cut n1-s1 for 10m
0s cut n1-s3 for 10m
4s user n2 : cordon
60s user batch : slow 1
62s user n2 : uncordon
65s cut s1-s2 for 10m
65s cut s3-s1 for 10m
365s lag s2 for 100s : 40s
`,
	},
	{
		name: "T2 a late projection of a task that was cancelled and is gone", off: clause.Projection,
		catches: []string{"revived", "start-after"},
		story: `berth-sim-story-1 seed 1 servers 1 nodes 1 consul false
1s engine-late s1 for 30s : state 15s
2s user batch : submit2 1
6s user batch : cancel
`,
	},
	{
		name: "T3 an attempt placed where an earlier one still runs", off: clause.CleanNode,
		catches: []string{"unclean-node"},
		story: `berth-sim-story-1 seed 1 servers 1 nodes 2 consul false
500ms user n2 : cordon
1s user late : scale 1
30s user n2 : uncordon
35s cut n1-s1 for 3m
105s agent-crash n2 for 3m
`,
	},
	{
		name: "T4 a placement in one plan with an outcome that is refused", off: clause.NextAttempt,
		catches: []string{"no-prior", "one-attempt"},
		story: `berth-sim-story-1 seed 1 servers 3 nodes 2 consul false
` + only + `0s cut n1-s1 for 10m
0s cut n1-s3 for 10m
4s user n2 : cordon
60s user batch : submit4 1
62s user n2 : uncordon
53s cut s1-s2 for 10m
53s cut s3-s1 for 10m
352s lag s1 for 60s : 5s
`,
	},
	{
		name: "T5 a leader that decides before it sees what the last one wrote", off: clause.EpochSeen,
		catches: []string{"placed-twice", "one-attempt", "no-prior"},
		story: `berth-sim-story-1 seed 1 servers 3 nodes 3 consul false
0s server-crash s2 for 3s
0s server-crash s3 for 90s
14.9s lag s2 for 60s : 3s
14.9s engine-late s1 for 5s : plan 1.1s
15s user web : scale 3
15.3s server-crash s1 for 60s
`,
	},
	{
		name: "T6 a plan that was taken for lost and arrives", off: clause.PlanSettled,
		catches: []string{"placed-twice", "one-attempt", "capacity", "no-prior"},
		story: `berth-sim-story-1 seed 1 servers 1 nodes 3 consul false
1s engine-late s1 for 20s : plan 2s
2s user web : scale 3
`,
	},
	{
		name: "T7 a second stop while the first is not known to be done", off: clause.ChargeHeld,
		catches: []string{"below-minimum"},
		story: `berth-sim-story-1 seed 1 servers 1 nodes 4 consul false
500ms user n4 : cordon
1s user disk : scale 3
15s user n4 : uncordon
19s cut n1-s1 for 10s
20s user n1 : drain
22s user n2 : drain
`,
	},
	{
		name: "T8 nodes that return while the replacements of their tasks are not healthy yet", off: clause.Permit,
		catches: []string{"below-minimum"},
		story: `berth-sim-story-1 seed 1 servers 1 nodes 3 consul false
1s user late : scale 3
60s cut n1-s1 for 88s
60s cut n2-s1 for 88s
`,
	},
	{
		name: "T9 a disk that stalls, and servers that take over from each other", off: clause.TakeoverBackoff,
		catches: []string{"ring"},
		story: `berth-sim-story-1 seed 1 servers 3 nodes 1 consul false
5s engine-stall db for 2m
`,
	},
	{
		name: "T10 a leader that is paused, wakes and commits", off: clause.Fence,
		catches: []string{"fenced"},
		story: `berth-sim-story-1 seed 1 servers 3 nodes 3 consul false
` + only + `5s user web : scale 1
10s engine-slow s1 for 60s : 400ms
10s user web : scale 2
10.2s user web : scale 3
10.4s user web : scale 4
10.6s user batch : submit 3
10.7s lag s2 for 20s : 8s
10.7s lag s3 for 20s : 8s
10.8s server-pause s1 for 4s
`,
	},
	{
		name: "T11 a store that goes back without Berth's knowledge", off: clause.Incarnation,
		catches: []string{"epoch-back"},
		story: `berth-sim-story-1 seed 1 servers 1 nodes 2 consul false
1s user web : scale 1
8s save db
9s server-crash s1 for 1s
14s server-crash s1 for 1s
20s restore db : raw
25s user web : scale 2
`,
	},
	{
		name: "T12 an agent that has to forget running containers", off: clause.Absence,
		catches: []string{"stop-unasked"},
		story: `berth-sim-story-1 seed 1 servers 1 nodes 1 consul false
1s user web : scale 1
10s foreign n1 : delete
`,
	},
	{
		name: "T13 a registration that is delayed", off: clause.Session,
		catches: []string{"session-back"},
		story: `berth-sim-story-1 seed 1 servers 1 nodes 1 consul false
1s user web : scale 1
9s agent-crash n1 for 500ms
9s noise n1>s1 for 3s : 20s
`,
	},
	{
		name: "T14 a foreign record over a task's own, and a server that restarts", off: clause.Foreign,
		catches: []string{"two-live"},
		story: `berth-sim-story-1 seed 1 servers 1 nodes 2 consul false
500ms user n2 : cordon
1s user disk : scale 1
8s user n2 : uncordon
10s cut n1-s1 for 30s
11s foreign n1 : both
11.1s server-crash s1 for 1s
`,
	},
	{
		name: "T15 a node that is claimed while its tasks run", off: clause.Ownership,
		catches: []string{"owner-changed"},
		story: `berth-sim-story-1 seed 1 servers 1 nodes 1 consul false
1s user web : scale 1
10s user n1 : claim
30s user n1 : unclaim
`,
	},
	{
		name: "T16 an agent that dies between a start and the record of it", off: clause.Intent,
		catches: []string{"started-twice"},
		story: `berth-sim-story-1 seed 1 servers 1 nodes 1 consul false
1s trouble n1 for 20s : late-start
2s user batch : submit2 1
8s agent-crash n1 for 1s
`,
	},
	{
		name: "T17 a node that is released to another owner while its tasks run", off: clause.Released,
		catches: []string{"stop-released"},
		story: `berth-sim-story-1 seed 1 servers 2 nodes 2 consul false
1s user web : scale 2
20s user n1 : release
25s server-crash s1 for 3s
40s agent-crash n1 for 2s
90s user n1 : adopt
`,
	},
}

// TestTraces runs each trace with all clauses, and without its own.
func TestTraces(t *testing.T) {
	for i := range traces {
		tr := &traces[i]
		t.Run(strings.Fields(tr.name)[0], func(t *testing.T) {
			t.Parallel()
			story := parse(t, tr.story)
			if dir := os.Getenv("BERTH_SIM_TRACES"); dir != "" { // to run one with BERTH_SIM_STORY
				_ = os.WriteFile(filepath.Join(dir, strings.Fields(tr.name)[0]), []byte(tr.story), 0o600)
			}
			for range 2 {
				for _, v := range Run(t, story, Options{}).Violations {
					t.Errorf("with all clauses: %s", v)
				}
			}
			var found []Violation
			for range 64 { // in T5 about one in four shows it
				story.Seed++ // what chance decides for single messages
				found = Run(t, story, Options{Without: tr.off, StopAtOnce: true}).Violations
				if slices.ContainsFunc(found, func(v Violation) bool {
					return slices.Contains(tr.catches, v.Invariant)
				}) {
					t.Logf("%s: without its clause: %s", tr.name, found[0])
					return
				}
			}
			t.Errorf("%s: without its clause no check notices it: %v", tr.name, found)
		})
	}
}
