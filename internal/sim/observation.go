package sim

import (
	"cmp"
	"crypto/sha256"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// observation is what the checkers know of a fleet: the records of the store, and the programs of every attempt. Its
// lock guards the observation and the fields of all checkers.
type observation struct {
	mu sync.Mutex
	*journal
	story *Story
	// Reasons for which some invariants hold less in this fleet: records were overwritten or the store was restored
	// outside of Berth.
	overwritten, restored bool
	whole                 bool                       // a whole snapshot is being taken
	records               map[string]store.Record    // under the prefix
	decodedJobs           map[string]decodedJob      // by key under the prefix; see stepOf
	attempts              map[string]*attemptHistory // by UUID
	tasks                 map[cluster.TaskID]map[*attemptHistory]bool
	nodes                 map[string]*nodeView
	outcomes              map[string]*attemptHistory // by "<task>/<n>"
	cpu                   map[cluster.Ref]cluster.MilliCPU
	definitions           map[cluster.Ref]*cluster.TaskDefinition
	leaders               []leadershipTerm
	verdictChanged        time.Time // when a verdict on a node last changed
	touched               map[*attemptHistory]bool
	placed                map[*attemptHistory]bool // the attempts of tasks that are placed and have not ended
	// changedJobs collects the jobs ("<cluster>/<name>") of touched attempts, unless it is nil.
	changedJobs map[string]bool
	actions     ActionCounts
}

// attemptIdentity is what the first record of an attempt says, and what never changes.
type attemptIdentity struct {
	task              cluster.TaskID
	number            int
	uuid              string
	node              string
	batch             bool
	job               string // "<cluster>/<name>" of the job of a batch attempt
	timeLimit         cluster.Duration
	waitsOnDisconnect bool
	def               cluster.Ref
	ports             map[string]int
}

// attemptHistory is what the checkers know of one attempt: its present records, and facts of its past.
type attemptHistory struct {
	attemptIdentity
	planned  bool // it is in a plan record
	desired  *cluster.Desired
	observed *cluster.Observed
	outcome  *cluster.Outcome
	ended    bool   // it had an outcome at some time
	endedAt  uint64 // revision of its first outcome
	stopped  bool   // a stop was written at some time
	reported bool   // a status was written at some time
	// erased says that another program wrote over its desired record, which may have held the stop. No server need know
	// the stop afterwards.
	erased bool
	// commanded says that its first desired record replaced the record of another program.
	commanded bool
	healthy   bool

	acknowledged cluster.State // terminal state that was acknowledged to its agent
	running      int           // running programs
	starts       int           // starts of its program
	exit         *cluster.Exit // the last end of its program
	excused      bool          // its program was ended from outside
}

// isOpen reports whether the attempt has a record that wants it, and no outcome.
func (a *attemptHistory) isOpen() bool { return !a.ended && (a.planned || a.desired != nil) }

// holdsResources reports whether the attempt takes up room on its node.
func (a *attemptHistory) holdsResources() bool {
	if a.observed != nil && a.observed.Gone {
		return false
	}
	return a.planned && !a.ended || a.desired != nil
}

// belongsTo reports whether the attempt is of the service, by its task id: its own record may not exist yet.
func (a *attemptHistory) belongsTo(service cluster.OwnerRef) bool {
	p, ok := a.task.Parts()
	return ok && p.Step == "" && p.Cluster == service.Cluster && p.Owner == service.Name
}

// awaitsPermit reports whether the attempt is healthy, has a stop, and continues until its agent gets a permit. Until
// then it counts in the decision on another permit.
func (a *attemptHistory) awaitsPermit() bool {
	return a.desired != nil && a.desired.Stop != nil && a.desired.Stop.Class == cluster.StopVoluntary &&
		a.observed.Healthy() && !a.observed.Gone &&
		a.observed.Ask != "" && a.observed.Ask != a.desired.Stop.Permit
}

// nodeView is what the checkers know of a node.
type nodeView struct {
	attempts       map[*attemptHistory]bool
	requested      time.Time // last request of its agent that a server accepted; the answer may have been lost
	answered       time.Time // last answer to its agent
	status         *cluster.NodeStatus
	verdict        *cluster.Node
	drivers        map[uint64]string // the domain that owned it in each generation
	running        cluster.MilliCPU
	executorFaults int    // present faults of its executor
	session        uint64 // newest session that a server accepted
}

// leadershipTerm is a term of leadership, from a revision on.
type leadershipTerm struct {
	revision uint64
	leader   cluster.Leader
	at       time.Time
}

// ActionCounts counts actions that Berth took by itself.
type ActionCounts struct {
	VoluntaryStops, Permits, Reverts, Scalings, CronJobs int
	// Proposed and Departures are the placements, and the moves and evictions, that external schedulers proposed and
	// leaders accepted. TakeOvers counts domains that were taken over from them.
	Proposed, Departures, TakeOvers int
	// Commands are the records that other programs wrote, and Commanded the placements that followed from them.
	Commands, Commanded int
	// Reclaims counts attempts that were told to end because their cluster had borrowed their room.
	Reclaims int
	// Reconnects counts lost attempts that went on when their node returned.
	Reconnects int
}

// add sums up.
func (d *ActionCounts) add(e ActionCounts) {
	d.VoluntaryStops += e.VoluntaryStops
	d.Permits += e.Permits
	d.Reverts += e.Reverts
	d.Scalings += e.Scalings
	d.CronJobs += e.CronJobs
	d.Proposed += e.Proposed
	d.Departures += e.Departures
	d.TakeOvers += e.TakeOvers
	d.Commands += e.Commands
	d.Commanded += e.Commanded
	d.Reconnects += e.Reconnects
	d.Reclaims += e.Reclaims
}

// newObservation returns the observation of a fleet in which nothing has happened.
func newObservation(story *Story) *observation {
	v := &observation{
		journal: &journal{began: time.Now(), digest: sha256.New()},
		story:   story, overwritten: story.Has(Foreign) || story.writesBlindly(),
		cpu: map[cluster.Ref]cluster.MilliCPU{}, definitions: map[cluster.Ref]*cluster.TaskDefinition{},
		nodes: map[string]*nodeView{},
	}
	v.reset()
	return v
}

// reset forgets the records of the store, as after a restore.
func (v *observation) reset() {
	v.records, v.decodedJobs = map[string]store.Record{}, map[string]decodedJob{}
	v.attempts = map[string]*attemptHistory{}
	v.tasks = map[cluster.TaskID]map[*attemptHistory]bool{}
	v.outcomes = map[string]*attemptHistory{}
	v.touched, v.placed = map[*attemptHistory]bool{}, map[*attemptHistory]bool{}
	for _, s := range v.nodes {
		s.attempts = map[*attemptHistory]bool{}
	}
}

// touch records that records of an attempt have changed.
func (v *observation) touch(a *attemptHistory) {
	v.touched[a] = true
	if a.isPlaced() {
		v.placed[a] = true
	} else {
		delete(v.placed, a)
	}
	if v.changedJobs != nil && a.job != "" {
		v.changedJobs[a.job] = true
	}
}

// retire drops an attempt of a job from its node once nothing of it is left there. A day of jobs would otherwise make
// every check of a node slow.
func (v *observation) retire(a *attemptHistory) {
	if a.batch && a.ended && !a.planned && a.desired == nil && a.observed == nil && a.running == 0 {
		delete(v.nodeView(a.node).attempts, a)
	}
}

// forget drops what is known of a job's attempt that has no records and no program any more. A program that starts
// later has an unknown attempt, which is a breach.
func (v *observation) forget(a *attemptHistory) {
	if !a.batch || a.planned || a.desired != nil || a.observed != nil || a.outcome != nil || a.running > 0 {
		return
	}
	delete(v.attempts, a.uuid)
	delete(v.nodeView(a.node).attempts, a)
	delete(v.tasks[a.task], a)
	if len(v.tasks[a.task]) == 0 {
		delete(v.tasks, a.task)
	}
}

func (v *observation) hasBreach() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.breaches) > 0
}

