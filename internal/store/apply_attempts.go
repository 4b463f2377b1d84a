package store

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// observed applies status/<node>/<task>.
func (s *state) observed(rest string, c *Change) {
	node, task, _ := strings.Cut(rest, "/")
	if c.Deleted {
		if n, ok := s.observedAt[rest]; ok {
			delete(s.observedAt, rest)
			s.unsetObserved(rest, n)
		}
		return
	}
	v, err := decodeSealed[cluster.Observed](c.Value)
	if err != nil || v.Attempt < 1 || string(v.Task) != task {
		// A foreign record replaced the agent's. The last status that was read stays, under the revision that the next
		// write has to compare. Without such a status the row is one of foreign records.
		s.faults(c.Key, err)
		if s.ignoreForeign {
			s.observed(rest, &Change{Record: Record{Key: c.Key}, Deleted: true})
			return
		}
		n, had := s.observedAt[rest]
		if !had {
			n = s.foreignNumber(node, cluster.TaskID(task))
			s.observedAt[rest] = n
		}
		s.markObscured(rest, n, c.Modified)
		return
	}
	if n, ok := s.observedAt[rest]; ok && n != v.Attempt {
		s.unsetObserved(rest, n)
	}
	if s.belongsToAnother(v) {
		s.detachObserved(rest, v.Attempt, c.Modified)
		return
	}
	s.observedAt[rest] = v.Attempt
	s.updateRow(v.Task, v.Attempt, func(r *AttemptRow) {
		r.Observed, r.ObservedRev, r.ForeignStatus = v, c.Modified, false
		if r.Node == "" {
			r.Node = node
		}
	})
}

// unsetObserved removes the status record from the row of an attempt.
func (s *state) unsetObserved(rest string, number int) {
	_, task, _ := strings.Cut(rest, "/")
	s.updateRow(cluster.TaskID(task), number, func(r *AttemptRow) {
		r.Observed, r.ObservedRev, r.ForeignStatus = nil, 0, false
	})
}

// markObscured marks the row of an attempt whose status record is foreign.
func (s *state) markObscured(rest string, number int, revision uint64) {
	node, task, _ := strings.Cut(rest, "/")
	s.updateRow(cluster.TaskID(task), number, func(r *AttemptRow) {
		r.ForeignStatus = true
		if r.ObservedRev = revision; r.Node == "" {
			r.Node = node
		}
	})
}

// belongsToAnother reports whether the number of a reported attempt was given to another attempt on another node. Such
// a conflict occurs after another tool restored the store: the leader places a task again before the node that runs it
// has reported (P1.7).
func (s *state) belongsToAnother(o *cluster.Observed) bool {
	rows, _ := s.attempts.Get(o.Task)
	at, ok := findNumber(rows, o.Attempt)
	if !ok {
		return false
	}
	switch r := rows[at]; {
	case r.Desired != nil:
		return r.Desired.UUID != o.UUID && r.Desired.Node != o.Node
	case r.Outcome != nil:
		return r.Outcome.UUID != "" && r.Outcome.UUID != o.UUID && r.Outcome.Node != o.Node
	}
	return false
}

// detachObserved removes from a row the status of another attempt with the same number. The status then counts as a
// foreign record. The leader has the node report again, and the dispatcher refuses its reports of the attempt. The
// agent ends the attempt, and the leader deletes the record.
func (s *state) detachObserved(rest string, number int, revision uint64) {
	if n, ok := s.observedAt[rest]; ok && n == number {
		s.unsetObserved(rest, number)
	}
	node, task, _ := strings.Cut(rest, "/")
	foreign := s.foreignNumber(node, cluster.TaskID(task))
	s.observedAt[rest] = foreign
	s.markObscured(rest, foreign, revision)
}

// detachForeignObserved detaches the status in the row of a placed attempt if it belongs to another attempt.
func (s *state) detachForeignObserved(task cluster.TaskID, number int) {
	rows, _ := s.attempts.Get(task)
	if at, ok := findNumber(rows, number); ok {
		if r := rows[at]; r.Observed != nil && s.belongsToAnother(r.Observed) {
			s.detachObserved(r.Observed.Node+"/"+string(task), number, r.ObservedRev)
		}
	}
}

