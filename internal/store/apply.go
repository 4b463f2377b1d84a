package store

import (
	"slices"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// state is the tables while they are changed: the snapshot in the making and what only the writer needs.
type state struct {
	*Snapshot
	// known holds the revision of every key seen, so that a resync finds out what changed and what is gone.
	known map[string]uint64
	// desiredAt and observedAt hold the attempt number of the record under a key, by "<node>/<task>".
	desiredAt, observedAt map[string]int
	delta                 *delta
	faults                func(key string, err error)
	// unpin takes foreign records of tasks for no records at all (clause.Foreign is off).
	unpin bool
}

func newState(faults func(string, error)) *state {
	return &state{
		Snapshot:   newSnapshot(),
		known:      map[string]uint64{},
		desiredAt:  map[string]int{},
		observedAt: map[string]int{},
		delta:      newDelta(),
		faults:     faults,
	}
}

// apply brings the tables to what a batch of the watch says. Keys come without the store's prefix.
func (s *state) apply(b Batch, prefix string) {
	// A resync is compared with what is known, so that followers are told of what changed and no more; but where the
	// revisions went back, an equal one says nothing.
	back := b.Revision < s.revision
	if b.Resync {
		s.delta.resync = back
		s.dropMissing(b.Changes, prefix)
	}
	for i := range b.Changes {
		c := &b.Changes[i]
		if !c.Deleted && !back && s.known[c.Key] == c.Modified {
			continue
		}
		if c.Deleted {
			delete(s.known, c.Key)
		} else {
			s.known[c.Key] = c.Modified
		}
		s.change(strings.TrimPrefix(c.Key, prefix), c)
	}
	s.revision = b.Revision
}

// dropMissing deletes what a resync does not hold any more.
func (s *state) dropMissing(present []Change, prefix string) {
	keep := make(map[string]bool, len(present))
	for i := range present {
		keep[present[i].Key] = true
	}
	for key := range s.known { // order-free: each key is dropped by itself
		if !keep[key] {
			delete(s.known, key)
			s.change(strings.TrimPrefix(key, prefix), &Change{Record: Record{Key: key}, Deleted: true})
		}
	}
}

// change applies one record. An unknown key is left alone: the layout may grow.
func (s *state) change(key string, c *Change) {
	noun, rest, _ := strings.Cut(key, "/")
	switch noun {
	case "state", "attempt", "plan", "event":
	case "status":
		s.delta.wish = s.delta.wish || !strings.Contains(rest, "/") // a node registered
	default:
		s.delta.wish = true
	}
	switch noun {
	case "cluster":
		put(s, s.clusters, rest, c)
		s.delta.topics |= TopicClusters
	case "service":
		put(s, s.services, rest, c)
		s.touchOwner(cluster.KindService, rest)
	case "job":
		put(s, s.jobs, rest, c)
		s.touchOwner(cluster.KindJob, rest)
	case "task":
		s.definition(rest, c)
	case "host":
		put(s, s.hosts, rest, c)
		s.delta.ofNode(rest)
	case "node":
		put(s, s.nodes, rest, c)
		s.delta.ofNode(rest)
	case "status":
		s.status(rest, c)
	case "state":
		s.desired(rest, c)
	case "attempt":
		s.outcome(rest, c)
	case "plan":
		s.plan(rest, c)
	case "leader":
		put(s, s.leaders, rest, c)
		s.delta.topics |= TopicLeader
	case "server":
		put(s, s.servers, rest, c)
		s.delta.topics |= TopicServers
	case "token":
		put(s, s.tokens, rest, c)
	case "domain":
		put(s, s.domains, rest, c)
		s.delta.topics |= TopicDomain
	case "recovery":
		put(s, s.recoveries, rest, c)
		s.delta.topics |= TopicDomain
	case "seal":
		put(s, s.seals, rest, c)
	case "rollout":
		put(s, s.rollouts, rest, c)
		s.touchOwner(cluster.KindService, rest)
	case "scale":
		put(s, s.scales, rest, c)
		s.touchOwner(cluster.KindService, rest)
	case "cron":
		put(s, s.crons, rest, c)
		s.delta.topics |= TopicCrons
	case "fired":
		put(s, s.fired, rest, c)
		s.delta.topics |= TopicCrons
	case "rebalance":
		put(s, s.rebalances, rest, c)
	case "reservation":
		put(s, s.reserved, rest, c)
		s.delta.topics |= TopicReservations
	case "secret":
		put(s, s.secrets, rest, c)
		s.delta.topics |= TopicSecrets
	case "secretkey":
		put(s, s.secretKeys, rest, c)
		s.delta.topics |= TopicSecrets
	case "masterkey":
		put(s, s.masterKeys, rest, c)
		s.delta.topics |= TopicSecrets
	case "event":
		s.event(rest, c)
	}
}

func (s *state) touchOwner(kind cluster.Kind, rest string) {
	inCluster, name, ok := strings.Cut(rest, "/")
	if ok {
		s.delta.ofOwner(cluster.OwnerRef{Kind: kind, Cluster: inCluster, Name: name})
	}
}

// put applies a change to a plain table. What cannot be read leaves the table as it was.
func put[T any](s *state, t *table[T], name string, c *Change) bool {
	if c.Deleted {
		t.Delete(name)
		return true
	}
	v, err := Decode[T](c.Value)
	if err != nil {
		s.faults(c.Key, err)
		return false
	}
	t.Set(name, Entry[T]{Value: v, Key: c.Key, Created: c.Created, Modified: c.Modified})
	return true
}

func (s *state) definition(rest string, c *Change) {
	name, version, versioned := strings.Cut(rest, "/")
	if !versioned {
		put(s, s.newest, name, c)
		return
	}
	n, err := strconv.Atoi(version)
	if err == nil {
		ref := cluster.Ref{Name: name, Version: n}
		s.delta.ofDefinition(ref)
		put(s, s.definitions, definitionKey(ref), c)
	}
}

// event applies event/<id>.
func (s *state) event(id string, c *Change) {
	s.delta.topics |= TopicEvents
	if c.Deleted {
		if order, ok := s.eventOrder.Delete(id); ok {
			s.events.Delete(order)
		}
		return
	}
	v, err := Decode[cluster.EventBatch](c.Value)
	if err != nil || v.ID != id {
		s.faults(c.Key, err)
		return
	}
	order := eventOrder(c.Created, id)
	s.eventOrder.Set(id, order)
	s.events.Set(order, Entry[cluster.EventBatch]{Value: v, Key: c.Key, Created: c.Created, Modified: c.Modified})
}

// status applies status/<node> and status/<node>/<task>.
func (s *state) status(rest string, c *Change) {
	node, task, isTask := strings.Cut(rest, "/")
	if !isTask {
		put(s, s.statuses, node, c)
		s.delta.ofNode(node)
		return
	}
	if c.Deleted {
		if n, ok := s.observedAt[rest]; ok {
			delete(s.observedAt, rest)
			s.unsetObserved(rest, n)
		}
		return
	}
	v, err := sealed[cluster.Observed](s, node, c)
	if err != nil || v.Attempt < 1 || string(v.Task) != task {
		// Another's record stands where the agent's should. What was known before stays, under the revision that
		// the next write has to compare; of an attempt 0 nothing is known.
		s.faults(c.Key, err)
		if s.unpin {
			s.status(rest, &Change{Record: Record{Key: c.Key}, Deleted: true})
			return
		}
		n := s.observedAt[rest]
		s.observedAt[rest] = n
		s.obscure(rest, n, c.Modified)
		return
	}
	if n, ok := s.observedAt[rest]; ok && n != v.Attempt {
		s.unsetObserved(rest, n)
	}
	if s.placedElsewhere(v) {
		s.setApart(rest, v.Attempt, c.Modified)
		return
	}
	s.observedAt[rest] = v.Attempt
	s.row(v.Task, v.Attempt, func(r *AttemptRow) {
		r.Observed, r.ObservedRev, r.Obscured = v, c.Modified, false
		if r.Node == "" {
			r.Node = node
		}
	})
}

// unsetObserved removes the status record from the row of an attempt.
func (s *state) unsetObserved(rest string, number int) {
	_, task, _ := strings.Cut(rest, "/")
	s.row(cluster.TaskID(task), number, func(r *AttemptRow) { r.Observed, r.ObservedRev, r.Obscured = nil, 0, false })
}

// obscure marks the row of an attempt as one whose status record tells nothing of it.
func (s *state) obscure(rest string, number int, revision uint64) {
	node, task, _ := strings.Cut(rest, "/")
	s.row(cluster.TaskID(task), number, func(r *AttemptRow) {
		r.Obscured = true
		if r.ObservedRev = revision; r.Node == "" {
			r.Node = node
		}
	})
}

// placedElsewhere reports whether the number of a reported attempt was given to another attempt, on another node. That
// happens where a store went back behind Berth's back: the leader places a task again before the node reports that has
// it (P1.7).
func (s *state) placedElsewhere(o *cluster.Observed) bool {
	rows, _ := s.attempts.Get(o.Task)
	at, ok := numbered(rows, o.Attempt)
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

// setApart takes the status of an attempt whose number belongs to another one out of that one's row. It counts as a
// record that no agent wrote: the leader has the node report anew, the dispatcher refuses what it reports of that
// attempt, the agent ends it, and the leader deletes the record.
func (s *state) setApart(rest string, number int, revision uint64) {
	if n, ok := s.observedAt[rest]; ok && n == number {
		s.unsetObserved(rest, number)
	}
	s.observedAt[rest] = 0
	s.obscure(rest, 0, revision)
}

// claim takes a status that is another attempt's out of the row of an attempt that is placed.
func (s *state) claim(task cluster.TaskID, number int) {
	rows, _ := s.attempts.Get(task)
	if at, ok := numbered(rows, number); ok {
		if r := rows[at]; r.Observed != nil && s.placedElsewhere(r.Observed) {
			s.setApart(r.Observed.Node+"/"+string(task), number, r.ObservedRev)
		}
	}
}

// desired applies state/<node>/<task>. The mark state/<task> says nothing that this record does not.
func (s *state) desired(rest string, c *Change) {
	node, task, isTask := strings.Cut(rest, "/")
	if !isTask {
		return
	}
	id := cluster.TaskID(task)
	old, had := s.desiredAt[rest]
	unset := func(r *AttemptRow) { r.Desired, r.DesiredRev, r.Unreadable = r.planned, 0, false }
	if c.Deleted {
		if had {
			delete(s.desiredAt, rest)
			s.row(id, old, unset)
		}
		return
	}
	v, err := sealed[cluster.Desired](s, node, c)
	if err != nil || v.Task != id || v.Node != node || v.Attempt < 1 || v.UUID == "" {
		s.unreadable(rest, c, err)
		return
	}
	if had && old != v.Attempt {
		s.row(id, old, unset)
	}
	s.desiredAt[rest] = v.Attempt
	s.row(id, v.Attempt, func(r *AttemptRow) {
		r.Desired, r.DesiredRev, r.Unreadable, r.Node = v, c.Modified, false, node
	})
	s.claim(id, v.Attempt)
}

// unreadable pins a task to the node under whose key a record stands that is no desired record of ours
// (P3.5). What the tables knew before of the attempt stays: from it the leader writes the record back (P3.9).
func (s *state) unreadable(rest string, c *Change, err error) {
	s.faults(c.Key, err)
	if s.unpin {
		s.desired(rest, &Change{Record: Record{Key: c.Key}, Deleted: true})
		return
	}
	node, task, _ := strings.Cut(rest, "/")
	n, had := s.desiredAt[rest]
	if !had {
		s.desiredAt[rest] = 0
	}
	s.row(cluster.TaskID(task), n, func(r *AttemptRow) {
		r.Unreadable, r.DesiredRev, r.Node = true, c.Modified, node
	})
}

// outcome applies attempt/<task>/<n>.
func (s *state) outcome(rest string, c *Change) {
	task, number, _ := strings.Cut(rest, "/")
	n, err := strconv.Atoi(number)
	if err != nil {
		return
	}
	if c.Deleted {
		s.row(cluster.TaskID(task), n, func(r *AttemptRow) { r.Outcome, r.OutcomeRev = nil, 0 })
		return
	}
	v, err := Decode[cluster.Outcome](c.Value)
	if err != nil {
		s.faults(c.Key, err)
		return
	}
	s.row(cluster.TaskID(task), n, func(r *AttemptRow) {
		r.Outcome, r.OutcomeRev = v, c.Modified
		if r.Node == "" {
			r.Node = v.Node
		}
	})
}

// plan applies plan/<seq>: each placement in it is a desired record until its own is written (P3.3).
func (s *state) plan(rest string, c *Change) {
	seq, err := strconv.ParseUint(rest, 10, 64)
	if err != nil {
		return
	}
	old, had := s.plans.Get(seq)
	if had {
		s.eachPlaced(old.Value, func(o *cluster.PlanOwner, t *cluster.Placed) {
			s.row(o.TaskID(t.Index), t.Attempt, func(r *AttemptRow) {
				if r.Desired == r.planned {
					r.Desired = nil
				}
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
		s.row(d.Task, d.Attempt, func(r *AttemptRow) {
			if r.DesiredRev == 0 {
				r.Desired = d
			}
			r.Plan, r.PlanRev, r.planned = seq, c.Modified, d
			if r.Node == "" || r.DesiredRev == 0 {
				r.Node = d.Node
			}
		})
		s.claim(d.Task, d.Attempt)
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

// lone is a row with the room for the list of a task that has no other, which is so as a rule.
type lone struct {
	AttemptRow

	list [1]*AttemptRow
}

// row replaces the row of an attempt by a changed copy, and deletes it once no record is left.
func (s *state) row(task cluster.TaskID, number int, change func(*AttemptRow)) {
	rows, _ := s.attempts.Get(task)
	at, had := numbered(rows, number)
	made := new(lone)
	r, node := &made.AttemptRow, ""
	if had {
		made.AttemptRow = *rows[at]
		node = r.Node
	} else {
		r.Task, r.Number = task, number
	}
	change(r)
	if node != "" && node != r.Node {
		s.delta.ofAttempt(node, task, number)
	}
	s.delta.ofAttempt(r.Node, task, number)
	named := r
	if had && r.Desired == nil && r.Outcome == nil {
		named = rows[at] // it may name the owner where only the id does now
	}
	if o, ok := named.Ref(); ok {
		s.delta.ofOwner(o)
	}
	gone := r.empty()
	switch {
	case gone && !had:
		return
	case gone:
		rows = slices.Delete(slices.Clone(rows), at, at+1)
		s.rows--
	case had && len(rows) == 1, len(rows) == 0:
		made.list[0] = r
		rows = made.list[:]
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
