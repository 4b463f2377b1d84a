package store

import (
	"iter"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// Entry is a record of the tables with its revisions. Value is shared by all
// snapshots: nobody may change it.
type Entry[T any] struct {
	Value             *T
	Key               string
	Created, Modified uint64
}

// AttemptRow joins all records of one attempt of a task. It is shared by all snapshots: nobody may change it. A row of
// attempt 0 represents a foreign record of a task without other records. The foreign record is under the key of a
// desired record (Unreadable) or of a status (ObservedRev without Observed).
type AttemptRow struct {
	Task   cluster.TaskID
	Number int
	Node   string
	// Desired is the projected record. With DesiredRev 0 it is made from the plan record (P3.4).
	cluster.Attempt
	// Plan and PlanRev are the number and the revision of the plan record, 0 once the plan record is deleted.
	Plan, PlanRev uint64
	OutcomeRev    uint64
	// Unreadable says that the record under the desired key cannot be decoded or is foreign. The task is pinned to the
	// node (P3.5), and DesiredRev is the revision of the unreadable record.
	Unreadable bool
	// ForeignStatus says that no agent wrote the record under the status key. Observed is then the last status that the
	// tables could read, and ObservedRev the revision of the foreign record.
	ForeignStatus bool

	planned *cluster.Desired // made from the plan record; nil once the plan record is deleted
}

// Ref returns the owner of the attempt, from its records or else from its id. It returns false for an id that Berth did
// not make.
func (r *AttemptRow) Ref() (cluster.OwnerRef, bool) {
	switch {
	case r.Desired != nil:
		return r.Desired.Owner, true
	case r.Outcome != nil:
		return r.Outcome.Owner, true
	}
	p, ok := r.Task.Parts()
	if !ok {
		return cluster.OwnerRef{}, false
	}
	kind := cluster.KindService
	if p.Step != "" {
		kind = cluster.KindJob
	}
	return cluster.OwnerRef{Kind: kind, Cluster: p.Cluster, Name: p.Owner}, true
}

// Live reports whether the attempt has records but no outcome.
func (r *AttemptRow) Live() bool { return r.Outcome == nil }

// Standing reports whether a state or status record of the attempt stands on its node (P3.6).
func (r *AttemptRow) Standing() bool {
	return r.DesiredRev != 0 || r.ObservedRev != 0 || r.PlanRev != 0 && r.Outcome == nil
}

func (r *AttemptRow) empty() bool {
	return r.PlanRev == 0 && r.DesiredRev == 0 && r.ObservedRev == 0 && r.OutcomeRev == 0
}

type table[T any] = tree[string, Entry[T]]

// Snapshot is the state of a domain at one revision. It never changes; reading it takes no lock and disturbs nobody.
// All sequences are ordered by name.
type Snapshot struct {
	revision    uint64
	clusters    *table[cluster.Cluster]
	newest      *table[Newest]
	definitions *table[cluster.TaskDefinition]
	services    *table[cluster.Service]
	jobs        *table[cluster.Job]
	hosts       *table[cluster.Host]
	nodes       *table[cluster.Node]
	statuses    *table[cluster.NodeStatus]
	leaders     *table[cluster.Leader]
	servers     *table[cluster.Server]
	tokens      *table[cluster.AccessToken]
	domains     *table[cluster.DomainSettings]
	recoveries  *table[cluster.Recovery]
	seals       *table[cluster.Seals]
	rollouts    *table[cluster.Rollout]
	scales      *table[cluster.Scale]
	crons       *table[cluster.Cron]
	fired       *table[cluster.CronStatus]
	rebalances  *table[cluster.Rebalancing]
	reserved    *table[cluster.Reservation]
	secrets     *table[cluster.Secret]
	secretKeys  *table[cluster.SecretKey]
	masterKeys  *table[cluster.MasterKey]
	plans       *tree[uint64, Entry[cluster.PlanRecord]]
	events      *table[cluster.EventBatch]           // by revision of creation and id
	eventOrder  *tree[string, string]                // their keys, by id
	attempts    *tree[cluster.TaskID, []*AttemptRow] // a task's attempts, oldest first
	byNode      *tree[string, struct{}]              // "<node>/<task>" for each node with attempts of a task
	rows        int                                  // the number of attempts
}

// newSnapshot returns an empty snapshot.
func newSnapshot() *Snapshot { return new(Snapshot).derive(asNew) }

// publish returns an immutable snapshot that shares its data with s; s may be changed further.
func (s *Snapshot) publish() *Snapshot { return s.derive(asPublished) }

// fork returns a mutable copy of an immutable snapshot. The copy shares its data with s until it is changed.
func (s *Snapshot) fork() *Snapshot { return s.derive(asFork) }

// derive returns a snapshot of the same revision whose tables follow from those of s.
func (s *Snapshot) derive(how derivation) *Snapshot {
	to := &Snapshot{revision: s.revision}
	for i := range kinds {
		if kinds[i].derive != nil {
			kinds[i].derive(to, s, how)
		}
	}
	return to
}

// deriveAttempts derives the tables that all records of attempts share.
func deriveAttempts(to, from *Snapshot, how derivation) {
	to.attempts, to.byNode = derivedSmall(from.attempts, how), derivedSmall(from.byNode, how)
	to.rows = from.rows
}

// deriveEvents derives the tables of the event log.
func deriveEvents(to, from *Snapshot, how derivation) {
	to.events, to.eventOrder = derivedSmall(from.events, how), derivedSmall(from.eventOrder, how)
}

// Revision returns the engine's revision that the snapshot is at: it holds every write up to it.
func (s *Snapshot) Revision() uint64 { return s.revision }

// Cluster returns a cluster's spec.
func (s *Snapshot) Cluster(name string) (Entry[cluster.Cluster], bool) { return s.clusters.Get(name) }

// Clusters returns all clusters.
func (s *Snapshot) Clusters() iter.Seq[Entry[cluster.Cluster]] { return scan(s.clusters, "") }

// Definition returns a version of a task definition.
func (s *Snapshot) Definition(r cluster.Ref) (Entry[cluster.TaskDefinition], bool) {
	return s.definitions.Get(definitionKey(r))
}

// NewestDefinition returns a definition's newest version, and the revision of the record that names it.
func (s *Snapshot) NewestDefinition(name string) (cluster.Ref, uint64, bool) {
	e, ok := s.newest.Get(name)
	if !ok {
		return cluster.Ref{}, 0, false
	}
	return e.Value.Ref(), e.Modified, true
}

// Definitions returns all versions of a definition, or of all definitions where the name is empty.
func (s *Snapshot) Definitions(name string) iter.Seq[Entry[cluster.TaskDefinition]] {
	if name != "" {
		name += "/"
	}
	return scan(s.definitions, name)
}

// Service returns a service's spec.
func (s *Snapshot) Service(inCluster, name string) (Entry[cluster.Service], bool) {
	return s.services.Get(inCluster + "/" + name)
}

// Wanted returns a service's spec with the count that its scaling decided. The revision is that of the spec.
func (s *Snapshot) Wanted(inCluster, name string) (Entry[cluster.Service], bool) {
	e, ok := s.Service(inCluster, name)
	if !ok || e.Value.Scaling == nil {
		return e, ok
	}
	scale, _ := s.Scale(inCluster, name)
	e.Value = e.Value.At(scale.Value)
	return e, true
}

// Rollout returns the rollout of a service.
func (s *Snapshot) Rollout(inCluster, name string) (Entry[cluster.Rollout], bool) {
	return s.rollouts.Get(inCluster + "/" + name)
}

// Scale returns the count of a service with scaling.
func (s *Snapshot) Scale(inCluster, name string) (Entry[cluster.Scale], bool) {
	return s.scales.Get(inCluster + "/" + name)
}

// Rollouts returns the rollouts of all services, including those of deleted services. The key names the service, see
// Prefix.Service.
func (s *Snapshot) Rollouts() iter.Seq[Entry[cluster.Rollout]] { return scan(s.rollouts, "") }

// Scales returns the counts of all services with scaling, including those of deleted services.
func (s *Snapshot) Scales() iter.Seq[Entry[cluster.Scale]] { return scan(s.scales, "") }

// Cron returns a cron's spec.
func (s *Snapshot) Cron(inCluster, name string) (Entry[cluster.Cron], bool) {
	return s.crons.Get(inCluster + "/" + name)
}

// Crons returns the crons of a cluster, or all crons where the name is empty.
func (s *Snapshot) Crons(inCluster string) iter.Seq[Entry[cluster.Cron]] {
	return scan(s.crons, folder(inCluster))
}

// Fired returns the progress of a cron through its moments.
func (s *Snapshot) Fired(inCluster, name string) (Entry[cluster.CronStatus], bool) {
	return s.fired.Get(inCluster + "/" + name)
}

// AllFired returns the progress of the crons of a cluster, or of all crons where the name is empty, including deleted
// crons. The key names the cron.
func (s *Snapshot) AllFired(inCluster string) iter.Seq[Entry[cluster.CronStatus]] {
	return scan(s.fired, folder(inCluster))
}

// Rebalancing returns a rebalancing, running or finished.
func (s *Snapshot) Rebalancing(id uint64) (Entry[cluster.Rebalancing], bool) {
	return s.rebalances.Get(rebalancingKey(id))
}

// Rebalancings returns the rebalancings of all domains, the oldest first.
func (s *Snapshot) Rebalancings() iter.Seq[Entry[cluster.Rebalancing]] { return scan(s.rebalances, "") }

// Reservation returns a reservation of nodes.
func (s *Snapshot) Reservation(name string) (Entry[cluster.Reservation], bool) {
	return s.reserved.Get(name)
}

// Reservations returns all reservations by name, including those that are over.
func (s *Snapshot) Reservations() iter.Seq[Entry[cluster.Reservation]] { return scan(s.reserved, "") }

// RunningRebalancing returns the running rebalancing of a domain, if there is one.
func (s *Snapshot) RunningRebalancing(domain string) (Entry[cluster.Rebalancing], bool) {
	for e := range s.Rebalancings() {
		if e.Value.Domain == domain && e.Value.Running() {
			return e, true
		}
	}
	return Entry[cluster.Rebalancing]{}, false
}

// Services returns the services of a cluster, or all services where the name is empty.
func (s *Snapshot) Services(inCluster string) iter.Seq[Entry[cluster.Service]] {
	return scan(s.services, folder(inCluster))
}

// Job returns a job's spec.
func (s *Snapshot) Job(inCluster, name string) (Entry[cluster.Job], bool) {
	return s.jobs.Get(inCluster + "/" + name)
}

// Jobs returns the jobs of a cluster, or all jobs where the name is empty.
func (s *Snapshot) Jobs(inCluster string) iter.Seq[Entry[cluster.Job]] {
	return scan(s.jobs, folder(inCluster))
}

// CronJobs returns the jobs that a cron made and that still exist, ordered by their moments.
func (s *Snapshot) CronJobs(inCluster, cron string) iter.Seq[Entry[cluster.Job]] {
	return func(yield func(Entry[cluster.Job]) bool) {
		for e := range scan(s.jobs, inCluster+"/"+cron+"-") {
			if e.Value.Cron == cron && !yield(e) {
				return
			}
		}
	}
}

// Host returns the operator's settings of a node.
func (s *Snapshot) Host(name string) (Entry[cluster.Host], bool) { return s.hosts.Get(name) }

// Hosts returns the operator's settings of all nodes that have settings.
func (s *Snapshot) Hosts() iter.Seq[Entry[cluster.Host]] { return scan(s.hosts, "") }

// Node returns the control plane's verdict on a node.
func (s *Snapshot) Node(name string) (Entry[cluster.Node], bool) { return s.nodes.Get(name) }

// Nodes returns the verdicts on all nodes.
func (s *Snapshot) Nodes() iter.Seq[Entry[cluster.Node]] { return scan(s.nodes, "") }

// NodeStatus returns the registration of a node's agent.
func (s *Snapshot) NodeStatus(name string) (Entry[cluster.NodeStatus], bool) {
	return s.statuses.Get(name)
}

// NodeStatuses returns the registrations of all nodes.
func (s *Snapshot) NodeStatuses() iter.Seq[Entry[cluster.NodeStatus]] { return scan(s.statuses, "") }

// Leader returns the record of a domain's leader.
func (s *Snapshot) Leader(domain string) (Entry[cluster.Leader], bool) { return s.leaders.Get(domain) }

// Server returns a member of the control plane.
func (s *Snapshot) Server(id string) (Entry[cluster.Server], bool) { return s.servers.Get(id) }

// Servers returns all members of the control plane.
func (s *Snapshot) Servers() iter.Seq[Entry[cluster.Server]] { return scan(s.servers, "") }

// Token returns the record of a token.
func (s *Snapshot) Token(id string) (Entry[cluster.AccessToken], bool) { return s.tokens.Get(id) }

// Tokens returns the records of all tokens.
func (s *Snapshot) Tokens() iter.Seq[Entry[cluster.AccessToken]] { return scan(s.tokens, "") }

// Domain returns the operator's settings of a domain.
func (s *Snapshot) Domain(name string) (Entry[cluster.DomainSettings], bool) {
	return s.domains.Get(name)
}

// Recovery returns a domain's recovery.
func (s *Snapshot) Recovery(domain string) (Entry[cluster.Recovery], bool) {
	return s.recoveries.Get(domain)
}

// Seals returns the record that says since when the records of a domain's attempts carry a seal.
func (s *Snapshot) Seals(domain string) (Entry[cluster.Seals], bool) { return s.seals.Get(domain) }

// Plans returns the plan records by their number.
func (s *Snapshot) Plans() iter.Seq[Entry[cluster.PlanRecord]] {
	return func(yield func(Entry[cluster.PlanRecord]) bool) {
		s.plans.Scan(func(_ uint64, e Entry[cluster.PlanRecord]) bool { return yield(e) })
	}
}

// LastPlan returns the number of the newest plan record, or 0.
func (s *Snapshot) LastPlan() uint64 {
	seq, _, _ := s.plans.Max()
	return seq
}

// EventBatches returns the batches of the event log, oldest first: by the revision of their creation,
// then by id (P8.1).
func (s *Snapshot) EventBatches() iter.Seq[Entry[cluster.EventBatch]] {
	return scan(s.events, "")
}

// LastEvents returns the newest batch of the event log.
func (s *Snapshot) LastEvents() (Entry[cluster.EventBatch], bool) {
	_, e, ok := s.events.Max()
	return e, ok
}

// EventBatch returns the batch with the given id, if the log still holds it.
func (s *Snapshot) EventBatch(id string) (Entry[cluster.EventBatch], bool) {
	order, ok := s.eventOrder.Get(id)
	if !ok {
		return Entry[cluster.EventBatch]{}, false
	}
	return s.events.Get(order)
}

// EventBatchesAfter returns the batches that come after one of the log, oldest first.
func (s *Snapshot) EventBatchesAfter(e Entry[cluster.EventBatch]) iter.Seq[Entry[cluster.EventBatch]] {
	return func(yield func(Entry[cluster.EventBatch]) bool) {
		from := eventOrder(e.Created, e.Value.ID) + "\x00"
		s.events.Ascend(from, func(_ string, next Entry[cluster.EventBatch]) bool { return yield(next) })
	}
}

// EventCount returns how many batches the event log holds.
func (s *Snapshot) EventCount() int { return s.events.Len() }

// Attempts returns the attempts of all tasks of a service or a job, ordered by task id, then number. The
// names of services and jobs of a cluster are distinct.
func (s *Snapshot) Attempts(o cluster.OwnerRef) iter.Seq[*AttemptRow] {
	return s.scanRows(o.Cluster + "." + o.Name + ".")
}

// TaskAttempts returns the attempts of one task, the oldest first.
func (s *Snapshot) TaskAttempts(task cluster.TaskID) iter.Seq[*AttemptRow] {
	return func(yield func(*AttemptRow) bool) {
		rows, _ := s.attempts.Get(task)
		for _, r := range rows {
			if !yield(r) {
				return
			}
		}
	}
}

// Attempt returns one attempt of a task.
func (s *Snapshot) Attempt(task cluster.TaskID, number int) (*AttemptRow, bool) {
	rows, _ := s.attempts.Get(task)
	if at, ok := findNumber(rows, number); ok {
		return rows[at], true
	}
	return nil, false
}

// findNumber returns the index of an attempt among the rows of its task, or the index to insert it at. It searches from
// the end, since callers mostly ask for the newest attempt.
func findNumber(rows []*AttemptRow, number int) (at int, exists bool) {
	for at = len(rows); at > 0 && rows[at-1].Number >= number; at-- {
		if rows[at-1].Number == number {
			return at - 1, true
		}
	}
	return at, false
}

// NodeAttempts returns the attempts that were placed on a node, ordered by task id, then number.
func (s *Snapshot) NodeAttempts(node string) iter.Seq[*AttemptRow] {
	return func(yield func(*AttemptRow) bool) {
		prefix := node + "/"
		s.byNode.Ascend(prefix, func(k string, _ struct{}) bool {
			task, ok := strings.CutPrefix(k, prefix)
			if !ok {
				return false
			}
			rows, _ := s.attempts.Get(cluster.TaskID(task))
			for _, r := range rows {
				if r.Node == node && !yield(r) {
					return false
				}
			}
			return true
		})
	}
}

// AttemptCount returns how many attempts have records.
func (s *Snapshot) AttemptCount() int { return s.rows }

// AllAttempts returns the attempts of all tasks, ordered by task id, then number.
func (s *Snapshot) AllAttempts() iter.Seq[*AttemptRow] { return s.scanRows("") }

// scanRows returns the attempts of the tasks whose ids begin with the prefix.
func (s *Snapshot) scanRows(prefix string) iter.Seq[*AttemptRow] {
	return func(yield func(*AttemptRow) bool) {
		s.attempts.Ascend(cluster.TaskID(prefix), func(task cluster.TaskID, rows []*AttemptRow) bool {
			if !strings.HasPrefix(string(task), prefix) {
				return false
			}
			for _, r := range rows {
				if !yield(r) {
					return false
				}
			}
			return true
		})
	}
}

func scan[T any](t *table[T], prefix string) iter.Seq[Entry[T]] {
	return func(yield func(Entry[T]) bool) {
		t.Ascend(prefix, func(k string, e Entry[T]) bool {
			return strings.HasPrefix(k, prefix) && yield(e)
		})
	}
}

func folder(name string) string {
	if name == "" {
		return ""
	}
	return name + "/"
}

func definitionKey(r cluster.Ref) string {
	n := strconv.Itoa(r.Version)
	if len(n) < 10 {
		n = "0000000000"[len(n):] + n
	}
	return r.Name + "/" + n
}

func rebalancingKey(id uint64) string {
	n := strconv.FormatUint(id, 10)
	return "00000000000000000000"[len(n):] + n
}

func eventOrder(created uint64, id string) string {
	n := strconv.FormatUint(created, 10)
	return "00000000000000000000"[len(n):] + n + "/" + id
}
