package apiserver

import (
	"context"
	"net/http"
	"slices"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/advice"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// everyKind is a bound on looks that is never met: one task is looked at.
const everyKind = 1 << 40

// places answers about the places of tasks, on the fleet as the records tell it now. It is made for one answer.
type places struct {
	*balance
	fleet *scheduler.Fleet
	// leader returns what the leader kept of a decision.
	leader func(task cluster.TaskID, attempt int) (cluster.DecisionTrace, bool)
}

func (s *Server) places(ctx context.Context, l *look) *places {
	p := &places{balance: &balance{look: l}}
	p.leader = func(task cluster.TaskID, attempt int) (cluster.DecisionTrace, bool) {
		if s.cfg.DecisionTrace == nil {
			return cluster.DecisionTrace{}, false
		}
		return s.cfg.DecisionTrace(ctx, task, attempt)
	}
	return p
}

// now returns the fleet of the domain with all that stands on it.
func (p *places) now() *scheduler.Fleet {
	if p.fleet == nil {
		p.fleet = p.standingFleet()
	}
	return p.fleet
}

// options are the scheduler's at the moment of the answer.
func (p *places) options() scheduler.Options { return scheduler.Options{Now: p.look.now} }

// asks returns what the task of an attempt that stands asks for, as if it were to be placed now; ok is false where
// nobody knows.
func (p *places) asks(row *store.AttemptRow) (cluster.Pending, bool) {
	o, ok := row.Ref()
	if !ok {
		return cluster.Pending{}, false
	}
	next, known := p.observed.NextAttempts(o)[row.Task]
	if !known || !row.Live() || !observe.HoldsRoom(row) || row.Desired == nil {
		return cluster.Pending{}, false
	}
	if next.Daemon {
		next.OnlyNode = row.Node
	}
	return p.observed.OnSameNode(next, row.Node), true
}

// standing says why an attempt stands on its node: as it was decided, or else as it would be decided now. Of the node
// that is asked about, unless that is "", it says how it is now.
func (p *places) standing(row *store.AttemptRow, ask string) *api.PlaceView {
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
func (p *places) option(f *scheduler.Fleet, pending *cluster.Pending, node, with string) *api.PlaceOption {
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
func (p *places) weighed(f *scheduler.Fleet, pending *cluster.Pending, node string) cluster.Candidate {
	g := scheduler.DecisionTraces(f, []cluster.Pending{*pending}, []string{node}, everyKind, p.options())
	if len(g) == 0 || len(g[0].Best) == 0 || g[0].Best[0].Node != node {
		return cluster.Candidate{Node: node}
	}
	return g[0].Best[0]
}

// waits says what keeps a task off all nodes, and what would let it in.
func (p *places) waits(w *cluster.Pending, ask string) (*api.PlaceView, []cluster.Suggestion) {
	if w.Attempt == 0 { // it waits for its time, and not for a place
		return nil, nil
	}
	v := &api.PlaceView{DecisionTrace: cluster.DecisionTrace{Task: w.Task, Attempt: w.Attempt}}
	why, told := cluster.Waiting{}, false
	if p.reasons != nil {
		why, told = p.reasons.Waiting(w.Task)
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

// gangOf returns the tasks that wait with one for places, itself among them.
func (p *places) gangOf(w *cluster.Pending) []cluster.Pending {
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

// explainPlace adds to the explanation of a task why it stands where it does, or what would let it in.
func (s *Server) explainPlace(r *http.Request, l *look, v *api.TaskView, x *api.Explanation) error {
	ask := r.URL.Query().Get("node")
	p := s.places(r.Context(), l)
	if e, ok := l.snap.Node(ask); ask != "" && (!ok || e.Value.Domain != l.domain) {
		return respond.NotFound("node", ask)
	}
	if v.State == cluster.StatePending {
		pending := l.owner(v.Owner).pending
		for i := range pending {
			if pending[i].Task == v.ID {
				x.Place, x.Suggestions = p.waits(&pending[i], ask)
			}
		}
	} else {
		for row := range l.snap.TaskAttempts(v.ID) {
			if row.Number == v.Attempt && row.Live() && observe.HoldsRoom(row) && row.Desired != nil {
				x.Place = p.standing(row, ask)
			}
		}
	}
	showPlace(access.CallerOf(r.Context()), x)
	return nil
}

// advise adds to the explanation of an owner what would let the first of its tasks in that waits for a place.
func (s *Server) advise(r *http.Request, l *look, o cluster.OwnerRef, x *api.Explanation) {
	pending := l.owner(o).pending
	for i := range pending {
		if l.reasons == nil {
			return
		}
		if _, waits := l.reasons.Waiting(pending[i].Task); !waits {
			continue
		}
		if _, list := s.places(r.Context(), l).waits(&pending[i], ""); len(list) > 0 {
			x.Suggestions, x.Waits = list, pending[i].Task
		}
		break
	}
	showPlace(access.CallerOf(r.Context()), x)
}

// showPlace takes tasks of clusters that the caller does not see out of suggestions.
func showPlace(c *access.Caller, x *api.Explanation) {
	if c.Clusters == nil {
		return
	}
	for i := range x.Suggestions {
		sg := &x.Suggestions[i]
		sg.Text = c.Hide(sg.Text)
		for j := range sg.Changes {
			ch := &sg.Changes[j]
			ch.Text = c.Hide(ch.Text)
			if slices.ContainsFunc(ch.Tasks, func(id cluster.TaskID) bool {
				parts, _ := id.Parts()
				return !c.Sees(parts.Cluster)
			}) {
				ch.Tasks, ch.Attempts = nil, nil
			}
		}
	}
	if x.Place != nil {
		x.Place.Here = c.Hide(x.Place.Here)
	}
}

func linked(a, b, between string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + between + b
}

// standingFleet returns the fleet of the domain with all that stands on it. The value of devices is the leader's, or
// that of a leader that begins now.
func (l *look) standingFleet() *scheduler.Fleet {
	var values *scheduler.ValueModel
	if l.values != nil {
		values = l.values()
	}
	return l.Fleet(values)
}
