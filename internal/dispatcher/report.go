package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/transport"
)

// tries is how often a report's refused write is made anew from newer tables, before the agent is asked to send it
// again.
const tries = 4

// Report takes a report: what it says is durable when the reply is sent (P4.6). A report that
// comes again is answered again and written once.
func (d *Dispatcher) Report(ctx context.Context, r transport.Report) (transport.ReportReply, error) {
	s, err := d.session(r.Node, r.Session)
	if err != nil {
		return transport.ReportReply{}, err
	}
	if err := d.reach.lost(); err != nil {
		return transport.ReportReply{}, err
	}
	var life *life
	if len(r.Tasks) > 0 || r.Facts != nil { // else nothing is waited for
		life = d.lives(s, r.Seq)
		defer life.end()
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return transport.ReportReply{}, ctx.Err()
	}
	if r.Seq < s.seq {
		return transport.ReportReply{}, fmt.Errorf("report %d of %s came late: %d was taken", r.Seq, r.Node, s.seq)
	}
	if r.Seq == s.seq && r.Seq != 0 {
		life.end()
		s.last.Heartbeat = cluster.Duration(d.promise(s, r.Seq, s.usage.interval(d.size())))
		return s.last, nil
	}
	if r.Facts != nil {
		if err := checkFacts(r.Node, r.Facts); err != nil {
			return transport.ReportReply{}, err
		}
		if err := d.takeFacts(ctx, s, r.Facts); err != nil {
			return transport.ReportReply{}, err
		}
	}
	began := d.config.Clock()
	refused, err := d.take(ctx, s, r.Tasks)
	if err != nil {
		return transport.ReportReply{}, err
	}
	if m := d.config.Metrics; m != nil {
		m.Reported(d.config.Clock()-began, len(r.Tasks)-len(refused), len(refused))
	}
	life.end()
	snap := d.config.Tables.Snapshot()
	s.usage.take(r.Stats, alive(snap, r.Node))
	for i := range r.Tasks {
		if r.Tasks[i].State.Terminal() {
			s.usage.ended(r.Tasks[i].UUID)
		}
	}
	reply := transport.ReportReply{
		Refused:   refused,
		Heartbeat: cluster.Duration(d.promise(s, r.Seq, s.usage.interval(d.size()))),
		Token:     d.token(snap, r.Node),
		Servers:   d.news(s),
	}
	s.seq, s.last = r.Seq, reply
	return reply, nil
}

// checkFacts refuses facts that cannot be true.
func checkFacts(node string, f *cluster.Facts) error {
	if err := f.Validate(); err != nil {
		return fmt.Errorf("%w: the facts of node %s: %w", transport.ErrRefused, node, err)
	}
	return nil
}

// takeFacts writes the node's facts when they changed.
func (d *Dispatcher) takeFacts(ctx context.Context, s *session, f *cluster.Facts) error {
	if err := d.refreshRev(ctx, s); err != nil {
		return err
	}
	e, ok := d.config.Tables.Snapshot().NodeStatus(s.node)
	if !ok || e.Value.Session != s.number {
		return &transport.SessionError{Newest: d.newest(s.node), Detail: "a newer session has begun"}
	}
	status := *e.Value
	status.Facts = *f
	s.usage.is(f)
	var u store.Unit
	u.Compare(e.Key, e.Modified)
	if err := u.Put(e.Key, &status); err != nil {
		return err
	}
	applied, at, err := d.submit(ctx, []store.Unit{u})
	if err != nil {
		return err
	}
	s.settled = max(s.settled, at)
	if !applied[0] {
		return &transport.SessionError{Newest: d.newest(s.node), Detail: "a newer session has begun"}
	}
	return d.refreshRev(ctx, s)
}

