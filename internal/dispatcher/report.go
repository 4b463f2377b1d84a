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
	"github.com/berthd/berth/internal/shorten"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/transport"
)

// maxWriteTries limits the tries of a refused write with newer tables. After them, the agent must repeat its report or
// registration.
const maxWriteTries = 4

// Report processes a report, whose content is durable when the reply is sent (P4.6). A repeated report gets a reply
// again and is written once.
func (d *Dispatcher) Report(ctx context.Context, r transport.Report) (transport.ReportReply, error) {
	s, err := d.sessions.find(r.Node, r.Session)
	if err != nil {
		return transport.ReportReply{}, err
	}
	if err := d.reach.unreachableError(); err != nil {
		return transport.ReportReply{}, err
	}
	var call *activeCall
	if len(r.Tasks) > 0 || r.Facts != nil { // otherwise the call waits for nothing
		call = s.pulse.keepAlive(r.Seq)
		defer call.end()
	}
	select {
	case s.reporting <- struct{}{}:
		defer func() { <-s.reporting }()
	case <-ctx.Done():
		return transport.ReportReply{}, ctx.Err()
	}
	if r.Seq < s.seq {
		return transport.ReportReply{}, fmt.Errorf("report %d of %s came late: %d was taken", r.Seq, r.Node, s.seq)
	}
	if r.Seq == s.seq && r.Seq != 0 {
		call.end()
		s.last.Heartbeat = cluster.Duration(s.pulse.record(r.Seq, s.pulse.usage.interval(d.sessions.count())))
		return s.last, nil
	}
	if r.Facts != nil {
		if err := checkFacts(r.Node, r.Facts); err != nil {
			return transport.ReportReply{}, err
		}
		if err := d.statuses.writeFacts(ctx, s, r.Facts); err != nil {
			return transport.ReportReply{}, err
		}
	}
	began := d.config.Clock()
	refused, err := d.statuses.writeStatuses(ctx, s, r.Tasks)
	if err != nil {
		return transport.ReportReply{}, err
	}
	if m := d.config.Metrics; m != nil {
		m.Reported(d.config.Clock()-began, len(r.Tasks)-len(refused), len(refused))
	}
	call.end()
	snap := d.config.Tables.Snapshot()
	s.pulse.usage.addReport(r.Stats, snap.RunningAttempts(r.Node))
	for i := range r.Tasks {
		if r.Tasks[i].State.Terminal() {
			s.pulse.usage.ended(r.Tasks[i].UUID)
		}
	}
	reply := transport.ReportReply{
		Refused:   refused,
		Heartbeat: cluster.Duration(s.pulse.record(r.Seq, s.pulse.usage.interval(d.sessions.count()))),
		Token:     tokenFor(snap, r.Node),
		Servers:   d.reach.unsentServers(s),
	}
	s.seq, s.last = r.Seq, reply
	return reply, nil
}

// checkFacts refuses invalid facts.
func checkFacts(node string, f *cluster.Facts) error {
	if err := f.Validate(); err != nil {
		return fmt.Errorf("%w: the facts of node %s: %w", transport.ErrRefused, node, err)
	}
	return nil
}

// statusWriter writes what agents report of their nodes and attempts. It decides which statuses are refused. Each write
// compares the revision of the session's record, so no report of a replaced session is written (P6.1). The caller holds
// the session's reporting, or the session is not active yet.
type statusWriter struct {
	config   *Config
	sessions *sessionTable
	commits  *commitQueue
}

// refreshRev updates the revision of the session's status record from the tables, once they hold the session's last
// write.
func (w *statusWriter) refreshRev(ctx context.Context, s *session) error {
	snap, err := w.config.Tables.WaitFor(ctx, s.lastWriteRev)
	if err != nil {
		return err
	}
	e, ok := snap.NodeStatus(s.node)
	if !ok || e.Value.Session != s.number {
		return w.sessions.replacedError(s.node)
	}
	s.statusRev = e.Modified
	return nil
}

