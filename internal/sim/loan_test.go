package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

const quietLoans = `berth-sim-story-1 seed 1 servers 1 nodes 3 consul false
1s user borrower : submit2 40
15s user lender : submit2 8
`

// TestLoans fills three nodes with tasks of a cluster that borrows half of them. The other cluster takes back what its
// eight tasks need: 39 tasks hold the nodes, so that eight of them end.
func TestLoans(t *testing.T) {
	for _, servers := range []string{"servers 1", "servers 3"} {
		r := Run(t, parse(t, strings.Replace(quietLoans, "servers 1", servers, 1)), Options{})
		for _, v := range r.Violations {
			t.Errorf("%s: %s", servers, v)
		}
		if r.Actions.Reclaims != 8 {
			t.Errorf("%s: %d tasks ended for the lender, want 8", servers, r.Actions.Reclaims)
		}
	}
}

// generateLoans returns a random story of a lender and a borrower, whose servers and store have faults.
func generateLoans(seed uint64) *Story {
	random := rand.New(rand.NewPCG(seed, 43))
	a := &generator{random: random, story: &Story{Seed: seed, Servers: []int{1, 3}[random.IntN(2)]}}
	a.story.Nodes = 3 + random.IntN(2) // four hold more than both quotas
	a.length = 100 * time.Second
	a.add(time.Second, User, borrower, 0, fmt.Sprintf("submit2 %d", 25+random.IntN(20)))
	for range 1 + random.IntN(3) {
		a.add(a.randomTime(), User, lender, 0, fmt.Sprintf("submit2 %d", 1+random.IntN(24)))
	}
	switch random.IntN(4) {
	case 0:
		a.add(a.randomTime(), User, lender, 0, "cancel")
	case 1:
		a.add(a.randomTime(), User, borrower, 0, fmt.Sprintf("submit2 %d", 25+random.IntN(20)))
	}
	for range random.IntN(3) {
		[]func(){a.addServerFaults, a.addEngineFaults, a.addAgentFaults}[random.IntN(3)]()
	}
	return a.story
}

// TestRandomLoans runs random stories of a lender and a borrower.
func TestRandomLoans(t *testing.T) {
	reclaims, calm := 0, 0
	for seed := range uint64(24) {
		story := generateLoans(seed)
		r := Run(t, story, Options{})
		for _, v := range r.Violations {
			t.Errorf("seed %d: %s\n%s", seed, v, story)
		}
		reclaims += r.Actions.Reclaims
		if r.Actions.Reclaims > 0 && !story.Has(ServerCrash) {
			calm++
		}
	}
	if reclaims < 50 || calm == 0 {
		t.Errorf("%d tasks ended for a lender, in %d stories: too few to show anything", reclaims, calm)
	}
}

// loan makes a history one of a lender and a borrower, of which the borrower holds so many tasks.
func (h *historyWriter) loan(tasks int) {
	h.v.story.Events = append(h.v.story.Events, Event{Fault: User, Target: lender})
	var placed []cluster.Placed
	for i := range tasks {
		placed = append(placed, cluster.Placed{Index: i, Attempt: 1, UUID: fmt.Sprint("b", i), Node: "n1"})
	}
	p := plan(1, placed...)
	p.Owners[0].Owner = cluster.OwnerRef{Kind: cluster.KindJob, Cluster: borrower, Name: borrower}
	p.Owners[0].Step, p.Owners[0].Definition = "work", cluster.Ref{Name: "work", Version: 2}
	h.put(prefix.Plan(1), p)
}

// reclaimed ends a task of the borrower for a task of the lender.
func (h *historyWriter) reclaimed(index, forIndex int) {
	h.want(desired(fmt.Sprint("b", index), 0, 1, func(d *cluster.Desired) {
		d.Owner = cluster.OwnerRef{Kind: cluster.KindJob, Cluster: borrower, Name: borrower}
		d.Task = cluster.JobTask(borrower, borrower, 1, "work", index)
		d.Definition = cluster.Ref{Name: "work", Version: 2}
		d.Stop = &cluster.Stop{
			Class: cluster.StopMandatory, Reason: cluster.ReasonPreempted, ForAttempt: 1,
			For: cluster.JobTask(lender, lender, 1, "work", forIndex),
		}
	}))
}
