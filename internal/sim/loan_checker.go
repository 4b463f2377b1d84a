package sim

import (
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// The clusters of stories with a quota that one lends and the other borrows. Each has one job with its name. Together
// they may hold what three nodes have, and all of their tasks are equal.
const (
	lender     = "lender"
	borrower   = "borrower"
	loanQuota  = 6000
	loanDemand = 300
)

// reclaimLimit is how long a lender waits in a story without faults until enough borrowed tasks are told to end: a
// few cycles of the leader. They then have their grace.
const reclaimLimit = 15 * time.Second

// hasLoans reports whether the story has a lender and a borrower.
func (s *Story) hasLoans() bool { return s.hits(lender, User) }

// setUpLoans creates the clusters.
func (f *fleet) setUpLoans() {
	for name, borrow := range map[string]*cluster.QuotaBorrow{lender: nil, borrower: {CPU: loanQuota}} {
		f.putRecord(prefix.Cluster(name), cluster.Cluster{
			Name: name, Domain: cluster.DefaultDomain, Quota: &cluster.Quota{CPU: loanQuota, Borrow: borrow},
		})
	}
}

// loanChecker checks borrowing between the clusters. Both together hold no more than their quotas while the borrower
// takes, the borrower keeps its quota when the lender takes room back, no task of the lender has two victims, and the
// lender does not wait.
type loanChecker struct {
	*observation
	waits time.Time // since when a task of the lender waits for borrowed room; zero for none
}

// held returns what a cluster's attempts hold that are placed, and with leaving those that are told to end.
func (v *loanChecker) held(name string, leaving bool) (cpu int) {
	for a := range v.placed { // order-free: a sum
		if parts, _ := a.task.Parts(); parts.Cluster == name && (leaving || !a.stopped) {
			cpu += loanDemand
		}
	}
	return cpu
}

// checkBorrowing checks a placement.
func (v *loanChecker) checkBorrowing(a *attemptHistory) {
	if parts, _ := a.task.Parts(); !v.story.hasLoans() || parts.Cluster != borrower || v.restored || v.overwritten {
		return
	}
	if own := v.held(borrower, true); own > loanQuota && own+v.held(lender, true) > 2*loanQuota {
		v.breach("lent-twice", "%s/%d was placed, and the borrower holds %dm, the lender %dm of %dm together", a.task,
			a.number, own, v.held(lender, true), 2*loanQuota)
	}
}

// checkReclaim checks a stop of an attempt that is written.
func (v *loanChecker) checkReclaim(a *attemptHistory, stop *cluster.Stop) {
	parts, _ := a.task.Parts()
	if !v.story.hasLoans() || parts.Cluster != borrower || stop.Reason != cluster.ReasonPreempted {
		return
	}
	v.actions.Reclaims++
	if left := v.held(borrower, false); left < loanQuota {
		v.breach("over-reclaimed", "%s/%d ends for another cluster, and its own keeps %dm of its quota of %dm", a.task,
			a.number, left, loanQuota)
	}
	for other := range v.placed { // order-free: any is a breach
		if other == a || other.desired == nil || other.desired.Stop == nil {
			continue
		}
		if s := other.desired.Stop; s.Reason == stop.Reason && s.For == stop.For && s.ForAttempt == stop.ForAttempt {
			v.breach("over-reclaimed", "%s/%d and %s/%d end for the same task: %s", a.task, a.number, other.task,
				other.number, stop.Message)
		}
	}
}

// checkWaiting checks, in a story without faults, how long tasks of the lender wait while room is borrowed.
func (v *loanChecker) checkWaiting() {
	if !v.story.hasLoans() || slices.ContainsFunc(v.story.Events, func(e Event) bool { return e.Fault != User }) {
		return
	}
	own := v.held(lender, true)
	leaving := v.held(borrower, true) - v.held(borrower, false)
	isShort := v.waiting() > 0 && own+leaving < min(loanQuota, own+v.waiting()) && v.held(borrower, false) > loanQuota
	switch {
	case !isShort:
		v.waits = time.Time{}
	case v.waits.IsZero():
		v.waits = time.Now()
	case time.Since(v.waits) > reclaimLimit:
		v.breach("reclaim-late", "tasks of the lender wait since %s, and the borrower holds %dm of its quota of %dm",
			v.waits.Sub(v.began), v.held(borrower, false), loanQuota)
	}
}

// waiting returns what the tasks of the lender need that have no attempt.
func (v *loanChecker) waiting() (cpu int) {
	j, err := store.Decode[cluster.Job](v.records["job/"+lender+"/"+lender].Value)
	if err != nil || j.Cancelled || j.Deleted {
		return 0
	}
	for n := range j.Steps[0].Count {
		if len(v.tasks[cluster.JobTask(lender, lender, j.Generation, "work", n)]) == 0 {
			cpu += loanDemand
		}
	}
	return cpu
}
