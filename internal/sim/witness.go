package sim

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

const prefix = store.Prefix(store.DefaultPrefix)

// witness sees every revision of the store and every start and end of a program, and reports breaches of the
// invariants.
type witness struct {
	began time.Time
	story *Story
	// Reasons for which some invariants hold less in this world: records were overwritten or the store was restored
	// outside of Berth.
	overwritten, restored bool
	editedValues          map[string]bool // well-formed records that a stranger wrote, by value
	restoring             bool            // the next leader record is that of a snapshot
	whole                 bool            // a whole snapshot is being taken
	highest               cluster.Token   // of all leaders ever

	mu          sync.Mutex
	faults      []Violation
	records     map[string]store.Record // under the prefix
	attempts    map[string]*attempt     // by UUID
	tasks       map[cluster.TaskID]map[*attempt]bool
	nodes       map[string]*nodeView
	outcomes    map[string]*attempt // by "<task>/<n>"
	endEvents   map[string]int      // number of end events, by "<task>/<n>"
	moving      map[string]bool     // attempts with a moving event, by "<task>/<n>"
	batches     map[string][]byte   // of events, by id
	plans       map[string]*cluster.PlanRecord
	cpu         map[cluster.Ref]cluster.MilliCPU
	leaders     []leadershipTerm
	wantedSpecs map[string]*wantedSpec // specs, by key
	// definitions are the definitions of all tasks. changedAt is the time at which a service's spec or count last
	// changed, or one of its tasks got worse, by "<cluster>/<name>".
	definitions map[cluster.Ref]*cluster.TaskDefinition
	changedAt   map[string]time.Time
	moments     map[string]bool // jobs that crons made
	verdicts    time.Time       // when a verdict on a node last changed
	touched     map[*attempt]bool
	fresh       []string // outcomes of this revision
	log         []string
	digest      hash.Hash // hash of all writes, starts and ends
	history     bool      // keep the lines of the history
	lines       []string  // the history
	verbose     bool
	deeds       Deeds
	starts      int
	ends        int
	// quietSince is the end of the last fault that hinders leaders, zero during such a fault. leaderFaults counts the
	// present ones.
	quietSince   time.Time
	leaderFaults int
}

// attempt is everything that was seen of one attempt.
type attempt struct {
	task    cluster.TaskID
	number  int
	uuid    string
	node    string
	batch   bool
	wait    bool
	def     cluster.Ref
	ports   map[string]int
	planned bool // it is in a plan record
	desired *cluster.Desired
	seen    *cluster.Observed
	outcome *cluster.Outcome
	ended   bool   // it had an outcome at some time
	endedAt uint64 // revision of its first outcome
	stopped bool   // a stop was written at some time
	healthy bool

	acked   cluster.State // terminal state that was acknowledged to its agent
	running int           // programs
	starts  int
	excused bool // its program was ended from outside
	// reported says that a status of the attempt was written at some time.
	reported bool
	known    bool // a record of it was ever there
}

// nodeView is the witness's view of a node.
type nodeView struct {
	attempts map[*attempt]bool
	heard    time.Time // last answer to its agent
	status   *cluster.NodeStatus
	verdict  *cluster.Node
	running  cluster.MilliCPU
	trouble  int    // present faults of its executor
	session  uint64 // newest session that a server accepted
}

// leadershipTerm is a term of leadership, from a revision on.
type leadershipTerm struct {
	revision uint64
	leader   cluster.Leader
	at       time.Time
}

// wantedSpec is what a user wants of one record.
type wantedSpec struct {
	values map[string]bool // all values that were tried
	acked  string
}

func newWitness(story *Story) *witness {
	v := &witness{
		began: time.Now(), story: story, overwritten: story.Has(Foreign), restored: false,
		cpu: map[cluster.Ref]cluster.MilliCPU{}, nodes: map[string]*nodeView{}, wantedSpecs: map[string]*wantedSpec{},
		definitions: map[cluster.Ref]*cluster.TaskDefinition{}, changedAt: map[string]time.Time{},
		moments:    map[string]bool{},
		quietSince: time.Now(), digest: sha256.New(),
	}
	v.reset()
	return v
}

