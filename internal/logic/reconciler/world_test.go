package reconciler_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	diff "github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/watcher"
)

// world is a model of everything that a reconciler's decision goes through. It has a store that compares revisions, a
// scheduler that places pending tasks, and agents that take one step at a time. The agent of a silent node continues
// with its last knowledge; the leader does not receive its reports.
type world struct {
	service     *cluster.Service
	cluster     *cluster.Cluster
	job         *cluster.Job
	owner       cluster.OwnerRef
	definitions map[cluster.Ref]*cluster.TaskDefinition
	// sick holds definitions whose tasks never become healthy.
	sick map[cluster.Ref]bool
	// rejects lists the nodes that cannot take tasks.
	rejects []string
	// lacks lists the nodes that do not have the program of the tasks.
	lacks []string
	// fails reports whether an attempt of a job's task ends badly.
	fails func(cluster.TaskID, int) bool
	// exitCodes are the exit codes of failing tasks other than 1.
	exitCodes map[cluster.TaskID]int
	// goesOn, unless nil, reports whether a job's task runs for another step.
	goesOn     func() bool
	absent     map[string]watcher.Absence
	drains     map[string]*cluster.Drain
	unreported map[string]bool // nodes that did not report in full
	recover    reconciler.Recovery
	without    clause.Set
	nodes      []string
	records    []*record
	rev        uint64
	uuid       int
	now        time.Time
	since      time.Time // a new leader took over then
	last       reconciler.Decision
	// A service's: its rollout's record, the results of its gates, and for a daemon its nodes and the drained nodes on
	// which only daemons are left.
	rollout    *cluster.Rollout
	rolloutRev uint64
	gates      []cluster.GateResult
	matching   []string
	alone      map[string]bool
	staying    map[string]time.Time
	pressured  map[string]*cluster.Pressure // by node
	leaves     map[string]*reconciler.Leave // by UUID
	cordoned   map[string]bool              // nodes that take no new tasks
	// agentsRequestPermits says that agents carry out a voluntary stop only with a permit (P5.2).
	agentsRequestPermits bool
	// refused counts writes whose comparison failed.
	refused int
}

type record struct {
	id      cluster.TaskID
	attempt int
	cluster.Attempt
	// real is the agent's state of the attempt, reported or not; nil if the agent has none.
	real *cluster.Observed
	// The agent's: the number and time of its requests for a permit, and whether it has used one.
	permitRequests int
	lastRequestAt  time.Time
	permitUsed     bool
}

func newWorld() *world {
	return &world{
		definitions: map[cluster.Ref]*cluster.TaskDefinition{}, sick: map[cluster.Ref]bool{},
		fails:     func(cluster.TaskID, int) bool { return false },
		exitCodes: map[cluster.TaskID]int{},
		drains:    map[string]*cluster.Drain{}, unreported: map[string]bool{},
		absent: map[string]watcher.Absence{}, alone: map[string]bool{}, staying: map[string]time.Time{},
		pressured: map[string]*cluster.Pressure{},
		leaves:    map[string]*reconciler.Leave{}, cordoned: map[string]bool{}, nodes: []string{"n1", "n2", "n3"},
		now: time.Unix(0, 0).UTC(),
	}
}

func (w *world) define(ref string, change func(*cluster.TaskDefinition)) cluster.Ref {
	r, err := cluster.ParseRef(ref)
	if err != nil {
		panic(err)
	}
	d := &cluster.TaskDefinition{
		Name: r.Name, Version: r.Version, Containers: []cluster.Container{{Name: "main", Image: "main:1"}},
	}
	if change != nil {
		change(d)
	}
	d.SetDefaults()
	w.definitions[r] = d
	return r
}

func (w *world) next() uint64 {
	w.rev++
	return w.rev
}

