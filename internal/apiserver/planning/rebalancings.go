package planning

import (
	"cmp"
	"fmt"
	"net/http"
	"reflect"
	"strconv"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/backend"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/lists"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/apiserver/views"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
	"github.com/berthd/berth/internal/store"
)

// RebalancingsAPI lists, begins, cancels and undoes rebalancings.
type RebalancingsAPI struct {
	backend.Backend
}

// Routes returns the operations of rebalancings. The address "last" names the newest one.
func (a *RebalancingsAPI) Routes() []route.Route {
	const one = "/v1/rebalancings/{rebalancing}"
	view := reflect.TypeFor[api.RebalancingView]()
	return []route.Route{
		{
			Method: "POST", Path: "/v1/rebalance", Name: "rebalance", Role: cluster.RoleOperator,
			Summary: "Carries out moves, as GET lists them: a few at a time, within the budgets of services. " +
				"Refused with 409 while another rebalancing runs.",
			Body:   reflect.TypeFor[api.RebalanceRequest](),
			Status: http.StatusCreated, Reply: view, Serve: a.rebalance,
		},
		{
			Method: "GET", Path: "/v1/rebalancings", Name: "listRebalancings", Role: cluster.RoleViewer,
			Summary: "All remembered rebalancings, the oldest first.", Query: route.ListParameters(),
			Reply: reflect.TypeFor[api.Page[api.RebalancingBrief]](), Stream: route.MediaEventStream, Long: true,
			Serve: a.listRebalancings,
		},
		{
			Method: "GET", Path: one, Name: "readRebalancing", Role: cluster.RoleViewer,
			Summary: "One rebalancing, with the progress of each move.", Query: []route.Parameter{route.Consistent()},
			Reply: view,
			Serve: a.readRebalancing,
		},
		{
			Method: "POST", Path: one + "/cancel", Name: "cancelRebalancing", Role: cluster.RoleOperator,
			Summary: "Cancels a rebalancing: no further move begins, and those that have begun complete.",
			Writes:  true, Reply: view, Serve: a.cancelRebalancing,
		},
		{
			Method: "POST", Path: one + "/undo", Name: "undoRebalancing", Role: cluster.RoleOperator,
			Summary: "Undoes a rebalancing in reverse order, by a rebalancing of its own, or only returns its " +
				"moves. The id \"last\" is the newest one that was not undone.",
			Body: reflect.TypeFor[api.UndoRebalanceRequest](), Optional: true, Status: http.StatusCreated, Reply: view,
			Serve: a.undoRebalancing,
		},
	}
}

// rebalance makes the record of a rebalancing. The control plane carries it out.
func (a *RebalancingsAPI) rebalance(w http.ResponseWriter, r *http.Request) error {
	var ask api.RebalanceRequest
	if err := strictjson.ReadBody(w, r, &ask); err != nil {
		return err
	}
	var made *cluster.Rebalancing
	snap, err := a.Writer.Write(r.Context(), func(d *draft.Draft) error {
		rec, err := newRebalancing(d, domainOf(d.Snap, ask.Moves), ask.Parallel)
		if err != nil {
			return err
		}
		for i := range ask.Moves {
			m := &ask.Moves[i]
			rec.Moves = append(rec.Moves, cluster.RebalancingMove{
				Task: m.Task, Attempt: m.Attempt, From: m.From, To: m.To,
				Cause: m.Cause, Gain: m.Gain, Message: cluster.ClipRebalanceText(m.Message),
			})
		}
		faults := identify(d, rec)
		if err := append(cluster.FaultsOf(rec.Validate()), faults...).Err(); err != nil {
			return respond.Invalid(cluster.FaultsOf(err))
		}
		made = rec
		putRebalancing(d, rec,
			fmt.Sprintf("rebalancing %d carries out %s", rec.ID, respond.Plural(len(rec.Moves), "move")))
		return nil
	})
	if err != nil {
		return err
	}
	return answerRebalancing(w, http.StatusCreated, a.rebalancingView(snap, made))
}

// domainOf returns the domain of the first task that is to move.
func domainOf(snap *store.Snapshot, moves []api.RebalanceMove) string {
	if len(moves) > 0 {
		if p, ok := moves[0].Task.Parts(); ok {
			c, _ := snap.Cluster(p.Cluster)
			return c.Value.InDomain()
		}
	}
	return cluster.DefaultDomain
}

