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

// everyKind is a bound on looks that is never met: one task is looked at.
const everyKind = 1 << 40

// Placement answers about the places of tasks, on the fleet as the records tell it now. It is made for one answer.
type Placement struct {
	*Builder

	fleet *scheduler.Fleet
	// leader returns what the leader kept of a decision.
	leader func(task cluster.TaskID, attempt int) (cluster.DecisionTrace, bool)
}

// Placement returns what answers about the places of tasks.
func (l *Builder) Placement(ctx context.Context) *Placement {
	p := &Placement{Builder: l}
	p.leader = func(task cluster.TaskID, attempt int) (cluster.DecisionTrace, bool) {
		if l.source.Leader.DecisionTrace == nil {
			return cluster.DecisionTrace{}, false
		}
		return l.source.Leader.DecisionTrace(ctx, task, attempt)
	}
	return p
}

// now returns the fleet of the domain with all that stands on it.
func (p *Placement) now() *scheduler.Fleet {
	if p.fleet == nil {
		p.fleet = p.CurrentFleet()
	}
	return p.fleet
}

// options are the scheduler's at the moment of the answer.
func (p *Placement) options() scheduler.Options { return scheduler.Options{Now: p.Domain.Now} }

// asks returns what the task of an attempt that stands asks for, as if it were to be placed now; ok is false where
// nobody knows.
func (p *Placement) asks(row *store.AttemptRow) (cluster.Pending, bool) {
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

// Running says why an attempt stands on its node: as it was decided, or else as it would be decided now. Of the node
// that is asked about, unless that is "", it says how it is now.
func (p *Placement) Running(row *store.AttemptRow, ask string) *api.PlaceView {
	pending, known := p.asks(row)
	v := api.PlaceView{Node: row.Node}
	v.DecisionTrace, v.Recorded = p.leader(row.Task, row.Number)
	if known && (!v.Recorded || ask != "") {
		f := p.now()
		own, _ := f.Reserved(row.Desired.UUID)
		f.Release(own.UUID) // it looks for a place as if it had none
		if !v.Recorded {
			v.DecisionTrace = scheduler.DecisionTraces(f, []cluster.Pending{pending}, []string{row.Node}, everyKind,
				p.options())[0]
			v.DecisionTrace.Task, v.DecisionTrace.Attempt = row.Task, row.Number
		}
		if ask != "" {
			v.Asked = p.option(f, &pending, ask, row.Node)
		}
		f.Reserve(own)
	}
	if len(v.DecisionTrace.Best) == 0 {
		return nil
	}
	say := wordsOf(&pending)
	if v.Recorded && v.DecisionTrace.Node != row.Node { // those of another task, which stand for this one
		v.Here = "the first of the tasks that were placed with it, " + string(v.DecisionTrace.Task) + ", went to " +
			v.DecisionTrace.Node
	}
	taken := v.DecisionTrace.Best[0]
	v.Here = linked(v.Here, say.praise(&taken), "; ")
	for _, other := range v.DecisionTrace.Best[1:] {
		v.Others = append(v.Others, api.PlaceOption{Node: other.Node, Takes: true, Text: say.compare(&taken, &other)})
	}
	v.Refusals = refusalTexts(v.DecisionTrace.Refusals)
	return &v
}

// option says of one node what stands against a task there, or how it compares with another one.
func (p *Placement) option(f *scheduler.Fleet, pending *cluster.Pending, node, with string) *api.PlaceOption {
	o := &api.PlaceOption{Node: node}
	for _, h := range scheduler.Blockers(f, *pending, []string{node}, p.options())[0] {
		o.Against = append(o.Against, scheduler.Sentence([]cluster.RefusalCount{{Refusal: h.Refusal}}))
	}
	if o.Takes = len(o.Against) == 0; !o.Takes {
		o.Text = "it does not take the task"
		return o
	}
	say := wordsOf(pending)
	one := p.weighed(f, pending, node)
	if node == with || with == "" {
		o.Text = linked("it takes the task", say.praise(&one), ": ")
		return o
	}
	other := p.weighed(f, pending, with)
	o.Text = linked("it would take the task", say.compare(&other, &one), "; compared with "+with+": ")
	return o
}

// weighed returns a node with the parts of its rank.
func (p *Placement) weighed(f *scheduler.Fleet, pending *cluster.Pending, node string) cluster.Candidate {
	g := scheduler.DecisionTraces(f, []cluster.Pending{*pending}, []string{node}, everyKind, p.options())
	if len(g) == 0 || len(g[0].Best) == 0 || g[0].Best[0].Node != node {
		return cluster.Candidate{Node: node}
	}
	return g[0].Best[0]
}

// Waiting says what keeps a task off all nodes, and what would let it in.
func (p *Placement) Waiting(w *cluster.Pending, ask string) (*api.PlaceView, []cluster.Suggestion) {
	if w.Attempt == 0 { // it waits for its time, and not for a place
		return nil, nil
	}
	v := &api.PlaceView{DecisionTrace: cluster.DecisionTrace{Task: w.Task, Attempt: w.Attempt}}
	why, told := cluster.Waiting{}, false
	if p.source.Leader.Reasons != nil {
		why, told = p.source.Leader.Reasons.Waiting(w.Task)
	}
	v.Recorded = told
	if told && len(why.Refusals) > 0 && why.Refusals[0].Code == cluster.ReasonRecovery {
		return nil, nil
	}
	f, gang := p.now(), p.gangOf(w)
	v.DecisionTrace.Nodes = len(f.Nodes())
	if !told {
		if waiting := scheduler.Schedule(f, gang, p.options()).Waiting; len(waiting) > 0 {
			why = waiting[0]
		}
	}
	v.DecisionTrace.Refusals = why.Refusals
	v.Refusals = refusalTexts(why.Refusals)
	if ask != "" {
		v.Asked = p.option(f, w, ask, "")
	}
	if w.MissingDependency != "" {
		return v, nil // more room does not help
	}
	in := advice.Input{Fleet: f, Task: *w, Options: p.options()}
	if w.Gang != "" {
		in.Gang = gang
	}
	return v, advice.Find(in).Suggestions
}

// Suggest returns the first task of an owner that waits for a place, and what would let it in.
func (l *Builder) Suggest(ctx context.Context, o cluster.OwnerRef) (cluster.TaskID, []cluster.Suggestion) {
	pending := l.Pending(o)
	for i := range pending {
		if l.source.Leader.Reasons == nil {
			break
		}
		if _, waits := l.source.Leader.Reasons.Waiting(pending[i].Task); waits {
			_, list := l.Placement(ctx).Waiting(&pending[i], "")
			return pending[i].Task, list
		}
	}
	return "", nil
}

// gangOf returns the tasks that wait with one for places, itself among them.
func (p *Placement) gangOf(w *cluster.Pending) []cluster.Pending {
	if w.Gang == "" {
		return []cluster.Pending{*w}
	}
	return slices.DeleteFunc(slices.Clone(p.owner(w.Owner).pending), func(o cluster.Pending) bool {
		return o.Gang != w.Gang || o.Attempt == 0
	})
}

// refusalTexts says refusals one by one.
func refusalTexts(all []cluster.RefusalCount) (texts []string) {
	for _, r := range all {
		texts = append(texts, scheduler.Sentence([]cluster.RefusalCount{r}))
	}
	return texts
}

func linked(a, b, between string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + between + b
}

// CurrentFleet returns the fleet of the domain with all that stands on it. The value of devices is the leader's, or
// that of a leader that begins now.
func (l *Builder) CurrentFleet() *scheduler.Fleet {
	var values *scheduler.ValueModel
	if l.source.Leader.DeviceValueModel != nil {
		values = l.source.Leader.DeviceValueModel()
	}
	return l.Records.Fleet(values)
}