func (w *world) tasks() []reconciler.Task {
	var all []reconciler.Task
	for _, r := range w.records {
		t := reconciler.Task{Attempt: r.Attempt}
		if t.RunsLimited() {
			t.Running = w.now.Sub(t.Observed.Started)
		}
		if n := r.node(); n != "" {
			t.Absence, t.Drain, t.Reported = w.absent[n], w.drains[n], !w.unreported[n]
			if v := w.pressured[n]; v != nil && r.Observed != nil && v.Victim == r.Observed.UUID {
				t.Leave = reconciler.PressedLeave(n, v)
			}
			if l := w.leaves[r.uuid()]; l != nil {
				t.Leave = l
			}
		}
		all = append(all, t)
	}
	return all
}

func (r *record) uuid() string {
	switch {
	case r.Desired != nil:
		return r.Desired.UUID
	case r.Outcome != nil:
		return r.Outcome.UUID
	}
	return ""
}

func (r *record) node() string {
	switch {
	case r.Desired != nil:
		return r.Desired.Node
	case r.Observed != nil:
		return r.Observed.Node
	case r.Outcome != nil:
		return r.Outcome.Node
	}
	return ""
}

// decide decides about the owner. Each pending task has a request of its own.
func (w *world) decide(tasks []reconciler.Task) reconciler.Decision {
	if w.owner.Kind == cluster.KindJob {
		find := func(r cluster.Ref) *cluster.TaskDefinition { return w.definitions[r] }
		d := reconciler.Job(reconciler.JobInput{
			Owner: w.owner, Spec: w.job, SpecRev: 7, Definitions: find, Tasks: tasks, Now: w.now, Recovery: w.recover,
		})
		d.Pending = cluster.Expand(d.Pending)
		return d
	}
	return reconciler.Service(w.input(tasks))
}

// input returns the input of a decision about the service.
func (w *world) input(tasks []reconciler.Task) reconciler.ServiceInput {
	return reconciler.ServiceInput{
		Owner: w.owner, Spec: w.service, SpecRev: 7, Tasks: tasks, Now: w.now, Recovery: w.recover, Without: w.without,
		Definitions: func(r cluster.Ref) *cluster.TaskDefinition { return w.definitions[r] },
		Rollout:     w.rollout, RolloutRev: w.rolloutRev, Gates: w.gates, Nodes: w.matching, Alone: w.alone,
		Staying: w.staying, Cluster: w.cluster, Since: w.since,
	}
}

// commitRollout writes the rollout's record and, in the same transaction, the spec of a rollback.
func (w *world) commitRollout(d reconciler.Decision) {
	if d.Rollout == nil {
		return
	}
	if d.Rollout.Rev != w.rolloutRev || w.service == nil {
		w.refused++
		return
	}
	rec := d.Rollout.Record
	w.rollout, w.rolloutRev = &rec, w.next()
	if d.Revert != nil {
		w.ask(func(s *cluster.Service) {
			s.Definition, s.Rollout.Reverted = d.Revert.Definition, d.Revert.Failed
		})
	}
}

// ask writes the service's spec again as the API server does: the generation grows with the definition.
func (w *world) ask(change func(*cluster.Service)) {
	s := *w.service
	was := s.Definition
	s.Rollout = cluster.RolloutWish{}
	change(&s)
	if s.Definition == was {
		s.Rollout.Reverted = w.service.Rollout.Reverted
	} else {
		s.Generation++
	}
	s.Updated = w.now
	w.service = &s
}

func (w *world) find(id cluster.TaskID, attempt int) *record {
	for _, r := range w.records {
		if r.id == id && r.attempt == attempt {
			return r
		}
	}
	return nil
}

func (w *world) commitStop(s *reconciler.Stop) {
	r := w.find(s.Desired.Task, s.Desired.Attempt)
	if r == nil || r.DesiredRev != s.Rev || w.desiredKeyRev(r) != s.Rev {
		w.refused++
		return
	}
	desired := s.Desired
	r.Desired, r.DesiredRev = &desired, w.next()
}

// acceptsTasks reports whether a node may be given new tasks.
func (w *world) acceptsTasks(node string, p *cluster.Pending) bool {
	if p.OnlyNode != "" && (p.OnlyNode != node || p.Daemon) {
		return p.OnlyNode == node && w.absent[node] == watcher.Present && !slices.Contains(p.ExcludedNodes, node)
	}
	return w.absent[node] == watcher.Present && w.drains[node] == nil && !w.cordoned[node] &&
		!slices.Contains(p.ExcludedNodes, node)
}