// reset clears the view of the store, as after a restore.
func (v *witness) reset() {
	v.records = map[string]store.Record{}
	v.attempts = map[string]*attempt{}
	v.tasks = map[cluster.TaskID]map[*attempt]bool{}
	v.outcomes = map[string]*attempt{}
	v.plans = map[string]*cluster.PlanRecord{}
	v.endEvents, v.moving, v.batches = map[string]int{}, map[string]bool{}, map[string][]byte{}
	v.touched = map[*attempt]bool{}
	for _, s := range v.nodes {
		s.attempts = map[*attempt]bool{}
	}
}

// reportBreach reports a breach.
func (v *witness) reportBreach(invariant, format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.breach(invariant, format, args...)
}

// breach reports a breach. The lock is held.
func (v *witness) breach(invariant, format string, args ...any) {
	if _, known := Invariants[invariant]; !known {
		panic("no invariant " + invariant)
	}
	if len(v.faults) < 20 {
		v.faults = append(v.faults, Violation{invariant, v.clock(), fmt.Sprintf(format, args...)})
	}
	v.addToChronicle("BREACH %s: %s", invariant, fmt.Sprintf(format, args...))
}

// addToHistory adds a line to the history. The lock is held.
func (v *witness) addToHistory(format string, args ...any) {
	_, _ = fmt.Fprintf(v.digest, format+"\n", args...)
	if v.history {
		v.lines = append(v.lines, fmt.Sprintf(format, args...))
	}
}

func (v *witness) clock() string { return time.Since(v.began).Round(time.Microsecond).String() }

// addToChronicle adds a line to the chronicle. The lock is held.
func (v *witness) addToChronicle(format string, args ...any) {
	if v.verbose {
		v.log = append(v.log, v.clock()+" "+fmt.Sprintf(format, args...))
	}
}

func (v *witness) nodeView(node string) *nodeView {
	s := v.nodes[node]
	if s == nil {
		s = &nodeView{attempts: map[*attempt]bool{}}
		v.nodes[node] = s
	}
	return s
}

// observe processes one revision; it runs under the engine's lock.
func (v *witness) observe(changes []store.Change, revision uint64, whole bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range changes {
		c := &changes[i]
		v.addToHistory("%d %v %s %t %s", revision, time.Since(v.began), c.Key, c.Deleted, c.Value)
	}
	if whole {
		v.reset()
		v.whole = true
		v.restored, v.restoring = true, true
		v.addToChronicle("RESTORED to %d", revision)
	}
	for i := range changes {
		if changes[i].Key == prefix.Leader(cluster.DefaultDomain) {
			v.applyChange(&changes[i])
		}
	}
	for i := range changes {
		if changes[i].Key != prefix.Leader(cluster.DefaultDomain) {
			v.applyChange(&changes[i])
		}
	}
	v.judge(revision)
	v.whole = false
}

// applyChange processes one record.
func (v *witness) applyChange(c *store.Change) {
	key, ours := strings.CutPrefix(c.Key, string(prefix))
	if !ours {
		return
	}
	noun, rest, _ := strings.Cut(key, "/")
	if noun == "event" {
		v.event(rest, c)
		return
	}
	was := v.records[key]
	if c.Deleted {
		v.addToChronicle("%d deleted %s", c.Modified, key)
		delete(v.records, key)
	} else {
		v.addToChronicle("%d %s %s", c.Modified, key, c.Value)
		v.records[key] = c.Record
	}
	switch noun {
	case "plan":
		v.plan(key, c)
	case "state":
		if node, task, ok := strings.Cut(rest, "/"); ok {
			v.desired(node, cluster.TaskID(task), c, was)
		}
	case "status":
		if node, task, ok := strings.Cut(rest, "/"); ok {
			v.status(node, cluster.TaskID(task), c, was)
		} else {
			v.registration(rest, c, was)
		}
	case "attempt":
		v.outcome(rest, c)
	case "node":
		v.verdict(rest, c, was)
	case "leader":
		if rest == cluster.DefaultDomain {
			v.leader(c)
		}
	case "service", "job", "cron":
		v.spec(key, c, was)
		v.noteServiceChange(rest)
	case "scale":
		v.checkScale(rest, c)
		v.noteServiceChange(rest)
	case "fired":
		v.cronStatus(rest, c, was)
	}
}