// take writes the status records of a report and returns, by UUID, what was not taken. An error means that for
// some nothing is known; the agent sends the report again.
func (d *Dispatcher) take(ctx context.Context, s *session, tasks []cluster.Observed) (map[string]transport.Refused,
	error,
) {
	if len(tasks) == 0 {
		return nil, nil // a heartbeat writes nothing and waits for nothing
	}
	refused := map[string]transport.Refused{}
	for range tries {
		snap, err := d.config.Tables.WaitFor(ctx, s.settled)
		if err == nil && unknown(snap, tasks) {
			// What these tables do not know may be another node's, if they are behind: then that is found out first.
			snap, err = d.config.Tables.Settled(ctx)
		}
		if err != nil {
			return nil, err
		}
		units := make([]store.Unit, 0, len(tasks))
		written := make([]int, 0, len(tasks))
		for i := range tasks {
			u, v, err := d.statusUnit(snap, s, &tasks[i])
			switch {
			case err != nil:
				return nil, err
			case v.why != nil:
				refused[tasks[i].UUID] = *v.why
			case v.write:
				units = append(units, u)
				written = append(written, i)
			}
		}
		applied, at, err := d.submit(ctx, units)
		if err != nil {
			return nil, fmt.Errorf("write the report: %w", err)
		}
		s.settled = max(s.settled, at)
		var again []cluster.Observed
		for i, ok := range applied {
			if !ok {
				again = append(again, tasks[written[i]])
			}
		}
		if tasks = again; len(tasks) == 0 {
			return refused, nil
		}
		// Something else was written in between: a newer session, a stop, an outcome.
		if err := d.refreshRev(ctx, s); err != nil {
			return nil, err
		}
	}
	for i := range tasks {
		refused[tasks[i].UUID] = transport.Refused{
			Reason:  cluster.ReasonBarrier,
			Message: "the records of the task change too fast",
			Retry:   true,
		}
	}
	return refused, nil
}

// unknown reports whether any of the attempts is one of which the tables hold nothing.
func unknown(snap *store.Snapshot, tasks []cluster.Observed) bool {
	return slices.ContainsFunc(tasks, func(o cluster.Observed) bool {
		row, ok := snap.Attempt(o.Task, o.Attempt)
		return !o.Gone && (!ok || identity(row) == "")
	})
}

// verdict is what becomes of one reported attempt: it is written, refused, or known already.
type verdict struct {
	write bool
	why   *transport.Refused
}

// statusUnit makes the write of one attempt's status.
func (d *Dispatcher) statusUnit(snap *store.Snapshot, s *session, o *cluster.Observed) (store.Unit, verdict, error) {
	if _, ok := o.Task.Parts(); !ok || o.Attempt < 1 || o.UUID == "" {
		return store.Unit{}, verdict{
			why: refusal(cluster.ReasonUnknownExit, fmt.Sprintf("%q is no attempt of a task", o.Task)),
		}, nil
	}
	short := *o
	short.Message, short.LogTail = clip(o.Message, maxText), clip(o.LogTail, maxText)
	o = &short
	row, ok := snap.Attempt(o.Task, o.Attempt)
	known := ok && (row.Desired != nil || row.Observed != nil || row.Outcome != nil)
	if !known {
		row = &store.AttemptRow{Task: o.Task, Number: o.Attempt, Node: s.node}
	}
	if o.Gone && row.Desired == nil && row.Observed == nil {
		return store.Unit{}, verdict{}, nil // its records are gone, as it is
	}
	barrier := d.barrier(snap, s, row, o)
	if why := objection(row, s.node, o, barrier); why != nil {
		return store.Unit{}, verdict{why: why}, nil
	}
	if barrier {
		if why := d.held(snap, s, row); why != "" {
			return store.Unit{}, verdict{
				why: &transport.Refused{Reason: cluster.ReasonRecovery, Message: why, Retry: true},
			}, nil
		}
	}
	if row.Observed != nil {
		// A barrier is committed again each time it is asked for: what was true when it was first written says nothing
		// of an outcome that the tables do not hold yet (P4.3). What is gone stays as it was told then.
		if row.Observed.Gone || !barrier && sameStatus(row.Observed, o) {
			return store.Unit{}, verdict{}, nil
		}
	}
	return d.writeStatus(snap, s, row, o)
}