// writeFacts writes the node's facts when they changed.
func (w *statusWriter) writeFacts(ctx context.Context, s *session, f *cluster.Facts) error {
	if err := w.refreshRev(ctx, s); err != nil {
		return err
	}
	e, ok := w.config.Tables.Snapshot().NodeStatus(s.node)
	if !ok || e.Value.Session != s.number {
		return w.sessions.replacedError(s.node)
	}
	status := *e.Value
	status.Facts = *f
	s.pulse.usage.setTotals(f)
	var u store.Unit
	u.Compare(e.Key, e.Modified)
	if err := u.Put(e.Key, &status); err != nil {
		return err
	}
	applied, at, err := w.commits.submit(ctx, []store.Unit{u})
	if err != nil {
		return err
	}
	s.lastWriteRev = max(s.lastWriteRev, at)
	if !applied[0] {
		return w.sessions.replacedError(s.node)
	}
	return w.refreshRev(ctx, s)
}

// writeStatuses writes the status records of a report and returns the refused attempts by UUID. After an error the
// result of some writes is unknown, and the agent sends the report again.
func (w *statusWriter) writeStatuses(ctx context.Context, s *session, tasks []cluster.Observed) (
	map[string]transport.Refused, error,
) {
	if len(tasks) == 0 {
		return nil, nil // a heartbeat writes nothing and waits for nothing
	}
	refused := map[string]transport.Refused{}
	for range maxWriteTries {
		snap, err := w.config.Tables.WaitFor(ctx, s.lastWriteRev)
		if err == nil && unknown(snap, tasks) {
			// An attempt that is not in the tables may belong to another node, if the tables lag. The call therefore
			// waits for the tables first.
			snap, err = w.config.Tables.Settled(ctx)
		}
		if err != nil {
			return nil, err
		}
		units := make([]store.Unit, 0, len(tasks))
		written := make([]int, 0, len(tasks))
		for i := range tasks {
			u, v, err := w.statusUnit(snap, s, &tasks[i])
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
		applied, at, err := w.commits.submit(ctx, units)
		if err != nil {
			return nil, fmt.Errorf("write the report: %w", err)
		}
		s.lastWriteRev = max(s.lastWriteRev, at)
		var again []cluster.Observed
		for i, ok := range applied {
			if !ok {
				again = append(again, tasks[written[i]])
			}
		}
		if tasks = again; len(tasks) == 0 {
			return refused, nil
		}
		// Another write came in between: a newer session, a stop, an outcome.
		if err := w.refreshRev(ctx, s); err != nil {
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

// unknown reports whether any of the attempts is absent from the tables.
func unknown(snap *store.Snapshot, tasks []cluster.Observed) bool {
	return slices.ContainsFunc(tasks, func(o cluster.Observed) bool {
		row, ok := snap.Attempt(o.Task, o.Attempt)
		return !o.Gone && (!ok || storedUUID(row) == "")
	})
}

// statusDecision is the decision about one reported attempt: it is written, refused (why), or known already.
type statusDecision struct {
	write bool
	why   *transport.Refused
}

// statusUnit returns the write of one attempt's status.
func (w *statusWriter) statusUnit(snap *store.Snapshot, s *session, o *cluster.Observed) (store.Unit, statusDecision,
	error,
) {
	if _, ok := o.Task.Parts(); !ok || o.Attempt < 1 || o.UUID == "" {
		return store.Unit{}, statusDecision{
			why: refusal(cluster.ReasonUnknownExit, fmt.Sprintf("%q is no attempt of a task", o.Task)),
		}, nil
	}
	short := *o
	short.Message, short.LogTail = shorten.End(o.Message, maxText), shorten.End(o.LogTail, maxText)
	o = &short
	row, ok := snap.Attempt(o.Task, o.Attempt)
	known := ok && (row.Desired != nil || row.Observed != nil || row.Outcome != nil)
	if !known {
		row = &store.AttemptRow{Task: o.Task, Number: o.Attempt, Node: s.node}
	}
	switch {
	case o.Gone && row.Desired == nil && row.Observed == nil,
		row.EndsByOutcome() && row.ObservedRev == 0 && storedUUID(row) == o.UUID:
		return store.Unit{}, statusDecision{}, nil // the records of a gone attempt were deleted
	case o.Gone && row.EndsByOutcome() && row.Observed != nil && row.Observed.UUID == o.UUID:
		return w.deleteStatus(s, row), statusDecision{write: true}, nil
	}
	barrier := w.barrier(snap, s, row, o)
	if why := refusalFor(row, s.node, o, barrier); why != nil {
		return store.Unit{}, statusDecision{why: why}, nil
	}
	if barrier {
		if why := w.heldReason(snap, s, row); why != "" {
			return store.Unit{}, statusDecision{
				why: &transport.Refused{Reason: cluster.ReasonRecovery, Message: why, Retry: true},
			}, nil
		}
	}
	if row.Observed != nil {
		// A barrier is committed again for each request: the first commit proves nothing about an outcome that the
		// tables do not hold yet (P4.3). The status of a gone attempt does not change any more.
		if row.Observed.Gone || !barrier && sameStatus(row.Observed, o) {
			return store.Unit{}, statusDecision{}, nil
		}
	}
	return w.writeStatus(snap, s, row, o)
}

// asksAtBarrier reports whether a status requests the start barrier (P4.3).
func asksAtBarrier(row *store.AttemptRow, o *cluster.Observed) bool {
	return o.State == cluster.StateStarting && row.Desired != nil && row.Desired.Batch()
}

// barrier reports whether a status requests to pass the start barrier. In a registration, a held attempt is written
// like any other status. The store then shows the attempt on the node, and the agent repeats its request by a report.
func (w *statusWriter) barrier(snap *store.Snapshot, s *session, row *store.AttemptRow, o *cluster.Observed) bool {
	return asksAtBarrier(row, o) && !w.config.Without.Off(clause.Barrier) &&
		(s.syncedRev != 0 || w.heldReason(snap, s, row) == "")
}

// refusalFor returns why a report is refused, or nil.
func refusalFor(row *store.AttemptRow, node string, o *cluster.Observed, barrier bool) *transport.Refused {
	switch {
	case storedUUID(row) != "" && storedUUID(row) != o.UUID || row.Node != "" && row.Node != node:
		return refusal(cluster.ReasonReplaced, "the attempt has another identity in the store")
	case row.Observed != nil && row.Observed.State.Terminal() && !o.State.Terminal():
		return refusal(cluster.ReasonBarrier, "the attempt has ended: its first reported end is kept")
	case o.State == cluster.StateStarting && row.Desired == nil:
		return refusal(cluster.ReasonBarrier, "the store does not know the task")
	case barrier && (row.Outcome != nil || row.Desired.Stop != nil):
		return refusal(cluster.ReasonBarrier, "the task was ended before its start")
	}
	return nil
}

// storedUUID returns the store's UUID of an attempt (P3.6), "" if the store has none.
func storedUUID(row *store.AttemptRow) string {
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

// writeStatus returns the write of a status. It compares the session (P6.1) and the replaced record. A start barrier
// also compares that the task is still desired and has no outcome (P4.3). The desired state is in the desired record
// or, before its projection, in the plan record. A barrier also compares the recovery record, so that it fails if the
// store went back since then (P1.7).
func (w *statusWriter) writeStatus(snap *store.Snapshot, s *session, row *store.AttemptRow,
	o *cluster.Observed,
) (store.Unit, statusDecision, error) {
	prefix, barrier := w.config.Tables.Prefix(), w.barrier(snap, s, row, o)
	key := prefix.Observed(s.node, o.Task)
	u := store.Unit{Group: store.Group{Compares: make([]store.Compare, 0, 6), Ops: make([]store.Op, 0, 1)}}
	switch {
	case barrier:
		if row.DesiredRev == 0 && !w.config.Without.Off(clause.Projection) {
			u.Compare(prefix.Plan(row.Plan), row.PlanRev) // the plan record is the desired record so far
		}
		u.Compare(prefix.Desired(s.node, o.Task), row.DesiredRev)
		u.Compare(prefix.Outcome(o.Task, o.Attempt), 0)
		w.compareRecovery(&u, snap, s.node)
	case row.ObservedRev == 0:
		compareOrigin(&u, prefix, row)
	}
	u.Compare(prefix.NodeStatus(s.node), s.statusRev)
	rev := row.ObservedRev
	if foreign, ok := snap.ForeignRow(s.node, o.Task); ok && rev == 0 {
		rev = foreign.ObservedRev // an unreadable record is overwritten
	}
	if rev == 0 {
		rev = s.staleStatusRev(snap, o)
	}
	u.Compare(key, rev)
	record := *o
	record.Node, record.Session = s.node, s.number
	for _, e := range statusEvents(row, &record) {
		u.Event(e)
	}
	return u, statusDecision{write: true}, u.Put(key, &record)
}

// deleteStatus returns the deletion of the status of an attempt that has no desired record, whose outcome is durable
// and of which nothing is left on the node.
func (w *statusWriter) deleteStatus(s *session, row *store.AttemptRow) store.Unit {
	prefix := w.config.Tables.Prefix()
	key := prefix.Observed(s.node, row.Task)
	var u store.Unit
	u.Compare(prefix.NodeStatus(s.node), s.statusRev)
	u.Compare(key, row.ObservedRev)
	u.Compare(prefix.Desired(s.node, row.Task), 0)
	u.Compare(prefix.Outcome(row.Task, row.Number), row.OutcomeRev)
	u.Delete(key)
	return u
}

// staleStatusRev returns the revision of a status from an earlier state of the store, if the key of o's status has one.
// Such a status belongs to another attempt of the task, which is not in the node's full report. It returns 0 outside of
// a registration.
func (s *session) staleStatusRev(snap *store.Snapshot, o *cluster.Observed) uint64 {
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

// compareOrigin adds to the first status of an attempt that its desired record exists. Before its projection, that is
// the plan record, and the attempt must have no outcome: its status may have been deleted since. A late write that
// seemed lost must not bring back an attempt whose records were deleted.
func compareOrigin(u *store.Unit, prefix store.Prefix, row *store.AttemptRow) {
	switch {
	case row.DesiredRev != 0:
		u.Compare(prefix.Desired(row.Node, row.Task), store.AnyModified)
	case row.PlanRev != 0:
		u.Compare(prefix.Plan(row.Plan), row.PlanRev)
		u.Compare(prefix.Outcome(row.Task, row.Number), row.OutcomeRev)
	}
}

// maxText bounds a message or a tail of a log in a status record, in bytes.
const maxText = 16 << 10

// sameStatus reports whether two reports are equal, except for their session and sequence.
func sameStatus(a, b *cluster.Observed) bool {
	if a.UUID != b.UUID || a.State != b.State || a.Health != b.Health || a.Reason != b.Reason ||
		a.Message != b.Message ||
		a.Restarts != b.Restarts || a.Gone != b.Gone || a.LogTail != b.LogTail || a.Ask != b.Ask ||
		!a.Started.Equal(b.Started) || !a.Finished.Equal(b.Finished) || !a.NextStart.Equal(b.NextStart) ||
		len(a.Containers) != len(b.Containers) {
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

// statusEvents returns the events of a report's changes.
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
	if was, is := pulledImage(&before), pulledImage(o); was != is {
		if was != "" && (o.State == cluster.StatePreparing || o.State == cluster.StateStarting ||
			o.State == cluster.StateRunning) {
			add("pulled", "")
			out[len(out)-1].Message = "pulled " + was
		}
		if is != "" {
			add("pulling", "")
			out[len(out)-1].Message = "pulling " + is
		}
	}
	// The component that decides a stop publishes its event, and the outcome's event says how the task ended.
	if o.State != before.State && o.State == cluster.StateRunning {
		add("running", "its containers run")
	}
	if o.State == cluster.StateRunning && o.Health != before.Health {
		switch o.Health {
		case cluster.HealthHealthy:
			add(string(o.Health), "its checks pass, if it has any")
		case cluster.HealthWarning, cluster.HealthFailing:
			add(string(o.Health), "its checks fail")
		case cluster.HealthUnknown:
		}
	}
	return out
}

// pulledImage returns the image that an attempt pulls at the moment, as its message tells it: "container app: pulling
// NAME: PROGRESS" (cluster.MessagePulling). It is "" if the attempt pulls none.
func pulledImage(o *cluster.Observed) string {
	_, text, found := strings.Cut(o.Message, ": "+cluster.MessagePulling)
	if !found || o.State != cluster.StatePreparing {
		return ""
	}
	name, _, _ := strings.Cut(text, ": ")
	return name
}

// errLate reports an agent that did not open a stream in time.
var errLate = errors.New("the agent did not call back in time")

// callBackTimeout bounds the time that an agent may take to open a byte stream.
const callBackTimeout = 10 * time.Second

// ordinal formats a number as a rank: 1st, 2nd, 11th.
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