// attempt returns the attempt of an identity, and creates it if it is new.
func (v *witness) attempt(d *cluster.Desired) *attempt {
	a := v.attempts[d.UUID]
	if a != nil {
		return a
	}
	a = &attempt{
		task: d.Task, number: d.Attempt, uuid: d.UUID, node: d.Node, batch: d.Batch(), def: d.Definition,
		ports: d.Ports,
		wait:  d.OnDisconnect == cluster.DisconnectWait || d.OnDisconnect == "" && d.Batch(), known: true,
	}
	v.attempts[d.UUID] = a
	if v.tasks[d.Task] == nil {
		v.tasks[d.Task] = map[*attempt]bool{}
	}
	for other := range v.tasks[d.Task] { // order-free: at most one breach
		if other.number == a.number && !v.restored && !v.liedAbout(a.task) && !v.liar(a.node) {
			v.breach("placed-twice", "%s/%d is %s on %s and %s on %s", a.task, a.number, other.uuid, other.node, a.uuid,
				a.node)
		}
	}
	v.tasks[d.Task][a] = true
	v.nodeView(d.Node).attempts[a] = true
	return a
}

// plan processes a plan record.
func (v *witness) plan(key string, c *store.Change) {
	old := v.plans[key]
	still := map[string]bool{}
	if c.Deleted {
		delete(v.plans, key)
	} else if now, err := store.Decode[cluster.PlanRecord](c.Value); err == nil {
		if old == nil && !v.whole {
			v.checkToken(now)
		}
		for _, d := range placements(now) {
			a := v.attempt(d)
			still[d.UUID] = true
			if old == nil {
				v.checkPlacement(a)
			}
			a.planned = true
			v.touched[a] = true
		}
		v.plans[key] = now
	}
	if old == nil {
		return
	}
	for _, d := range placements(old) {
		a := v.attempts[d.UUID]
		if a == nil || still[a.uuid] {
			continue
		}
		a.planned = false
		v.touched[a] = true
		if a.desired == nil && !a.ended && !v.overwritten {
			v.breach("plan-vanished", "%s/%d on %s was neither projected nor ended when %s went", a.task, a.number,
				a.node, key)
		}
	}
}

// placements returns the placements of a plan record.
func placements(p *cluster.PlanRecord) []*cluster.Desired {
	var out []*cluster.Desired
	for i := range p.Owners {
		for j := range p.Owners[i].Tasks {
			out = append(out, p.Desired(&p.Owners[i], &p.Owners[i].Tasks[j]))
		}
	}
	return out
}

// checkToken checks the token of a new plan record: it is the leader's (P1.4), and no registered agent has seen a
// higher one (P1.7).
func (v *witness) checkToken(p *cluster.PlanRecord) {
	if n := len(v.leaders); n > 0 && !v.restored && p.Token.Epoch != v.leaders[n-1].leader.Epoch {
		v.breach("fenced", "plan %d of epoch %d was written in epoch %d", p.Seq, p.Token.Epoch,
			v.leaders[n-1].leader.Epoch)
	}
	for name, s := range v.nodes { // order-free: at most one breach
		if s.status == nil {
			continue
		}
		shown := cluster.Token{Incarnation: s.status.Token.Incarnation, Epoch: s.status.Token.Epoch}
		if p.Token.Compare(shown) < 0 {
			v.breach("epoch-back", "plan %d was written by epoch %d of incarnation %d, and %s had shown %d of %d",
				p.Seq,
				p.Token.Epoch, p.Token.Incarnation, name, shown.Epoch, shown.Incarnation)
			return
		}
	}
}

// checkPlacement checks a placement at the time of its record.
func (v *witness) checkPlacement(a *attempt) {
	if v.overwritten || v.restored || a.number <= 1 {
		return
	}
	for _, noun := range []string{"state/", "status/"} {
		if r, stands := v.records[noun+a.node+"/"+string(a.task)]; stands {
			v.breach("unclean-node", "%s/%d was placed on %s while %s stands: %s", a.task, a.number, a.node,
				noun+a.node+"/"+string(a.task), r.Value)
		}
	}
	if v.outcomes[fmt.Sprint(a.task, "/", a.number-1)] == nil {
		v.breach("no-prior", "%s/%d was placed on %s, but attempt %d has no outcome", a.task, a.number, a.node,
			a.number-1)
	}
}

// noteEdit records a value that a stranger is about to write.
func (v *witness) noteEdit(value []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.editedValues == nil {
		v.editedValues = map[string]bool{}
	}
	v.editedValues[string(value)] = true
}

