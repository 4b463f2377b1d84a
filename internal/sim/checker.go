package sim

import (
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

const prefix = store.Prefix(store.DefaultPrefix)

// checker sees every revision of the store and every start and end of a program, and reports breaches of the
// invariants. It hands each record to the checkers of its kind.
type checker struct {
	*observation
	lifecycle  *lifecycleChecker
	programs   *programChecker
	services   *serviceChecker
	specs      *specChecker
	liveness   *livenessChecker
	leadership *leadershipChecker
	events     *eventChecker
	proposals  *proposalChecker
	loans      *loanChecker
	day        *dayChecker // nil without a day of CI
}

func newChecker(story *Story) *checker {
	o := newObservation(story)
	v := &checker{
		observation: o,
		programs:    &programChecker{observation: o},
		services: &serviceChecker{
			observation: o, changedAt: map[string]time.Time{}, daemons: map[cluster.OwnerRef]daemonFlag{},
		},
		specs: &specChecker{
			observation: o, wantedSpecs: map[string]*wantedSpec{}, cronJobs: map[string]bool{},
		},
		liveness:   &livenessChecker{observation: o, quietSince: time.Now()},
		leadership: &leadershipChecker{observation: o},
		events:     newEventChecker(o),
		proposals:  newProposalChecker(o),
	}
	v.loans = &loanChecker{observation: o}
	v.lifecycle = &lifecycleChecker{
		observation: o, leadership: v.leadership, liveness: v.liveness, services: v.services, events: v.events,
		proposals: v.proposals, loans: v.loans,
		plans: map[string]*cluster.PlanRecord{},
	}
	return v
}

// reset clears the view of the store, as after a restore.
func (v *checker) reset() {
	v.observation.reset()
	v.events.reset()
	v.lifecycle.plans = map[string]*cluster.PlanRecord{}
}

// observe processes one revision; it runs under the engine's lock.
func (v *checker) observe(changes []store.Change, revision uint64, whole bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range changes {
		c := &changes[i]
		v.addToHistory("%d %v %s %t %s", revision, time.Since(v.began), c.Key, c.Deleted, c.Value)
	}
	if whole {
		v.reset()
		v.whole = true
		v.restored, v.leadership.restoring = true, true
		v.addToChronicle("RESTORED to %d", revision)
	}
	for i := range changes {
		if changes[i].Key == prefix.Leader(cluster.DefaultDomain) {
			v.applyChange(&changes[i])
		}
	}
	for i := range changes {
		if changes[i].Key != prefix.Leader(cluster.DefaultDomain) {
			v.applyChange(&changes[i])
		}
	}
	v.lifecycle.checkProjections(revision)
	v.lifecycle.checkTouched(revision)
	v.loans.checkWaiting()
	v.whole = false
}

// applyChange processes one record.
func (v *checker) applyChange(c *store.Change) {
	key, ours := strings.CutPrefix(c.Key, string(prefix))
	if !ours {
		return
	}
	noun, rest, _ := strings.Cut(key, "/")
	if noun == "event" {
		v.events.applyEvents(rest, c)
		return
	}
	was := v.records[key]
	if c.Deleted {
		v.addToChronicle("%d deleted %s", c.Modified, key)
		delete(v.records, key)
		delete(v.decodedJobs, key)
	} else {
		v.addToChronicle("%d %s %s", c.Modified, key, c.Value)
		v.records[key] = c.Record
	}
	switch noun {
	case "plan":
		v.lifecycle.applyPlan(key, c)
	case "state":
		if node, task, ok := strings.Cut(rest, "/"); ok {
			v.lifecycle.applyDesired(node, cluster.TaskID(task), c, was)
		}
	case "status":
		if node, task, ok := strings.Cut(rest, "/"); ok {
			v.lifecycle.applyStatus(node, cluster.TaskID(task), c, was)
		} else {
			v.liveness.applyRegistration(rest, c, was)
		}
	case "attempt":
		v.lifecycle.applyOutcome(rest, c)
		if a := v.outcomes[rest]; v.day != nil && a != nil && a.outcome != nil && !c.Deleted {
			v.day.applyOutcome(a, a.outcome)
		}
	case "node":
		v.liveness.applyVerdict(rest, c, was)
	case "leader":
		if rest == cluster.DefaultDomain {
			v.leadership.applyLeader(c)
		} else {
			v.leadership.applyOtherLeader(c)
		}
	case "domain":
		v.proposals.noteDomain(c, was)
	case "service", "job", "cron":
		v.specs.applySpec(key, c, was)
		v.services.noteServiceChange(rest)
		if v.day != nil && noun == "job" {
			v.day.applyJob(rest, c)
		}
	case "scale":
		v.services.checkScale(rest, c)
		v.services.noteServiceChange(rest)
	case "fired":
		v.specs.applyCronStatus(rest, c, was)
	}
}