// desired applies state/<node>/<task>.
func (s *state) desired(rest string, c *Change) {
	node, task, _ := strings.Cut(rest, "/")
	id := cluster.TaskID(task)
	old, had := s.desiredAt[rest]
	unset := func(r *AttemptRow) { r.DesiredRev, r.Foreign = 0, nil }
	if c.Deleted {
		if had {
			delete(s.desiredAt, rest)
			s.updateRow(id, old, unset)
		}
		return
	}
	v, err := decodeSealed[cluster.Desired](c.Value)
	if err != nil || v.Task != id || v.Node != node || v.Attempt < 1 || v.UUID == "" {
		s.markUnreadable(rest, c, err)
		return
	}
	if had && old != v.Attempt {
		s.updateRow(id, old, unset)
	}
	s.desiredAt[rest] = v.Attempt
	s.updateRow(id, v.Attempt, func(r *AttemptRow) {
		r.Desired, r.DesiredRev, r.Foreign, r.Node = v, c.Modified, nil, node
	})
	s.detachForeignObserved(id, v.Attempt)
}

// markUnreadable pins a task to a node because the record under its desired key is not a desired record of Berth
// (P3.5). The last desired record that was read stays in the row, and the leader writes it back (P3.9).
func (s *state) markUnreadable(rest string, c *Change, err error) {
	node, task, _ := strings.Cut(rest, "/")
	id := cluster.TaskID(task)
	foreign := &ForeignRecord{Fault: err}
	if _, newer := errors.AsType[*NewerError](err); !newer {
		foreign.New = c.Created == c.Modified || s.continuesNew(rest, c.Created)
		foreign.Command, foreign.Fault = cluster.ReadTaskCommand(node, id, c.Value)
		foreign.created = c.Created
	}
	if foreign.Fault != nil { // else it may be a command
		s.faults(c.Key, cmp.Or(err, foreign.Fault))
	}
	if s.ignoreForeign {
		s.desired(rest, &Change{Record: Record{Key: c.Key}, Deleted: true})
		return
	}
	n, had := s.desiredAt[rest]
	if !had {
		n = s.foreignNumber(node, id)
		s.desiredAt[rest] = n
	}
	s.updateRow(id, n, func(r *AttemptRow) { r.Foreign, r.DesiredRev, r.Node = foreign, c.Modified, node })
}

// continuesNew reports whether the key of a desired record holds a foreign record that took no record's place, from its
// creation on.
func (s *state) continuesNew(rest string, created uint64) bool {
	n, had := s.desiredAt[rest]
	if !had || n > 0 {
		return false
	}
	_, task, _ := strings.Cut(rest, "/")
	rows, _ := s.attempts.Get(cluster.TaskID(task))
	at, ok := findNumber(rows, n)
	if !ok {
		return false
	}
	f := rows[at].Foreign
	return f != nil && f.New && f.created == created
}

// foreignNumber returns the number of the row of a task's foreign records on a node: 0, or below if other nodes have
// foreign records of the task.
func (s *state) foreignNumber(node string, task cluster.TaskID) int {
	free := 0
	rows, _ := s.attempts.Get(task)
	for _, r := range slices.Backward(rows) {
		switch {
		case !r.IsForeign():
		case r.Node == node:
			return r.Number
		case r.Number == free:
			free--
		}
	}
	return free
}

// outcome applies attempt/<task>/<n>.
func (s *state) outcome(rest string, c *Change) {
	task, number, _ := strings.Cut(rest, "/")
	n, err := strconv.Atoi(number)
	if err != nil {
		return
	}
	if c.Deleted {
		s.updateRow(cluster.TaskID(task), n, func(r *AttemptRow) { r.Outcome, r.OutcomeRev = nil, 0 })
		return
	}
	v, err := Decode[cluster.Outcome](c.Value)
	if err != nil {
		s.faults(c.Key, err)
		return
	}
	s.updateRow(cluster.TaskID(task), n, func(r *AttemptRow) {
		r.Outcome, r.OutcomeRev = v, c.Modified
		if r.Node == "" || r.Desired == nil && r.DesiredRev == 0 && v.Node != "" {
			r.Node = v.Node // not that of a status which is another attempt's
		}
	})
	s.detachForeignObserved(cluster.TaskID(task), n)
}

