package external

import (
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/scheduling"
	"github.com/berthd/berth/internal/store"
)

// Round is the proposals that one cycle answers. Dry runs are answered when it begins.
type Round struct {
	scheduler *Scheduler
	requests  []*scheduling.Request
	answers   map[*scheduling.Request]*cluster.ProposalAnswer
	// Asked are the requests for the tasks that commands place, each for one node. asked holds their commands.
	Asked []cluster.Pending
	asked map[cluster.TaskID]placement
	// records holds the records that start tasks, in a domain whose scheduler has the type kv. Refusals delete the
	// records of refused commands.
	records  map[cluster.TaskID]*store.AttemptRow
	jobs     map[cluster.OwnerRef]remainder
	Refusals []store.Unit
}

// placement is the command that places a task.
type placement struct {
	request *scheduling.Request
	index   int // of the command
}

// Inputs are what commands are checked against.
type Inputs struct {
	Fleet *scheduler.Fleet
	// Pending are the pending tasks of the domain that are not bound to a node.
	Pending []cluster.Pending
	// Domain is the domain as the leader observes it.
	Domain  *observe.Domain
	Options scheduler.Options
}

// Begin takes the proposals that wait. It answers those that are fenced off, hold no command, or are dry runs, and
// refuses commands that are stale. The others are to be scheduled: see Asked.
func (s *Scheduler) Begin(in *Inputs) *Round {
	r := s.newRound()
	for _, q := range s.config.Mailbox.Take() {
		if err := s.fence(q); err != nil {
			q.Answer(cluster.ProposalAnswer{}, err)
			continue
		}
		if !q.DryRun {
			s.heard, s.hasWarned = max(1, s.config.Clock()), false
		}
		if len(q.Proposal.Commands) == 0 {
			q.Answer(cluster.ProposalAnswer{}, nil)
			continue
		}
		a := &cluster.ProposalAnswer{Results: make([]cluster.ProposalResult, len(q.Proposal.Commands))}
		if q.DryRun {
			s.dryRun(in, q, a)
			q.Answer(*a, nil)
			continue
		}
		r.requests, r.answers[q] = append(r.requests, q), a
		r.Asked = append(r.Asked, r.check(in, q, a)...)
	}
	r.Asked = append(r.Asked, r.checkRecords(in)...)
	return r
}

func (s *Scheduler) newRound() *Round {
	return &Round{
		scheduler: s, answers: map[*scheduling.Request]*cluster.ProposalAnswer{}, asked: map[cluster.TaskID]placement{},
		records: map[cluster.TaskID]*store.AttemptRow{}, jobs: map[cluster.OwnerRef]remainder{},
	}
}

// HasProposals reports whether proposals wait.
func (s *Scheduler) HasProposals() bool { return !s.config.Mailbox.IsEmpty() }

// RefuseAll answers all proposals that wait with an error, as nothing may be placed.
func (s *Scheduler) RefuseAll(why string) {
	for _, q := range s.config.Mailbox.Take() {
		a := cluster.ProposalAnswer{Results: make([]cluster.ProposalResult, len(q.Proposal.Commands))}
		for i := range a.Results {
			refuse(&a.Results[i], q.Proposal.Commands[i].Task, cluster.ReasonRecovery, why)
		}
		q.Answer(a, nil)
	}
}

// IsEmpty reports whether no command waits for an answer.
func (r *Round) IsEmpty() bool {
	return len(r.requests) == 0 && len(r.records) == 0 && len(r.Refusals) == 0
}

// fence returns a FencedError unless the scheduler of a proposal holds the domain.
func (s *Scheduler) fence(q *scheduling.Request) error {
	if q.DryRun {
		return nil
	}
	c := s.claim()
	if s.Places() && c != nil && c.Holder == s.Name() && q.Proposal.DomainRevision == s.revision {
		return nil
	}
	return &scheduling.FencedError{Domain: s.config.Domain, Holder: s.Name(), Claim: c, Revision: s.revision}
}

// dryRun answers a proposal by the present state, and changes nothing.
func (s *Scheduler) dryRun(in *Inputs, q *scheduling.Request, a *cluster.ProposalAnswer) {
	r := s.newRound()
	r.answers[q] = a
	r.Asked = r.check(in, q, a)
	result := scheduler.Schedule(in.Fleet, r.Asked, in.Options)
	for i := range result.Placements {
		pl := &result.Placements[i]
		r.result(pl.Task, func(out *cluster.ProposalResult) { out.Accepted, out.Ports = true, pl.Ports })
	}
	r.refuse(in, &result)
}