// commitMove writes the part of a move that frees the task, if a node has a place for it.
func (w *world) commitMove(m *reconciler.Move) bool {
	if !slices.ContainsFunc(w.nodes, func(n string) bool { return w.acceptsTasks(n, &m.Next) }) {
		return false
	}
	if m.Stop != nil {
		w.commitStop(m.Stop)
	} else {
		w.commit(reconciler.Decision{Conclusions: []reconciler.Conclusion{*m.Conclusion}})
	}
	return true
}

// commit writes each part of a decision by itself, and refuses parts whose comparison fails.
func (w *world) commit(d reconciler.Decision) {
	for i := range d.Conclusions {
		c := &d.Conclusions[i]
		r := w.find(c.Outcome.Task, c.Outcome.Attempt)
		if r == nil && c.Outcome.Node == "" && c.ObservedRev == 0 && c.DesiredRev == 0 { // it was never placed
			r = &record{id: c.Outcome.Task, attempt: c.Outcome.Attempt}
			w.records = append(w.records, r)
		}
		if r == nil || r.Outcome != nil || w.observedKeyRev(r) != c.ObservedRev || r.DesiredRev != c.DesiredRev {
			w.refused++
			continue
		}
		out := c.Outcome
		r.Outcome = &out
		if c.Desired != nil {
			desired := *c.Desired
			r.Desired, r.DesiredRev = &desired, w.next()
		}
	}
	for _, c := range d.Reconnects {
		r := w.find(c.Task, c.Attempt)
		if r == nil || r.Outcome == nil || r.Observed == nil {
			w.refused++
			continue
		}
		r.Outcome = nil
	}
	w.commitRollout(d)
	for i := range d.Stops {
		w.commitStop(&d.Stops[i])
	}
	for i := range d.Adoptions {
		a := &d.Adoptions[i]
		r := w.find(a.Desired.Task, a.Desired.Attempt)
		if r == nil || r.Outcome != nil || w.desiredKeyRev(r) != 0 || r.ObservedRev != a.ObservedRev {
			w.refused++
			continue
		}
		desired := a.Desired
		r.Desired, r.DesiredRev = &desired, w.next()
	}
	for _, c := range d.Cleanups {
		r := w.find(c.Task, c.Attempt)
		if r == nil || r.DesiredRev != c.DesiredRev || r.ObservedRev != c.ObservedRev {
			w.refused++
			continue
		}
		r.Desired, r.Observed, r.DesiredRev, r.ObservedRev, r.real = nil, nil, 0, 0, nil
	}
	for _, t := range d.Trims {
		r := w.find(t.Task, t.Attempt)
		r.Outcome = nil
		if r.Desired != nil || r.Observed != nil {
			panic(fmt.Sprintf("outcome of %s attempt %d trimmed while a record exists", t.Task, t.Attempt))
		}
		w.records = slices.DeleteFunc(w.records, func(x *record) bool { return x == r })
	}
	if d.Cancel {
		w.job.Cancelled, w.job.CancelReason = true, cluster.ReasonDeadline
	}
	if d.Remove {
		if len(w.records) > 0 {
			panic("the owner is removed before its tasks")
		}
		w.service, w.job, w.rollout, w.rolloutRev = nil, nil, nil, 0
	}
}

// place puts a pending task on a node. It returns an error for requests that a scheduler or committer would refuse.
func (w *world) place(p cluster.Pending, node string) error {
	if slices.Contains(p.ExcludedNodes, node) {
		return fmt.Errorf("%s is to be kept off %s", p.Task, node)
	}
	for _, r := range w.records {
		switch {
		case r.id != p.Task:
		case r.attempt >= p.Attempt:
			return fmt.Errorf("%s requests attempt %d and has attempt %d", p.Task, p.Attempt, r.attempt)
		case r.Outcome == nil:
			return fmt.Errorf("%s requests attempt %d and attempt %d has no outcome", p.Task, p.Attempt, r.attempt)
		case r.node() == node && (r.Desired != nil || r.Observed != nil):
			return fmt.Errorf("%s is placed on %s, where attempt %d still is", p.Task, node, r.attempt)
		}
	}
	w.uuid++
	w.records = append(w.records, &record{id: p.Task, attempt: p.Attempt, Attempt: cluster.Attempt{
		Desired: &cluster.Desired{
			Task: p.Task, Attempt: p.Attempt, UUID: fmt.Sprintf("u%d", w.uuid), Node: node, Owner: p.Owner,
			Definition: p.Definition, Count: p.Count, TimeLimit: p.TimeLimit, OnDisconnect: p.OnDisconnect,
			Placed: w.now,
		},
		DesiredRev: w.next(),
	}})
	return nil
}