// newRebalancing returns a new record. It refuses a second rebalancing while one of the domain runs.
func newRebalancing(d *draft.Draft, domain string, parallel int) (*cluster.Rebalancing, error) {
	if e, ok := d.Snap.RunningRebalancing(domain); ok {
		return nil, respond.Problemf(http.StatusConflict,
			"rebalancing %d runs, and one runs at a time: wait for its end, or cancel it", e.Value.ID)
	}
	last := uint64(0)
	for e := range d.Snap.Rebalancings() {
		last = e.Value.ID
	}
	return &cluster.Rebalancing{
		ID: last + 1, Domain: domain, Created: d.Now, By: d.By, State: cluster.RebalancingRunning,
		Parallel: cmp.Or(parallel, cluster.DefaultRebalanceParallel),
	}, nil
}

// putRebalancing drafts a new record. The key is the same for concurrent drafts, so that only one rebalancing runs at a
// time.
func putRebalancing(d *draft.Draft, rec *cluster.Rebalancing, message string) {
	key := d.Prefix.Rebalancing(rec.ID)
	d.Put(key, rec, 0)
	d.Instead[key] = cluster.Event{
		Type: "rebalance.started", Reason: cluster.ReasonRebalance, Count: len(rec.Moves),
		Message: message,
	}
}

// identify finds the attempt of each move, and returns the faults of the moves by the present tasks and nodes.
func identify(d *draft.Draft, rec *cluster.Rebalancing) (faults cluster.Faults) {
	for i := range rec.Moves[:min(len(rec.Moves), cluster.MaxRebalanceMoves)] {
		m := &rec.Moves[i]
		m.State = cluster.MoveWaiting
		at := fmt.Sprintf("moves[%d].", i)
		fault := func(field, format string, args ...any) {
			faults = append(faults, cluster.Fault{Path: at + field, Message: fmt.Sprintf(format, args...)})
		}
		parts, ok := m.Task.Parts()
		if !ok {
			continue // the record's own validation has this fault
		}
		if n, ok := d.Snap.Node(m.To); cluster.ValidNodeName(m.To) && (!ok || n.Value.Domain != rec.Domain) {
			fault("to", "is %s, and domain %s has no such node", m.To, rec.Domain)
		}
		if why := ownerUnmovable(d.Snap, parts, rec.Domain); why != "" {
			fault("task", "%s %s", m.Task, why)
			continue
		}
		row := newestRow(d.Snap, m.Task)
		if why := attemptUnmovable(row); why != "" {
			fault("task", "%s %s", m.Task, why)
			continue
		}
		if m.Attempt != 0 && m.Attempt != row.Number {
			fault("attempt", "is %d, and attempt %d of the task runs: request the list again", m.Attempt, row.Number)
		}
		if m.From != row.Node {
			fault("from", "is %s, and the task is on node %s: request the list again", m.From, row.Node)
		}
		m.Attempt, m.UUID = row.Number, row.Desired.UUID
	}
	return faults
}

// ownerUnmovable returns why no task of an owner is moved, as the end of a sentence about the task; empty if its tasks
// are moved.
func ownerUnmovable(snap *store.Snapshot, parts cluster.TaskParts, domain string) string {
	if parts.Step != "" {
		return "belongs to a job, whose work would be lost"
	}
	e, ok := snap.Service(parts.Cluster, parts.Owner)
	if !ok {
		return "does not exist: there is no such service"
	}
	c, _ := snap.Cluster(parts.Cluster)
	switch {
	case e.Value.Mode == cluster.ModeDaemon:
		return "belongs to a daemon, which has one task on each node"
	case c.Value.InDomain() != domain:
		return "belongs to the domain " + c.Value.InDomain()
	}
	if def, ok := snap.Definition(e.Value.Definition); ok && len(def.Value.Volumes) > 0 {
		return "has volumes, which would not move with it"
	}
	return ""
}

// attemptUnmovable returns why the newest attempt of a task cannot be moved; empty if it can. The row may be nil.
func attemptUnmovable(row *store.AttemptRow) string {
	switch {
	case row == nil:
		return "does not exist"
	case row.Outcome != nil || row.Desired == nil:
		return "is not running"
	case row.Desired.Stop != nil:
		return "is already stopping"
	}
	return ""
}

// newestRow returns a task's newest attempt, nil if it has none.
func newestRow(snap *store.Snapshot, task cluster.TaskID) (newest *store.AttemptRow) {
	for row := range snap.TaskAttempts(task) {
		newest = row
	}
	return newest
}