// check refuses stale commands, carries out those that place nothing, and returns the requests of the others.
func (r *Round) check(in *Inputs, q *scheduling.Request, a *cluster.ProposalAnswer) (asked []cluster.Pending) {
	commands := q.Proposal.Commands
	tasks := make([]cluster.TaskID, len(commands))
	for i := range commands {
		tasks[i] = commands[i].Task
		a.Results[i].Task = tasks[i]
	}
	base, known := r.scheduler.feed.LookUp(q.Proposal.Base)
	single := isolate(in.Pending, tasks)
	for i := range commands {
		c, out := &commands[i], &a.Results[i]
		switch {
		case !known:
			refuse(out, c.Task, cluster.ReasonStale,
				"the base is of another leader, or of no revision of the state: read the state again")
		case c.Action == cluster.ProposePlace || c.Action == cluster.ProposeWait:
			if p := r.scheduler.checkPending(in, c, out, single[c.Task], base); p != nil {
				if _, twice := r.asked[c.Task]; twice {
					refuse(out, c.Task, cluster.ReasonStale, "another proposal places it")
					continue
				}
				r.asked[c.Task] = placement{q, i}
				asked = append(asked, *p)
			}
		default:
			r.scheduler.checkRunning(in, q, c, out)
		}
	}
	return asked
}

// isolate returns, by task, those requests that are for one task, with one for each of the tasks.
func isolate(pending []cluster.Pending, tasks []cluster.TaskID) map[cluster.TaskID]*cluster.Pending {
	single := map[cluster.TaskID]*cluster.Pending{}
	split := cluster.Isolate(pending, tasks)
	for i := range split {
		if p := &split[i]; p.Further == 0 {
			single[p.Task] = p
		}
	}
	return single
}

// checkPending refuses a command for a pending task if it is stale. For a command that places the task, it returns the
// request, and otherwise nil. p is nil if the task is not pending.
func (s *Scheduler) checkPending(in *Inputs, c *cluster.ProposalCommand, out *cluster.ProposalResult,
	p *cluster.Pending, base uint64,
) *cluster.Pending {
	stale := func(format string, args ...any) *cluster.Pending {
		refuse(out, c.Task, cluster.ReasonStale, fmt.Sprintf(format, args...))
		return nil
	}
	switch {
	case p == nil:
		return stale("the task is not pending, or Berth places it itself")
	case c.Attempt != 0 && c.Attempt != p.Attempt:
		return stale("attempt %d of the task waits, not attempt %d", p.Attempt, c.Attempt)
	case c.Action == cluster.ProposeWait:
		out.Accepted = true
		s.note(waitingFor(p, cluster.ReasonScheduler, fmt.Sprintf("the scheduler %s: %s", s.Name(), c.Reason)))
		return nil
	}
	if s.mirror != nil {
		if g := s.mirror.groups[keyOfPending(p)]; g != nil && g.changedAt > base {
			return stale("the demands of its group changed since the base")
		}
	}
	if _, _, ok := in.Fleet.Node(c.Node); !ok {
		return stale("the domain has no node %s", c.Node)
	}
	one := *p
	one.OnlyNode = c.Node
	return &one
}

// checkRunning refuses a command for a running task, or has the task leave.
func (s *Scheduler) checkRunning(in *Inputs, q *scheduling.Request, c *cluster.ProposalCommand,
	out *cluster.ProposalResult,
) {
	snap := in.Domain.Snapshot
	var row *store.AttemptRow
	for a := range snap.TaskAttempts(c.Task) {
		if observe.UUID(a) == c.UUID {
			row = a
		}
	}
	parts, _ := c.Task.Parts()
	k, _ := snap.Cluster(parts.Cluster)
	switch {
	case row == nil || k.Value.InDomain() != s.config.Domain:
		refuse(out, c.Task, cluster.ReasonStale, "the task has no such attempt")
		return
	case row.Outcome != nil || row.Desired == nil:
		refuse(out, c.Task, cluster.ReasonStale, "the attempt has ended")
		return
	case row.Desired.Stop != nil || s.leaving[c.UUID] != nil:
		refuse(out, c.Task, cluster.ReasonStale, "the attempt is already leaving")
		return
	}
	if !s.mayLeave(in, row, c, out) {
		return
	}
	out.Accepted = true
	if !q.DryRun {
		s.leave(in, row, c, nil)
	}
}