// desired processes the desired record of an attempt.
func (v *witness) desired(node string, task cluster.TaskID, c *store.Change, was store.Record) {
	if old, err := store.Decode[cluster.Desired](was.Value); was.Key != "" && err == nil {
		if a := v.attempts[old.UUID]; a != nil {
			a.desired = nil
			v.touched[a] = true
		}
	}
	if c.Deleted {
		return
	}
	d, err := store.Decode[cluster.Desired](c.Value)
	if err != nil || d.Task != task || d.Node != node || v.editedValues[string(c.Value)] {
		return
	}
	a := v.attempt(d)
	// The transaction of an outcome projects the attempt if nothing projected it before (P4.2).
	if a.ended && a.endedAt != c.Modified && !d.Ended() && was.Key == "" && !v.liar(node) && !v.restored {
		v.breach("revived", "%s/%d is wanted on %s again after its outcome", task, d.Attempt, node)
	}
	if d.Stop != nil && !a.stopped {
		a.stopped = true
		if n := len(v.leaders); n > 0 && !v.restored && d.Token.Epoch < v.leaders[n-1].leader.Epoch {
			v.breach("fenced", "a stop of %s/%d by epoch %d was written in epoch %d", task, d.Attempt, d.Token.Epoch,
				v.leaders[n-1].leader.Epoch)
		}
	}
	v.checkVoluntaryStop(a, d, was)
	a.desired = d
	v.touched[a] = true
}

// status processes an agent's report of an attempt.
func (v *witness) status(node string, task cluster.TaskID, c *store.Change, was store.Record) {
	if old, err := store.Decode[cluster.Observed](was.Value); was.Key != "" && err == nil {
		if a := v.attempts[old.UUID]; a != nil && a.node == node {
			a.seen = nil
			v.touched[a] = true
		}
	}
	if c.Deleted {
		return
	}
	o, err := store.Decode[cluster.Observed](c.Value)
	if err != nil || o.Task != task {
		return
	}
	a := v.attempts[o.UUID]
	if a == nil {
		return // a restore lost the attempt
	}
	if a.node != node {
		v.breach("usurped", "%s said of %s/%d, which is on %s, that it is %s", node, a.task, a.number, a.node, o.State)
		return
	}
	if o.State == cluster.StateStarting && a.batch && !v.restored && (a.stopped || a.ended) &&
		(a.seen == nil || a.seen.State != cluster.StateStarting) {
		v.breach("late-barrier", "%s/%d on %s passed its barrier after its end was written", a.task, a.number, node)
	}
	if o.Gone && a.running > 0 && !a.excused && !v.liar(node) {
		v.breach("gone-but-runs", "%s/%d is said to be gone from %s, where its program runs", a.task, a.number, node)
	}
	a.seen, a.reported = o, true
	v.touched[a] = true
}

// outcome processes the outcome of an attempt.
func (v *witness) outcome(rest string, c *store.Change) {
	i := strings.LastIndexByte(rest, '/')
	task, number := cluster.TaskID(rest[:i]), rest[i+1:]
	n, _ := strconv.Atoi(number)
	old := v.outcomes[rest]
	if c.Deleted {
		delete(v.outcomes, rest)
		if old != nil {
			old.outcome = nil
			v.trimmed(old)
		}
		return
	}
	o, err := store.Decode[cluster.Outcome](c.Value)
	if err != nil {
		v.breach("outcome-fixed", "the outcome %s cannot be read: %v", rest, err)
		return
	}
	if old != nil && old.outcome != nil {
		v.breach("outcome-fixed", "the outcome %s was %s and is %s", rest, old.outcome.State, o.State)
	}
	a := v.attempts[o.UUID]
	if a == nil {
		a = v.attempt(&cluster.Desired{
			Task: task, Attempt: n, UUID: o.UUID, Node: o.Node, Owner: o.Owner,
			Definition: o.Definition,
		})
	}
	if !a.ended {
		a.endedAt = c.Modified
	}
	a.outcome, a.ended = o, true
	v.fresh = append(v.fresh, rest)
	v.outcomes[rest] = a
	v.touched[a] = true
	if o.State == cluster.StateLost && a.acked != "" && a.acked != cluster.StateLost && !v.liar(a.node) && !v.restored {
		v.breach("report-lost", "%s/%d ended %s, which %s was told is durable, and its outcome is lost", a.task,
			a.number, a.acked, a.node)
	}
	v.checkLoss(a, o)
}

// trimmed checks the deletion of an outcome.
func (v *witness) trimmed(a *attempt) {
	if a.desired != nil && !v.overwritten && !v.restored {
		v.breach("outcome-fixed", "the outcome of %s/%d was deleted while its record stands on %s", a.task, a.number,
			a.node)
	}
}