// rebalancingOf returns the rebalancing in the address.
func (a *RebalancingsAPI) rebalancingOf(snap *store.Snapshot, r *http.Request) (store.Entry[cluster.Rebalancing],
	error,
) {
	name := r.PathValue("rebalancing")
	if name == "last" {
		var last store.Entry[cluster.Rebalancing]
		for e := range snap.Rebalancings() {
			last = e
		}
		if last.Value == nil {
			return last, respond.Problemf(http.StatusNotFound, "there was no rebalancing yet")
		}
		return last, nil
	}
	id, _ := strconv.ParseUint(name, 10, 64) // route.Check has accepted it
	e, ok := snap.Rebalancing(id)
	if !ok {
		return e, respond.NotFound("rebalancing", name)
	}
	return e, nil
}

func (a *RebalancingsAPI) readRebalancing(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	e, err := a.rebalancingOf(snap, r)
	if err != nil {
		return err
	}
	return answerRebalancing(w, http.StatusOK, a.rebalancingView(snap, e.Value))
}

func (a *RebalancingsAPI) listRebalancings(w http.ResponseWriter, r *http.Request) error {
	return lists.Serve(a.Lists, w, r, lists.Source[api.RebalancingBrief]{
		List: "rebalancings", // rebalancings have no topic
		All: func(snap *store.Snapshot) (all []lists.Item[api.RebalancingBrief]) {
			for e := range snap.Rebalancings() {
				all = append(all, lists.Item[api.RebalancingBrief]{Key: e.Key, Value: BriefOf(e.Value)})
			}
			return all
		},
	})
}

// cancelRebalancing stops further moves. The control plane writes the end once the open moves have ended.
func (a *RebalancingsAPI) cancelRebalancing(w http.ResponseWriter, r *http.Request) error {
	pre, err := draft.PreconditionOf(r)
	if err != nil {
		return err
	}
	var seen *cluster.Rebalancing
	snap, err := a.Writer.Write(r.Context(), func(d *draft.Draft) error {
		e, err := a.rebalancingOf(d.Snap, r)
		if err != nil {
			return err
		}
		if err := pre.Check(e.Modified); err != nil {
			return err
		}
		seen = e.Value
		if e.Value.Cancelled {
			return nil
		}
		if !e.Value.Running() {
			return respond.Problemf(http.StatusConflict, "rebalancing %d is %s already", e.Value.ID, e.Value.State)
		}
		next := *e.Value
		next.Cancelled, next.CancelledBy = true, d.By
		d.Put(e.Key, &next, e.Modified)
		d.Instead[e.Key] = cluster.Event{
			Type: "rebalance.cancelled", Reason: cluster.ReasonCancelled,
			Message: fmt.Sprintf("rebalancing %d begins no further move", next.ID),
		}
		seen = &next
		return nil
	})
	if err != nil {
		return err
	}
	return answerRebalancing(w, http.StatusOK, a.rebalancingView(snap, seen))
}

// undoRebalancing makes the rebalancing that reverses another one, or only returns it.
func (a *RebalancingsAPI) undoRebalancing(w http.ResponseWriter, r *http.Request) error {
	var ask api.UndoRebalanceRequest
	if r.ContentLength != 0 {
		if err := strictjson.ReadBody(w, r, &ask); err != nil {
			return err
		}
	}
	var made *cluster.Rebalancing
	var left []api.RebalanceLeft
	snap, err := a.Writer.Write(r.Context(), func(d *draft.Draft) error {
		old, err := a.undoable(d.Snap, r)
		if err != nil {
			return err
		}
		rec, err := newRebalancing(d, old.Domain, ask.Parallel)
		if err != nil {
			return err
		}
		rec.Undoes = old.ID
		if left = reverse(d, rec, old); len(rec.Moves) == 0 {
			return respond.Problemf(http.StatusConflict,
				"nothing of rebalancing %d can be undone: of its %s, %d were carried out, and "+
					"all of these tasks have moved or ended since",
				old.ID, respond.Plural(len(old.Moves), "move"), old.Counts().Done)
		}
		if err := rec.Validate(); err != nil {
			return respond.Invalid(cluster.FaultsOf(err))
		}
		made = rec
		if !ask.DryRun {
			putRebalancing(d, rec, fmt.Sprintf("rebalancing %d undoes %s of rebalancing %d", rec.ID,
				respond.Plural(len(rec.Moves), "move"), old.ID))
		}
		return nil
	})
	if err != nil {
		return err
	}
	status := http.StatusCreated
	if ask.DryRun {
		made.ID, status = 0, http.StatusOK
	}
	v := a.rebalancingView(snap, made)
	v.Left = left
	return answerRebalancing(w, status, v)
}