// reportBreach reports a breach.
func (v *observation) reportBreach(invariant, format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.breach(invariant, format, args...)
}

func (v *observation) nodeView(node string) *nodeView {
	s := v.nodes[node]
	if s == nil {
		s = &nodeView{attempts: map[*attemptHistory]bool{}}
		v.nodes[node] = s
	}
	return s
}

// attemptOf returns the attempt of an identity, and creates it if it is new.
func (v *observation) attemptOf(d *cluster.Desired) *attemptHistory {
	a := v.attempts[d.UUID]
	if a != nil {
		return a
	}
	a = &attemptHistory{attemptIdentity: attemptIdentity{
		task: d.Task, number: d.Attempt, uuid: d.UUID, node: d.Node, batch: d.Batch(), def: d.Definition,
		ports:             d.Ports,
		waitsOnDisconnect: d.OnDisconnect == cluster.DisconnectWait || d.OnDisconnect == "" && d.Batch(),
	}}
	if p, ok := a.task.Parts(); ok && a.batch {
		a.job = p.Cluster + "/" + p.Owner
		if _, step := v.stepOf(p); step != nil {
			a.timeLimit = step.TimeLimit
		}
	}
	v.attempts[d.UUID] = a
	if v.tasks[d.Task] == nil {
		v.tasks[d.Task] = map[*attemptHistory]bool{}
	}
	for other := range v.tasks[d.Task] { // order-free: at most one breach
		if other.number == a.number && !v.restored && !v.hasUntrustedAttempt(a.task) && !v.isUntrusted(a.node) {
			v.breach("placed-twice", "%s/%d is %s on %s and %s on %s", a.task, a.number, other.uuid, other.node, a.uuid,
				a.node)
		}
	}
	v.tasks[d.Task][a] = true
	v.nodeView(d.Node).attempts[a] = true
	return a
}