// plan applies plan/<seq>. Each placement in it serves as a desired record until the record of its own is written
// (P3.3).
func (s *state) plan(rest string, c *Change) {
	seq, err := strconv.ParseUint(rest, 10, 64)
	if err != nil {
		return
	}
	old, had := s.plans.Get(seq)
	if had {
		s.eachPlaced(old.Value, func(o *cluster.PlanOwner, t *cluster.Placed) {
			s.updateRow(o.TaskID(t.Index), t.Attempt, func(r *AttemptRow) {
				r.Plan, r.PlanRev, r.planned = 0, 0, nil
			})
		})
	}
	s.delta.topics |= TopicPlans
	if c.Deleted {
		s.plans.Delete(seq)
		return
	}
	v, err := Decode[cluster.PlanRecord](c.Value)
	if err != nil || v.Seq != seq {
		s.faults(c.Key, err)
		return
	}
	s.plans.Set(seq, Entry[cluster.PlanRecord]{Value: v, Key: c.Key, Created: c.Created, Modified: c.Modified})
	s.eachPlaced(v, func(o *cluster.PlanOwner, t *cluster.Placed) {
		d := v.Desired(o, t)
		s.updateRow(d.Task, d.Attempt, func(r *AttemptRow) {
			r.Plan, r.PlanRev, r.planned = seq, c.Modified, d
			if r.Node == "" || r.DesiredRev == 0 {
				r.Node = d.Node
			}
		})
		s.detachForeignObserved(d.Task, d.Attempt)
	})
}

func (s *state) eachPlaced(p *cluster.PlanRecord, do func(*cluster.PlanOwner, *cluster.Placed)) {
	for i := range p.Owners {
		o := &p.Owners[i]
		for j := range o.Tasks {
			do(o, &o.Tasks[j])
		}
	}
}

// singleRow allocates a row together with a list of one row, since most tasks have one attempt.
type singleRow struct {
	AttemptRow

	list [1]*AttemptRow
}

// updateRow replaces the row of an attempt by a changed copy, and deletes it once no record is left.
func (s *state) updateRow(task cluster.TaskID, number int, change func(*AttemptRow)) {
	rows, _ := s.attempts.Get(task)
	at, had := findNumber(rows, number)
	created := new(singleRow)
	r, node := &created.AttemptRow, ""
	if had {
		created.AttemptRow = *rows[at]
		node = r.Node
	} else {
		r.Task, r.Number = task, number
	}
	change(r)
	r.setUnprojected()
	if node != "" && node != r.Node {
		s.delta.addAttempt(node, task, number)
	}
	s.delta.addAttempt(r.Node, task, number)
	named := r
	if had && r.Desired == nil && r.Outcome == nil {
		named = rows[at] // only the former row may still name the owner beside the id
	}
	if o, ok := named.Ref(); ok {
		s.delta.addOwner(o)
	}
	gone := r.empty()
	switch {
	case gone && !had:
		return
	case gone:
		rows = slices.Delete(slices.Clone(rows), at, at+1)
		s.rows--
	case had && len(rows) == 1, len(rows) == 0:
		created.list[0] = r
		rows = created.list[:]
	case had:
		rows = slices.Clone(rows)
		rows[at] = r
	default:
		rows = slices.Insert(slices.Clone(rows), at, r)
	}
	if !had {
		s.rows++
	}
	if len(rows) == 0 {
		s.attempts.Delete(task)
	} else {
		s.attempts.Set(task, rows)
	}
	if on := func(r *AttemptRow) bool { return r.Node == node }; node != "" && !slices.ContainsFunc(rows, on) {
		s.byNode.Delete(node + "/" + string(task))
	}
	if r.Node != "" && r.Node != node && !gone {
		s.byNode.Set(r.Node+"/"+string(task), struct{}{})
	}
}