// asks reports whether a report asks at the start barrier (P4.3).
func asks(row *store.AttemptRow, o *cluster.Observed) bool {
	return o.State == cluster.StateStarting && row.Desired != nil && row.Desired.Batch()
}

// barrier reports whether a report is to pass the start barrier. A registration passes none: what it tells of an
// attempt that is held back is written as any other status, so that the node is known to have the attempt, and the
// agent asks again by a report.
func (d *Dispatcher) barrier(snap *store.Snapshot, s *session, row *store.AttemptRow, o *cluster.Observed) bool {
	return asks(row, o) && !d.config.Without.Off(clause.Barrier) && (s.began != 0 || d.held(snap, s, row) == "")
}

// objection is why a report is not taken, or nil.
func objection(row *store.AttemptRow, node string, o *cluster.Observed, barrier bool) *transport.Refused {
	switch {
	case identity(row) != "" && identity(row) != o.UUID || row.Node != "" && row.Node != node:
		return refusal(cluster.ReasonReplaced, "the attempt has another identity in the store")
	case row.Observed != nil && row.Observed.State.Terminal() && !o.State.Terminal():
		return refusal(cluster.ReasonBarrier, "the attempt has ended: what was reported of its end stands")
	case o.State == cluster.StateStarting && row.Desired == nil:
		return refusal(cluster.ReasonBarrier, "the store does not know the task")
	case barrier && (row.Outcome != nil || row.Desired.Stop != nil):
		return refusal(cluster.ReasonBarrier, "the task was ended before its start")
	}
	return nil
}

// identity returns the UUID that the store has for an attempt (P3.6), empty if it has none.
func identity(row *store.AttemptRow) string {
	switch {
	case row.Desired != nil:
		return row.Desired.UUID
	case row.Outcome != nil:
		return row.Outcome.UUID
	case row.Observed != nil:
		return row.Observed.UUID
	}
	return ""
}

func refusal(reason cluster.ReasonCode, message string) *transport.Refused {
	return &transport.Refused{Reason: reason, Message: message}
}

// writeStatus compares the session (P6.1) and the record it replaces. A start barrier also compares that the task is
// still wanted, by its desired record or where that is not projected yet by its plan record, and has no outcome (P4.3),
// and that the store did not go back meanwhile (P1.7).
func (d *Dispatcher) writeStatus(snap *store.Snapshot, s *session, row *store.AttemptRow,
	o *cluster.Observed,
) (store.Unit, verdict, error) {
	prefix, barrier := d.config.Tables.Prefix(), d.barrier(snap, s, row, o)
	key := prefix.Observed(s.node, o.Task)
	u := store.Unit{Group: store.Group{Compares: make([]store.Compare, 0, 6), Ops: make([]store.Op, 0, 1)}}
	switch {
	case barrier:
		if row.DesiredRev == 0 && !d.config.Without.Off(clause.Projection) {
			u.Compare(prefix.Plan(row.Plan), row.PlanRev) // its word is the plan record's
		}
		u.Compare(prefix.Desired(s.node, o.Task), row.DesiredRev)
		u.Compare(prefix.Outcome(o.Task, o.Attempt), 0)
		d.compareRecovery(&u, snap)
	case row.ObservedRev == 0:
		origin(&u, prefix, row)
	}
	u.Compare(prefix.NodeStatus(s.node), s.statusRev)
	rev := row.ObservedRev
	if foreign, ok := snap.Attempt(o.Task, 0); ok && rev == 0 && foreign.Node == s.node {
		rev = foreign.ObservedRev // what nobody can read is written over
	}
	if rev == 0 {
		rev = s.forgot(snap, o)
	}
	u.Compare(key, rev)
	record := *o
	record.Node, record.Session = s.node, s.number
	for _, e := range statusEvents(row, &record) {
		u.Event(e)
	}
	return u, verdict{write: true}, u.Put(key, &record)
}

// forgot returns the revision of the status of an earlier state of the store, if one stands where that of o does: of
// another attempt of its task that is not in the node's full report. It returns 0 outside of a registration.
func (s *session) forgot(snap *store.Snapshot, o *cluster.Observed) uint64 {
	if s.reported == nil {
		return 0
	}
	for row := range snap.TaskAttempts(o.Task) {
		if row.Node == s.node && row.Number != o.Attempt && row.Observed != nil && !s.reported[row.Observed.UUID] {
			return row.ObservedRev
		}
	}
	return 0
}