// mayLeave refuses a command to move or to evict an attempt if the attempt may not leave its node.
func (s *Scheduler) mayLeave(in *Inputs, row *store.AttemptRow, c *cluster.ProposalCommand,
	out *cluster.ProposalResult,
) bool {
	o, _ := row.Ref()
	e, ok := in.Domain.Snapshot.Service(o.Cluster, o.Name)
	switch {
	case ok && o.Kind == cluster.KindService && e.Value.Mode == cluster.ModeDaemon:
		refuse(out, c.Task, cluster.ReasonScheduler, "it belongs to a daemon, which has one task on each node")
		return false
	case c.Action == cluster.ProposeMove:
		return s.mayMove(in, o, row, c, out)
	}
	return s.mayEvict(in, o, row, out)
}

// leave has an attempt leave its node. record, unless nil, is the record that commands it.
func (s *Scheduler) leave(in *Inputs, row *store.AttemptRow, c *cluster.ProposalCommand, record *store.AttemptRow) {
	s.leaving[observe.UUID(row)] = &leaving{
		key: store.AttemptKey{Task: row.Task, Number: row.Number}, leave: s.leaveFor(in.Domain.Now, c, row.Node),
		since: s.config.Clock(), record: record,
	}
	s.config.MarkTask(c.Task)
}

// mayMove refuses a move to a node that would not take the task now.
func (s *Scheduler) mayMove(in *Inputs, o cluster.OwnerRef, row *store.AttemptRow, c *cluster.ProposalCommand,
	out *cluster.ProposalResult,
) bool {
	if o.Kind == cluster.KindJob {
		refuse(out, c.Task, cluster.ReasonScheduler, "it belongs to a job, whose work would be lost: evict it instead")
		return false
	}
	if c.Node == row.Node {
		refuse(out, c.Task, cluster.ReasonStale, "it runs on node "+row.Node+" already")
		return false
	}
	next, ok := in.Domain.NextAttempts(o)[c.Task]
	if !ok {
		refuse(out, c.Task, cluster.ReasonStale, "its service does not need it any more")
		return false
	}
	if _, _, ok := in.Fleet.Node(c.Node); !ok {
		refuse(out, c.Task, cluster.ReasonStale, "the domain has no node "+c.Node)
		return false
	}
	next = in.Domain.OnSameNode(next, row.Node)
	if blockers := scheduler.Blockers(in.Fleet, next, []string{c.Node}, in.Options)[0]; len(blockers) > 0 {
		r := blockers[0].Refusal
		refuse(out, c.Task, r.Code, c.Node+": "+scheduler.Sentence([]cluster.RefusalCount{{Refusal: r}}))
		return false
	}
	return true
}

// mayEvict refuses the eviction of a healthy task that its service cannot spare (P5.4).
func (s *Scheduler) mayEvict(in *Inputs, o cluster.OwnerRef, row *store.AttemptRow, out *cluster.ProposalResult) bool {
	e, ok := in.Domain.Snapshot.Service(o.Cluster, o.Name)
	if o.Kind != cluster.KindService || !ok || !row.Observed.Healthy() {
		return true
	}
	spare := reconciler.Spare(in.Domain.ServiceInput(o, e, in.Domain.Tasks(o)))
	for _, l := range s.leaving { // order-free: a sum
		if other, ok := l.key.Task.Owner(); ok && other == o && l.leave.Now {
			spare--
		}
	}
	if spare > 0 {
		return true
	}
	refuse(out, row.Task, cluster.ReasonPermit,
		"its service has no more healthy tasks than it needs (min_healthy): move it instead")
	return false
}

// leaveFor returns why a command has an attempt leave.
func (s *Scheduler) leaveFor(now time.Time, c *cluster.ProposalCommand, from string) *reconciler.Leave {
	why := ""
	if c.Reason != "" {
		why = " (" + c.Reason + ")"
	}
	l := &reconciler.Leave{Reason: cluster.ReasonRebalance, Since: now, To: c.Node}
	if c.Action == cluster.ProposeEvict {
		l.Now = true
		l.Message = fmt.Sprintf("the scheduler %s evicts it from node %s%s", s.Name(), from, why)
	} else {
		l.Message = fmt.Sprintf("the scheduler %s moves it from node %s to %s%s", s.Name(), from, c.Node, why)
	}
	return l
}

