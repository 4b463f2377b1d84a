package controlplane

import (
	"context"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane/external"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

// placeProposed places what the external scheduler of the domain proposes, or what the records of another program
// command, in place of place. The built-in scheduler checks each command: it schedules the task for its node alone. It
// places tasks itself that are for one node, such as those of daemons, as they leave no choice. It returns the number
// of placed tasks.
//
// The results of proposals are known before the next cycle, so no plan is in flight when a cycle ends.
func (l *loop) placeProposed(ctx context.Context, snap *store.Snapshot) (placed int, err error) {
	if l.term.plans.isInFlight() { // one of the built-in scheduler, from before the domain had another one
		l.placing.again = true
		return 0, l.awaitInFlight()
	}
	began := l.config.Now()
	needed := l.takeNeedsPlacement()
	l.waiting.queue.EndTurns()
	all, moves := l.waiting.all()
	bound, free := splitBound(all)
	in := l.proposalInputs(snap, free)
	round := l.external.Begin(in)
	if !needed && round.IsEmpty() {
		return 0, nil
	}
	pending := slices.Concat(bound, round.Asked)
	waiting := len(pending)
	for _, m := range moves {
		pending = append(pending, m.Next)
	}
	l.plane.valueModel.Store(l.waiting.arrivals.updateFleet(snap, l.view.Fleet))
	result := scheduler.Schedule(l.view.Fleet, pending, l.config.Scheduler)
	defer l.view.LendKept(pending)()
	result, leaving, stays := l.splitMoves(result, moves, waiting)
	result.Waiting = round.Refuse(in, &result)
	l.noteUnplaced(result.Waiting)
	l.placing.reasons = slices.Concat(result.Waiting, l.external.Reasons(free), stays, l.undecidedReasons())
	l.plane.reasons.Set(l.placing.reasons, nil)
	l.placing.isLong = false
	if _, err = l.term.commit(ctx, round.Refusals); err == nil {
		err = l.commitMoves(ctx, snap, leaving)
	}
	if err != nil {
		l.placing.again = true
		round.Finish(err)
		return 0, err
	}
	if len(result.Placements) == 0 {
		round.Finish(nil)
		return 0, nil
	}
	l.plane.traces.Record(l.view.Fleet, result.Pending, result.Placements, l.config.Scheduler, l.config.Now())
	ids := l.commitInBackground(ctx, snap, &result, began)
	err = l.awaitInFlight()
	l.answer(round, &result, ids, err)
	return len(result.Placements), err
}

// answerDryRuns answers proposals in a domain whose tasks the built-in scheduler places. All but dry runs are refused.
func (l *loop) answerDryRuns(snap *store.Snapshot) {
	if !l.external.HasProposals() {
		return
	}
	all, _ := l.waiting.all()
	_, free := splitBound(all)
	l.external.Begin(l.proposalInputs(snap, free)).Finish(nil)
}

// answer answers the proposals of a round by what the tables show of its placements.
func (l *loop) answer(round *external.Round, result *scheduler.Result, ids []string, err error) {
	if err == nil {
		snap := l.config.Tables.Snapshot()
		for i := range result.Placements {
			pl := &result.Placements[i]
			row, ok := snap.Attempt(pl.Task, result.Pending[pl.Pending].Attempt)
			if ok && row.Desired != nil && row.Desired.UUID == ids[i] {
				round.Placed(pl, ids[i])
			} else {
				round.NotPlaced(pl.Task)
			}
		}
	}
	round.Finish(err)
}

// proposalInputs returns what proposals are checked against. pending are the tasks that they may place.
func (l *loop) proposalInputs(snap *store.Snapshot, pending []cluster.Pending) *external.Inputs {
	return &external.Inputs{
		Fleet: l.view.Fleet, Pending: pending, Domain: l.observed(snap), Options: l.config.Scheduler,
	}
}

// splitBound returns the tasks that are for one node, and the others.
func splitBound(pending []cluster.Pending) (bound, free []cluster.Pending) {
	for i := range pending {
		if pending[i].OnlyNode != "" {
			bound = append(bound, pending[i])
		} else {
			free = append(free, pending[i])
		}
	}
	return bound, free
}