// isUntrusted reports whether the node's reports may be false, or its records were overwritten.
func (v *observation) isUntrusted(node string) bool {
	return v.overwritten || v.story.hits(node, Lie)
}

// hasUntrustedAttempt reports whether an attempt of the task is on a lying node. An attempt that such a node calls gone
// is cleaned up with its number, and may be reported again.
func (v *observation) hasUntrustedAttempt(task cluster.TaskID) bool {
	for a := range v.tasks[task] { // order-free: any suffices
		if v.isUntrusted(a.node) {
			return true
		}
	}
	return v.overwritten
}

// isSilent reports whether the leader's verdict on a node means that tasks on it do not count. A node that is held for
// flapping is suspect too, although it reports.
func (v *observation) isSilent(node string) bool {
	n := v.nodeView(node).verdict
	return n != nil && (n.State == cluster.NodeDown || n.State == cluster.NodeSuspect && n.Until.IsZero())
}

// acceptsDaemons reports whether daemons have tasks on a node: the domain owns it, and it has no drain and no taint.
// (The simulator's daemons run everywhere else.)
func (v *observation) acceptsDaemons(node string) bool {
	n := v.nodeView(node)
	if n.verdict == nil || n.verdict.Domain != cluster.DefaultDomain || n.verdict.State == cluster.NodeDraining ||
		n.verdict.State == cluster.NodeDrained {
		return false
	}
	h, err := store.Decode[cluster.Host](v.records["host/"+node].Value)
	return err != nil || h.Drain == nil && len(h.Taints) == 0 &&
		cmp.Or(h.Domain, cluster.DefaultDomain) == cluster.DefaultDomain
}

// isDeclaredGone reports whether the operator declared the machine gone.
func (v *observation) isDeclaredGone(node string) bool {
	h, err := store.Decode[cluster.Host](v.records["host/"+node].Value)
	return err == nil && h.Gone
}

// isReleased reports whether the node was released to another owner.
func (v *observation) isReleased(node string) bool {
	h, err := store.Decode[cluster.Host](v.records["host/"+node].Value)
	return err == nil && h.Released != 0
}

// noteRequest records that a server accepted a request of a node's agent.
func (v *observation) noteRequest(node string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.nodeView(node).requested = time.Now()
}

// noteAnswer records that a node's agent got an answer.
func (v *observation) noteAnswer(node string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.nodeView(node).answered = time.Now()
}

// countExecutorFaults records the begin (1) or end (-1) of faults of a node's executor.
func (v *observation) countExecutorFaults(node string, by int) {
	v.excuseNode(node)
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.nodeView(node)
	s.executorFaults = max(0, s.executorFaults+by)
}

// excuseNode records that programs on a node may be ended or started from outside.
func (v *observation) excuseNode(node string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for a := range v.nodeView(node).attempts { // order-free: all of them
		a.excused = true
	}
}

// excuseAttempt records that an attempt's program is ended from outside.
func (v *observation) excuseAttempt(uuid string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if a := v.attempts[uuid]; a != nil {
		a.excused = true
	}
}

// attemptElsewhere picks an attempt of another node, for a lying node.
func (v *observation) attemptElsewhere(node string, d *dice) (cluster.Observed, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var all []*attemptHistory
	for _, a := range v.attempts {
		if a.node != node && a.isOpen() {
			all = append(all, a)
		}
	}
	if len(all) == 0 {
		return cluster.Observed{}, false
	}
	a := all[d.below(len(all))]
	return cluster.Observed{Task: a.task, Attempt: a.number, UUID: a.uuid}, true
}

// serviceGenerations returns the generations of all services, as they are written.
func (v *observation) serviceGenerations() map[string]uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := map[string]uint64{}
	for key, r := range v.records { // order-free: each by itself
		if s, err := store.Decode[cluster.Service](r.Value); err == nil && strings.HasPrefix(key, "service/") {
			all[s.Name] = s.Generation
		}
	}
	return all
}