// result changes the result of the command that places a task, and reports whether there is one.
func (r *Round) result(task cluster.TaskID, change func(*cluster.ProposalResult)) bool {
	at, ok := r.asked[task]
	if ok {
		change(&r.answers[at.request].Results[at.index])
	}
	return ok
}

// Placed takes note of a placement by a command that was committed, with the identity of its attempt.
func (r *Round) Placed(pl *scheduler.Placement, uuid string) {
	delete(r.scheduler.notes, pl.Task)
	r.result(pl.Task, func(out *cluster.ProposalResult) {
		out.Accepted, out.UUID, out.Ports = true, uuid, pl.Ports
	})
}

// NotPlaced takes note of a placement by a command that was left out of its plan, as its owner or the record of the
// domain changed meanwhile.
func (r *Round) NotPlaced(task cluster.TaskID) {
	r.result(task, func(out *cluster.ProposalResult) {
		refuse(out, task, cluster.ReasonStale, "its service or job, or the claim of the domain, changed meanwhile")
	})
}

// Refuse takes the refusals of commands out of a result of the built-in scheduler, and returns the others.
func (r *Round) Refuse(in *Inputs, result *scheduler.Result) []cluster.Waiting {
	r.refuse(in, result)
	return slices.DeleteFunc(slices.Clone(result.Waiting), func(w cluster.Waiting) bool {
		_, ok := r.asked[w.Task]
		return ok || r.records[w.Task] != nil
	})
}

func (r *Round) refuse(in *Inputs, result *scheduler.Result) {
	requests := map[cluster.TaskID]*cluster.Pending{}
	for i := range r.Asked {
		requests[r.Asked[i].Task] = &r.Asked[i]
	}
	for _, w := range result.Waiting {
		p := requests[w.Task]
		if p == nil {
			continue
		}
		code, message := refusalOf(in, p, w)
		verb, dry := "proposed", false
		if row := r.records[w.Task]; row != nil {
			r.refuseRecord(row, code, message)
			verb = "wrote"
		}
		r.result(w.Task, func(out *cluster.ProposalResult) {
			refuse(out, w.Task, code, message)
			dry = r.asked[w.Task].request.DryRun
		})
		if !dry {
			r.scheduler.note(waitingFor(p, code,
				fmt.Sprintf("the scheduler %s %s %s: %s", r.scheduler.Name(), verb, p.OnlyNode, message)))
		}
	}
}

// refusalOf returns why a node does not take a task that is proposed for it.
func refusalOf(in *Inputs, p *cluster.Pending, w cluster.Waiting) (cluster.ReasonCode, string) {
	free := *p
	free.OnlyNode = ""
	if blockers := scheduler.Blockers(in.Fleet, free, []string{p.OnlyNode}, in.Options)[0]; len(blockers) > 0 {
		r := blockers[0].Refusal
		return r.Code, scheduler.Sentence([]cluster.RefusalCount{{Refusal: r}})
	}
	// Room that other tasks of the round took, a limit of its cluster, its gang, or a promise to a task ahead of it.
	for _, c := range w.Refusals {
		if c.Nodes <= 1 && c.Refusal != scheduler.Elsewhere(p.OnlyNode) {
			return c.Code, scheduler.Sentence([]cluster.RefusalCount{{Refusal: c.Refusal}})
		}
	}
	return cluster.ReasonStale, "another task took the room"
}

func refuse(out *cluster.ProposalResult, task cluster.TaskID, code cluster.ReasonCode, message string) {
	*out = cluster.ProposalResult{Task: task, Code: code, Message: message}
}

// Finish answers all proposals of the round. err, unless nil, is why the results of their placements are unknown.
func (r *Round) Finish(err error) {
	for _, q := range r.requests {
		places := slices.ContainsFunc(r.answers[q].Results, func(out cluster.ProposalResult) bool {
			_, asked := r.asked[out.Task]
			return asked
		})
		if err != nil && places {
			q.Answer(cluster.ProposalAnswer{}, fmt.Errorf("%w (%w)", scheduling.ErrUnknown, err))
			continue
		}
		q.Answer(*r.answers[q], nil)
	}
	r.requests = nil
}