// undoable returns the rebalancing to reverse: the named one, or the newest that is no undo and was not undone.
func (a *RebalancingsAPI) undoable(snap *store.Snapshot, r *http.Request) (*cluster.Rebalancing, error) {
	if r.PathValue("rebalancing") != "last" {
		e, err := a.rebalancingOf(snap, r)
		return e.Value, err
	}
	taken := map[uint64]bool{}
	for e := range snap.Rebalancings() {
		taken[e.Value.Undoes] = taken[e.Value.Undoes] || e.Value.Counts().Done > 0
	}
	var last *cluster.Rebalancing
	for e := range snap.Rebalancings() {
		if v := e.Value; v.Undoes == 0 && !taken[v.ID] && v.Counts().Done > 0 {
			last = v
		}
	}
	if last == nil {
		return nil, respond.Problemf(http.StatusConflict,
			"there is nothing to undo: no remembered rebalancing has moved a task, or all of "+
				"them were undone")
	}
	return last, nil
}

// reverse fills in the moves that reverse another rebalancing, the last one first, and returns the tasks that cannot be
// moved back.
func reverse(d *draft.Draft, rec, old *cluster.Rebalancing) (left []api.RebalanceLeft) {
	for i := len(old.Moves) - 1; i >= 0; i-- {
		m := &old.Moves[i]
		if m.State != cluster.MoveDone {
			continue
		}
		row := newestRow(d.Snap, m.Task)
		why := attemptUnmovable(row)
		if why == "" && row.Node != m.To {
			why = "is on node " + row.Node
		}
		if _, ok := d.Snap.Node(m.From); why == "" && !ok {
			why = "was on node " + m.From + ", which is gone"
		}
		if why != "" {
			left = append(left, api.RebalanceLeft{Task: m.Task, Why: why})
			continue
		}
		rec.Moves = append(rec.Moves, cluster.RebalancingMove{
			Task: m.Task, Attempt: row.Number, UUID: row.Desired.UUID, From: m.To, To: m.From,
			Cause: m.Cause, Gain: -m.Gain, Message: "back to where it was", State: cluster.MoveWaiting,
		})
	}
	return left
}

// rebalancingView shows a rebalancing as the tables have it, or else the given record.
func (a *RebalancingsAPI) rebalancingView(snap *store.Snapshot, rec *cluster.Rebalancing) api.RebalancingView {
	v := api.RebalancingView{Rebalancing: *rec}
	if e, ok := snap.Rebalancing(rec.ID); ok {
		v.Rebalancing, v.Revision = *e.Value, e.Modified
	}
	v.Counts = v.Rebalancing.Counts()
	for i := range v.Moves {
		if m := &v.Moves[i]; m.State == cluster.MoveMoving {
			if v.Waits == nil {
				v.Waits = map[cluster.TaskID]string{}
			}
			v.Waits[m.Task] = a.awaited(snap, m)
		}
	}
	return v
}

// awaited returns what an open move waits for.
func (a *RebalancingsAPI) awaited(snap *store.Snapshot, m *cluster.RebalancingMove) string {
	row, ok := snap.Attempt(m.Task, m.Attempt)
	if next := newestRow(snap, m.Task); next != nil && next.Number > m.Attempt {
		if !next.Observed.Healthy() {
			return fmt.Sprintf("it runs on until attempt %d is healthy on node %s, where it is %s", next.Number,
				next.Node, lifecycle.Shown(next.Attempt).State)
		}
		return fmt.Sprintf("attempt %d is healthy on node %s, and the last one ends", next.Number, next.Node)
	}
	switch {
	case !ok || row.Desired == nil:
		return ""
	case row.Outcome != nil || row.Desired.Stop != nil:
		return views.WhyLeft(snap, row)
	}
	return fmt.Sprintf("it moves once node %s has room for it and its service keeps min_healthy without it", m.To)
}

// BriefOf returns a rebalancing as lists show it.
func BriefOf(r *cluster.Rebalancing) api.RebalancingBrief {
	return api.RebalancingBrief{
		ID: r.ID, State: r.State, Created: r.Created, Ended: r.Ended, By: r.By, Undoes: r.Undoes,
		Cancelled: r.Cancelled,
		Moves:     len(r.Moves), Counts: r.Counts(),
	}
}

func answerRebalancing(w http.ResponseWriter, status int, v api.RebalancingView) error {
	respond.SetETag(w, v.Revision)
	return respond.JSON(w, status, v)
}
