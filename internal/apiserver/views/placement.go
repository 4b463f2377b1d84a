package views

import (
	"context"
	"slices"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/advice"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// noTraceLimit is more groups than one decision trace can have.
const noTraceLimit = 1 << 40

// Placement explains why tasks are on their nodes or on none, with the present fleet. It is for one answer.
type Placement struct {
	*Builder

	fleet *scheduler.Fleet
	// trace returns the leader's decision trace of an attempt.
	trace func(task cluster.TaskID, attempt int) (cluster.DecisionTrace, bool)
}

// Placement returns a Placement for tasks of the domain. The context bounds questions to the leader.
func (b *Builder) Placement(ctx context.Context) *Placement {
	p := &Placement{Builder: b}
	p.trace = func(task cluster.TaskID, attempt int) (cluster.DecisionTrace, bool) {
		if b.source.Leader.DecisionTrace == nil {
			return cluster.DecisionTrace{}, false
		}
		return b.source.Leader.DecisionTrace(ctx, b.Domain.Name, task, attempt)
	}
	return p
}

// presentFleet returns the fleet of the domain with all tasks on it.
func (p *Placement) presentFleet() *scheduler.Fleet {
	if p.fleet == nil {
		p.fleet = p.Fleet()
	}
	return p.fleet
}

// options returns the scheduler's options.
func (p *Placement) options() scheduler.Options { return scheduler.Options{Now: p.Domain.Now} }

// request returns what the task of a placed attempt would request if it were placed now; ok is false if that is not
// known.
func (p *Placement) request(row *store.AttemptRow) (pending cluster.Pending, ok bool) {
	o, ok := row.Ref()
	if !ok {
		return cluster.Pending{}, false
	}
	next, known := p.Domain.NextAttempts(o)[row.Task]
	if !known || !row.Live() || !observe.HoldsRoom(row) || row.Desired == nil {
		return cluster.Pending{}, false
	}
	if next.Daemon {
		next.OnlyNode = row.Node
	}
	return p.Domain.OnSameNode(next, row.Node), true
}

// Running explains why an attempt is on its node, by the leader's decision trace or, without one, by a decision of now.
// If asked names a node, the view includes that node's present result.
func (p *Placement) Running(row *store.AttemptRow, asked string) *api.PlaceView {
	pending, known := p.request(row)
	v := api.PlaceView{Node: row.Node}
	v.DecisionTrace, v.Recorded = p.trace(row.Task, row.Number)
	if known && (!v.Recorded || asked != "") {
		f := p.presentFleet()
		own, _ := f.Reserved(row.Desired.UUID)
		f.Release(own.UUID) // the decision is made as if the task had no place
		if !v.Recorded {
			v.DecisionTrace = scheduler.DecisionTraces(f, []cluster.Pending{pending}, []string{row.Node}, noTraceLimit,
				p.options())[0]
			v.DecisionTrace.Task, v.DecisionTrace.Attempt = row.Task, row.Number
		}
		if asked != "" {
			v.Asked = p.option(f, &pending, asked, row.Node)
		}
		f.Reserve(own)
	}
	if len(v.DecisionTrace.Best) == 0 {
		return nil
	}
	text := rankTextFor(&pending)
	if v.Recorded && v.DecisionTrace.Node != row.Node { // the trace of another task of the group represents this one
		v.Here = "the first of the tasks that were placed with it, " + string(v.DecisionTrace.Task) + ", went to " +
			v.DecisionTrace.Node
	}
	chosen := v.DecisionTrace.Best[0]
	v.Here = joinTexts(v.Here, text.describe(&chosen), "; ")
	for _, other := range v.DecisionTrace.Best[1:] {
		v.Others = append(v.Others, api.PlaceOption{Node: other.Node, Takes: true, Text: text.compare(&chosen, &other)})
	}
	v.Refusals = refusalTexts(v.DecisionTrace.Refusals)
	return &v
}

// option describes the blockers of a task on one node or, without blockers, how the node compares with another.
func (p *Placement) option(f *scheduler.Fleet, pending *cluster.Pending, node, with string) *api.PlaceOption {
	o := &api.PlaceOption{Node: node}
	for _, blocker := range scheduler.Blockers(f, *pending, []string{node}, p.options())[0] {
		o.Against = append(o.Against, scheduler.Sentence([]cluster.RefusalCount{{Refusal: blocker.Refusal}}))
	}
	if o.Takes = len(o.Against) == 0; !o.Takes {
		o.Text = "it cannot run the task"
		return o
	}
	text := rankTextFor(pending)
	one := p.candidate(f, pending, node)
	if node == with || with == "" {
		o.Text = joinTexts("it can run the task", text.describe(&one), ": ")
		return o
	}
	other := p.candidate(f, pending, with)
	o.Text = joinTexts("it can run the task", text.compare(&other, &one), "; compared with "+with+": ")
	return o
}

// candidate returns a node with the parts of its rank.
func (p *Placement) candidate(f *scheduler.Fleet, pending *cluster.Pending, node string) cluster.Candidate {
	traces := scheduler.DecisionTraces(f, []cluster.Pending{*pending}, []string{node}, noTraceLimit, p.options())
	if len(traces) == 0 || len(traces[0].Best) == 0 || traces[0].Best[0].Node != node {
		return cluster.Candidate{Node: node}
	}
	return traces[0].Best[0]
}

// Waiting explains why no node accepts a pending task, and suggests changes that would place it. If asked names a node,
// the view includes that node's result. Both results are nil for a task that waits for its time.
func (p *Placement) Waiting(w *cluster.Pending, asked string) (*api.PlaceView, []cluster.Suggestion) {
	if w.Attempt == 0 { // the task waits for the end of a delay
		return nil, nil
	}
	v := &api.PlaceView{DecisionTrace: cluster.DecisionTrace{Task: w.Task, Attempt: w.Attempt}}
	why, recorded := p.waitingReason(w.Task)
	v.Recorded = recorded
	if recorded && len(why.Refusals) > 0 && why.Refusals[0].Code == cluster.ReasonRecovery {
		return nil, nil
	}
	f, gang := p.presentFleet(), p.gangOf(w)
	if own, keeps := f.EndKeep(w.Owner); keeps { // the task gets the room that its service keeps
		defer f.Keep(own)
	}
	v.DecisionTrace.Nodes = len(f.Nodes())
	if !recorded {
		if waiting := scheduler.Schedule(f, gang, p.options()).Waiting; len(waiting) > 0 {
			why = waiting[0]
		}
	}
	v.DecisionTrace.Refusals = why.Refusals
	v.Refusals = refusalTexts(why.Refusals)
	if asked != "" {
		v.Asked = p.option(f, w, asked, "")
	}
	if w.Hold != (cluster.Hold{}) {
		return v, nil // more room does not help
	}
	in := advice.Input{Fleet: f, Task: w.Single(), Options: p.options()}
	if w.Gang != "" {
		in.Gang = gang
	}
	found := advice.Find(in)
	if found.Placed && isBehind(why.Refusals) {
		return v, advice.Overtake(f, p.queue.waitingLine().pending, w.Task, p.options())
	}
	return v, found.Suggestions
}

// isBehind reports whether room for a task is kept for others in the queue.
func isBehind(refusals []cluster.RefusalCount) bool {
	return slices.ContainsFunc(refusals, func(r cluster.RefusalCount) bool { return r.Code == cluster.ReasonBackfill })
}

// Suggest returns the first task of an owner that the leader could not place, and changes that would place it.
func (b *Builder) Suggest(ctx context.Context, o cluster.OwnerRef) (cluster.TaskID, []cluster.Suggestion) {
	b = b.Of(o.Cluster)
	tasks := b.Pending(o)
	for i := range tasks {
		if _, waits := b.waitingReason(tasks[i].Task); waits {
			_, list := b.Placement(ctx).Waiting(&tasks[i], "")
			return tasks[i].Task, list
		}
	}
	return "", nil
}

// gangOf returns the pending tasks of a task's gang, itself among them.
func (p *Placement) gangOf(w *cluster.Pending) []cluster.Pending {
	if w.Gang == "" {
		return []cluster.Pending{w.Single()}
	}
	return slices.DeleteFunc(slices.Clone(p.Pending(w.Owner)), func(o cluster.Pending) bool {
		return o.Gang != w.Gang || o.Attempt == 0
	})
}

// refusalTexts returns a sentence for each refusal.
func refusalTexts(all []cluster.RefusalCount) (texts []string) {
	for _, r := range all {
		texts = append(texts, scheduler.Sentence([]cluster.RefusalCount{r}))
	}
	return texts
}