// origin makes the first status of an attempt compare that its desired record stands: a write that is thought lost and
// arrives after all records of the attempt were deleted must not bring it back.
func origin(u *store.Unit, prefix store.Prefix, row *store.AttemptRow) {
	switch {
	case row.DesiredRev != 0:
		u.Compare(prefix.Desired(row.Node, row.Task), store.AnyModified)
	case row.PlanRev != 0:
		u.Compare(prefix.Plan(row.Plan), row.PlanRev)
	}
}

// maxText bounds a message or a tail of a log in a status record, in bytes.
const maxText = 16 << 10

// clip returns the end of a long text.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[len(s)-most:], "")
}

// sameStatus reports whether two reports say the same: all but when they were made.
func sameStatus(a, b *cluster.Observed) bool {
	if a.UUID != b.UUID || a.State != b.State || a.Health != b.Health || a.Reason != b.Reason ||
		a.Message != b.Message ||
		a.Restarts != b.Restarts || a.Gone != b.Gone || a.LogTail != b.LogTail || a.Ask != b.Ask ||
		!a.Started.Equal(b.Started) || !a.Finished.Equal(b.Finished) || len(a.Containers) != len(b.Containers) {
		return false
	}
	for i := range a.Containers {
		if !sameContainer(&a.Containers[i], &b.Containers[i]) {
			return false
		}
	}
	return true
}

func sameContainer(a, b *cluster.ContainerStatus) bool {
	if (a.Exit == nil) != (b.Exit == nil) || a.Exit != nil &&
		(a.Exit.Code != b.Exit.Code || !a.Exit.At.Equal(b.Exit.At)) {
		return false
	}
	return a.Name == b.Name && a.State == b.State && a.Pid == b.Pid && a.PidStart == b.PidStart &&
		a.Restarts == b.Restarts && a.OOMs == b.OOMs
}

// statusEvents tells what a report changes.
func statusEvents(row *store.AttemptRow, o *cluster.Observed) []cluster.Event {
	var before cluster.Observed
	if row.Observed != nil {
		before = *row.Observed
	}
	var out []cluster.Event
	add := func(kind, cause string) {
		e := cluster.Event{
			Type:    "task." + kind,
			Task:    o.Task,
			Attempt: o.Attempt,
			Node:    o.Node,
			Reason:  o.Reason,
			Message: cmp.Or(o.Message, cause),
		}
		if ref, ok := row.Ref(); ok {
			e.Cluster, e.Owner = ref.Cluster, &ref
		}
		out = append(out, e)
	}
	if o.Restarts > before.Restarts {
		add("restarted", fmt.Sprintf("it was restarted in place, for the %s time", ordinal(o.Restarts)))
	}
	if o.Reason == cluster.ReasonAddresses && before.Reason != cluster.ReasonAddresses {
		add("restarted", "it was restarted in place: services that it uses have other addresses")
	}
	// What stops a task is told by who decides that, and how it ended by its outcome.
	if o.State != before.State && o.State == cluster.StateRunning {
		add("running", "its containers run")
	}
	if o.State == cluster.StateRunning && o.Health != before.Health {
		switch o.Health {
		case cluster.HealthHealthy:
			add(string(o.Health), "its checks succeed, or it has run for its minimum healthy time")
		case cluster.HealthWarning, cluster.HealthFailing:
			add(string(o.Health), "its checks fail")
		case cluster.HealthUnknown:
		}
	}
	return out
}

// errLate is returned where a wait took longer than an agent will.
var errLate = errors.New("the agent did not call back in time")

// callBack is how long an agent may take to open a byte stream.
const callBack = 10 * time.Second

// ordinal is a number as a rank: 1st, 2nd, 11th.
func ordinal(n int) string {
	suffix := "th"
	if n/10%10 != 1 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.Itoa(n) + suffix
}