// placeAll places the pending tasks of the last decision that have no hold on the present nodes, round robin.
func (w *world) placeAll(d reconciler.Decision) error {
	for _, p := range d.Pending {
		if p.Hold != (cluster.Hold{}) {
			continue
		}
		for range w.nodes {
			w.uuid++
			node := w.nodes[w.uuid%len(w.nodes)]
			if !w.acceptsTasks(node, &p) {
				continue
			}
			if err := w.place(p, node); err != nil {
				return err
			}
			break
		}
	}
	return nil
}

// step lets the agent of an attempt take one step and report it.
func (w *world) step(r *record) {
	absence := w.absent[r.node()]
	if r.Desired == nil || absence == watcher.Gone {
		return
	}
	reachable := absence == watcher.Present
	if r.real == nil {
		if !reachable {
			return
		}
		r.real = &cluster.Observed{
			Task: r.id, Attempt: r.attempt, UUID: r.Desired.UUID, Node: r.Desired.Node,
			Definition: r.Desired.Definition,
		}
	}
	var stop *cluster.Stop
	if reachable {
		stop = r.Desired.Stop
	}
	if r.permitUsed {
		stop = r.Desired.Stop // a begun use is completed, however late
	} else if stop != nil && !w.allowed(r, stop) {
		stop = nil
	}
	w.advance(r, stop)
	if reachable && !diff.Equal(r.Observed, r.real) {
		w.report(r)
	}
}

// permitValidity is the time after its request for which a permit may be used.
const permitValidity = 30 * time.Second

// allowed reports whether an agent carries out a stop now; if not, it requests a permit (P5.2).
func (w *world) allowed(r *record, stop *cluster.Stop) bool {
	o := r.real
	if !w.agentsRequestPermits || stop.Class != cluster.StopVoluntary || o.State != cluster.StateRunning &&
		o.State != cluster.StateStarting {
		return true
	}
	late := w.now.Sub(r.lastRequestAt) > permitValidity
	if o.Ask != "" && stop.Permit == o.Ask && !late {
		r.permitUsed = true
		return true
	}
	if o.Ask == "" || late {
		r.permitRequests++
		r.lastRequestAt = w.now
		o.Ask = fmt.Sprintf("1.%d", r.permitRequests)
	}
	return false
}

func (w *world) report(r *record) {
	if w.observedKeyRev(r) != r.ObservedRev {
		return
	}
	o := *r.real
	r.Observed, r.ObservedRev = &o, w.next()
}

func (w *world) advance(r *record, stop *cluster.Stop) {
	o := r.real
	batch := r.Desired.Owner.Kind == cluster.KindJob
	switch {
	case o.State.Terminal():
		o.Gone = o.Gone || stop != nil && stop.Ended
	case stop != nil:
		o.State, o.Health, o.Reason, o.Finished = cluster.StateCancelled, "", stop.Reason, w.now
		o.Gone = stop.Ended
	case o.State == "" && slices.Contains(w.rejects, r.node()):
		o.State, o.Reason, o.Message = cluster.StateRejected, cluster.ReasonPortTaken, "port 80 is used"
	case o.State == "":
		o.State = cluster.StatePreparing
	case o.State == cluster.StatePreparing && batch && r.Outcome != nil:
		o.State, o.Reason = cluster.StateRejected, cluster.ReasonBarrier // P4.3
	case o.State == cluster.StatePreparing && slices.Contains(w.lacks, r.node()):
		o.State, o.Reason, o.Finished = cluster.StateFailed, cluster.ReasonNoProgram, w.now
		o.Message = "container main cannot run on node " + r.node() + ": no program \"run\" in PATH /bin"
	case o.State == cluster.StatePreparing:
		o.State = cluster.StateStarting
	case o.State == cluster.StateStarting:
		o.State, o.Health, o.Started = cluster.StateRunning, cluster.HealthUnknown, w.now
	case batch && w.goesOn != nil && w.goesOn():
	case batch && w.fails(r.id, r.attempt):
		code := cmp.Or(w.exitCodes[r.id], 1)
		o.State, o.Reason, o.Finished = cluster.StateFailed, cluster.ReasonExit, w.now
		o.Message = fmt.Sprintf("exit code %d", code)
		o.Containers = []cluster.ContainerStatus{{Name: "main", Exit: &cluster.Exit{Code: code, At: w.now}}}
	case batch:
		o.State, o.Reason, o.Finished = cluster.StateSucceeded, cluster.ReasonExit, w.now
	case w.sick[r.Desired.Definition]:
		o.Health = cluster.HealthFailing
	default:
		o.Health = cluster.HealthHealthy
	}
}

// crash ends a running attempt badly.
func (w *world) crash(r *record, reason cluster.ReasonCode) {
	if r.real == nil || r.real.State != cluster.StateRunning {
		return
	}
	r.real.State, r.real.Health, r.real.Reason, r.real.Finished = cluster.StateFailed, "", reason, w.now
	r.real.Message = "it crashed"
	if w.absent[r.node()] == watcher.Present {
		w.report(r)
	}
}

// running counts the attempts of each task that really run, reported or not.
func (w *world) running() map[cluster.TaskID]int {
	n := map[cluster.TaskID]int{}
	for _, r := range w.records {
		if r.real != nil && w.absent[r.node()] != watcher.Gone &&
			(r.real.State == cluster.StateStarting || r.real.State == cluster.StateRunning) {
			n[r.id]++
		}
	}
	return n
}

// healthy counts the tasks with an attempt that is known to be healthy and has no stop.
func (w *world) healthy() int { return len(w.healthyTasks()) }

func (w *world) healthyTasks() map[cluster.TaskID]bool {
	tasks := map[cluster.TaskID]bool{}
	for _, r := range w.records {
		stopping := r.Desired != nil && r.Desired.Stop != nil
		if r.Observed.Healthy() && !stopping && w.absent[r.node()] == watcher.Present {
			tasks[r.id] = true
		}
	}
	return tasks
}

// round runs one turn: decide, commit, place, and one step of every agent.
func (w *world) round() (reconciler.Decision, error) {
	d := w.decide(w.tasks())
	w.commit(d)
	limited := 0
	for i := range d.Moves {
		if m := &d.Moves[i]; m.Limit == 0 || limited < m.Limit {
			if w.commitMove(m) && m.Limit > 0 {
				limited++
			}
		}
	}
	if err := w.placeAll(d); err != nil {
		return d, err
	}
	for _, r := range slices.Clone(w.records) {
		w.step(r)
	}
	w.now = w.now.Add(time.Second)
	return d, nil
}

func shortID(id cluster.TaskID) string { return strings.TrimPrefix(string(id), "default.") }

// describe formats a decision, one action a line.
func describe(d reconciler.Decision) string {
	var b strings.Builder
	for _, p := range d.Pending {
		fmt.Fprintf(&b, "  place %s attempt %d of %s", shortID(p.Task), p.Attempt, p.Definition)
		if len(p.ExcludedNodes) > 0 {
			fmt.Fprintf(&b, ", not on %s", strings.Join(p.ExcludedNodes, " "))
		}
		if len(p.PenalizedNodes) > 0 {
			fmt.Fprintf(&b, ", rather not on %s", strings.Join(p.PenalizedNodes, " "))
		}
		if p.OnlyNode != "" {
			fmt.Fprintf(&b, ", only on %s", p.OnlyNode)
		}
		if p.Hold != (cluster.Hold{}) {
			fmt.Fprintf(&b, ", held for %s: %s", p.Hold.Reason, p.Hold.Message)
		}
		b.WriteString("\n")
	}
	for i := range d.Moves {
		m := &d.Moves[i]
		fmt.Fprintf(&b, "  move %s off %s", shortID(m.Next.Task), m.From)
		if m.Stop != nil {
			b.WriteString(", stopped first")
			if m.Limit > 0 {
				fmt.Fprintf(&b, ", %d of these at most", m.Limit)
			}
		}
		b.WriteString("\n")
	}
	for i := range d.Adoptions {
		a := &d.Adoptions[i].Desired
		fmt.Fprintf(&b, "  adopt %s attempt %d on %s: %s\n", shortID(a.Task), a.Attempt, a.Node, a.Definition)
	}
	for i := range d.Stops {
		s := &d.Stops[i]
		fmt.Fprintf(&b, "  stop %s attempt %d on %s: %s %s", shortID(s.Desired.Task), s.Desired.Attempt, s.Desired.Node,
			s.Desired.Stop.Class, s.Desired.Stop.Reason)
		if s.Desired.Stop.Ended {
			b.WriteString(", ended")
		}
		if s.Desired.Stop.Permit != "" {
			b.WriteString(", permit " + s.Desired.Stop.Permit)
		}
		b.WriteString("\n")
	}
	for i := range d.Conclusions {
		c := &d.Conclusions[i]
		fmt.Fprintf(&b, "  end %s attempt %d: %s %s", shortID(c.Outcome.Task), c.Outcome.Attempt, c.Outcome.State,
			c.Outcome.Reason)
		if c.Outcome.Free {
			b.WriteString(", free")
		}
		if c.Desired == nil {
			b.WriteString(", may continue")
		}
		b.WriteString("\n")
	}
	for _, c := range d.Reconnects {
		fmt.Fprintf(&b, "  reconnect %s attempt %d\n", shortID(c.Task), c.Attempt)
	}
	for _, c := range d.Cleanups {
		fmt.Fprintf(&b, "  clean %s attempt %d on %s\n", shortID(c.Task), c.Attempt, c.Node)
	}
	for _, t := range d.Trims {
		fmt.Fprintf(&b, "  trim %s attempt %d\n", shortID(t.Task), t.Attempt)
	}
	if d.Remove {
		b.WriteString("  remove\n")
	}
	if d.Cancel {
		b.WriteString("  cancel\n")
	}
	if w := d.Rollout; w != nil {
		fmt.Fprintf(&b, "  rollout of generation %d: %s, %d healthy at most%s\n", w.Record.Generation, w.Record.State,
			w.Record.Most,
			strings.ReplaceAll(colon(w.Record.Message), "default.", ""))
		for _, e := range w.Events {
			fmt.Fprintf(&b, "  event %s\n", strings.TrimSpace(e.Type+" "+string(e.Reason)))
		}
	}
	if r := d.Revert; r != nil {
		fmt.Fprintf(&b, "  back to %s from generation %d\n", r.Definition, r.Failed)
	}
	for _, e := range d.Events {
		fmt.Fprintf(&b, "  event %s\n", e.Type)
	}
	if !d.NextDecision.IsZero() {
		fmt.Fprintf(&b, "  decide again at %v\n", d.NextDecision.Sub(time.Unix(0, 0)))
	}
	if b.Len() == 0 {
		b.WriteString("  nothing to do\n")
	}
	return b.String()
}

func colon(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

// listAttempts lists the attempts that have records, by task.
func (w *world) listAttempts() string {
	lines := map[string]string{}
	for _, r := range w.records {
		state := "placed"
		if r.Observed != nil {
			state = strings.TrimSpace(string(r.Observed.State) + " " + string(r.Observed.Health))
		}
		if r.Outcome != nil {
			state += ", outcome " + string(r.Outcome.State)
		}
		lines[fmt.Sprintf("%s attempt %02d", shortID(r.id), r.attempt)] = fmt.Sprintf("on %s: %s", r.node(), state)
	}
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(lines)) {
		fmt.Fprintf(&b, "  %s %s\n", k, lines[k])
	}
	return b.String()
}
