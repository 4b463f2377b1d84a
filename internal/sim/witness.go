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

// witness sees every revision of the store and every start and end of a program, and tells what must never be.
type witness struct {
	began time.Time
	story *Story
	// Which invariants hold less in this world: records were written over or taken back behind Berth's back, or
	// programs were run by hands of others.
	meddled, restored bool
	edited            map[string]bool // records that somebody else wrote and that look right, by their value
	restoring         bool            // the leader record of a snapshot comes next
	whole             bool            // a whole snapshot is being taken
	highest           cluster.Token   // of all leaders ever

	mu       sync.Mutex
	faults   []Violation
	records  map[string]store.Record // under the prefix
	attempts map[string]*attempt     // by UUID
	tasks    map[cluster.TaskID]map[*attempt]bool
	nodes    map[string]*shore
	outcomes map[string]*attempt // by "<task>/<n>"
	told     map[string]int      // events of an end, by "<task>/<n>"
	moving   map[string]bool     // those of which an event tells that they move
	batches  map[string][]byte   // of events, by id
	plans    map[string]*cluster.PlanRecord
	cpu      map[cluster.Ref]cluster.MilliCPU
	leaders  []reign
	asked    map[string]*asked // specs, by key
	// definitions are all that tasks may run; moved is when a service's spec, count or health last got worse, by
	// "<cluster>/<name>".
	definitions map[cluster.Ref]*cluster.TaskDefinition
	moved       map[string]time.Time
	moments     map[string]bool // the jobs that crons made
	verdicts    time.Time       // when a verdict on a node last changed
	touched     map[*attempt]bool
	fresh       []string // outcomes that this revision wrote
	log         []string
	digest      hash.Hash // of all that was written, started and ended
	history     bool      // keep the lines of the history
	lines       []string  // the history
	verbose     bool
	deeds       Deeds
	starts      int
	ends        int
	// quietSince is when the last fault ended that keeps leaders from their work, zero while one is on.
	quietSince time.Time
	storms     int
}

// attempt is all that was ever seen of one attempt.
type attempt struct {
	task    cluster.TaskID
	number  int
	uuid    string
	node    string
	batch   bool
	wait    bool
	def     cluster.Ref
	ports   map[string]int
	planned bool // a plan record stands for it
	desired *cluster.Desired
	seen    *cluster.Observed
	outcome *cluster.Outcome
	ended   bool   // it had an outcome at some time
	endedAt uint64 // the revision of that, the first time
	stopped bool   // a stop was written at some time
	healthy bool

	acked   cluster.State // a terminal state that its agent was told is durable
	running int           // programs
	starts  int
	excused bool // something outside ended its program
	// reported says that a status of it was written at some time.
	reported bool
	known    bool // a record of it was ever there
}

// shore is what is known of a node.
type shore struct {
	attempts map[*attempt]bool
	heard    time.Time // when its agent last had an answer
	status   *cluster.NodeStatus
	verdict  *cluster.Node
	running  cluster.MilliCPU
	trouble  int    // events that have its executor do as it likes
	session  uint64 // the newest that a server took
}

// reign is a leadership, from a revision on.
type reign struct {
	revision uint64
	leader   cluster.Leader
	at       time.Time
}

// asked is what a user wants of one record.
type asked struct {
	values map[string]bool // whatever was tried
	acked  string
}

func newWitness(story *Story) *witness {
	v := &witness{
		began: time.Now(), story: story, meddled: story.Has(Foreign), restored: false,
		cpu: map[cluster.Ref]cluster.MilliCPU{}, nodes: map[string]*shore{}, asked: map[string]*asked{},
		definitions: map[cluster.Ref]*cluster.TaskDefinition{}, moved: map[string]time.Time{},
		moments:    map[string]bool{},
		quietSince: time.Now(), digest: sha256.New(),
	}
	v.forget()
	return v
}

// forget begins anew with the store, as after a restore.
func (v *witness) forget() {
	v.records = map[string]store.Record{}
	v.attempts = map[string]*attempt{}
	v.tasks = map[cluster.TaskID]map[*attempt]bool{}
	v.outcomes = map[string]*attempt{}
	v.plans = map[string]*cluster.PlanRecord{}
	v.told, v.moving, v.batches = map[string]int{}, map[string]bool{}, map[string][]byte{}
	v.touched = map[*attempt]bool{}
	for _, s := range v.nodes {
		s.attempts = map[*attempt]bool{}
	}
}

// fault notes a breach.
func (v *witness) fault(invariant, format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.breach(invariant, format, args...)
}

// breach notes a breach. The lock is held.
func (v *witness) breach(invariant, format string, args ...any) {
	if _, known := Invariants[invariant]; !known {
		panic("no invariant " + invariant)
	}
	if len(v.faults) < 20 {
		v.faults = append(v.faults, Violation{invariant, v.clock(), fmt.Sprintf(format, args...)})
	}
	v.note("BREACH %s: %s", invariant, fmt.Sprintf(format, args...))
}

// record adds a line to the history. The lock is held.
func (v *witness) record(format string, args ...any) {
	_, _ = fmt.Fprintf(v.digest, format+"\n", args...)
	if v.history {
		v.lines = append(v.lines, fmt.Sprintf(format, args...))
	}
}

func (v *witness) clock() string { return time.Since(v.began).Round(time.Microsecond).String() }

// note keeps a line of the chronicle. The lock is held.
func (v *witness) note(format string, args ...any) {
	if v.verbose {
		v.log = append(v.log, v.clock()+" "+fmt.Sprintf(format, args...))
	}
}

func (v *witness) shore(node string) *shore {
	s := v.nodes[node]
	if s == nil {
		s = &shore{attempts: map[*attempt]bool{}}
		v.nodes[node] = s
	}
	return s
}

// observe takes one revision; it runs under the engine's lock.
func (v *witness) observe(changes []store.Change, revision uint64, whole bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range changes {
		c := &changes[i]
		v.record("%d %v %s %t %s", revision, time.Since(v.began), c.Key, c.Deleted, c.Value)
	}
	if whole {
		v.forget()
		v.whole = true
		v.restored, v.restoring = true, true
		v.note("RESTORED to %d", revision)
	}
	for i := range changes {
		if changes[i].Key == prefix.Leader(cluster.DefaultDomain) {
			v.change(&changes[i])
		}
	}
	for i := range changes {
		if changes[i].Key != prefix.Leader(cluster.DefaultDomain) {
			v.change(&changes[i])
		}
	}
	v.judge(revision)
	v.whole = false
}

// change takes one record.
func (v *witness) change(c *store.Change) {
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
		v.note("%d deleted %s", c.Modified, key)
		delete(v.records, key)
	} else {
		v.note("%d %s %s", c.Modified, key, c.Value)
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
		v.changed(rest)
	case "scale":
		v.scaled(rest, c)
		v.changed(rest)
	case "fired":
		v.fired(rest, c, was)
	}
}

// attempt returns what is known under an identity, and makes it known.
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
	v.shore(d.Node).attempts[a] = true
	return a
}

// plan takes a plan record.
func (v *witness) plan(key string, c *store.Change) {
	old := v.plans[key]
	still := map[string]bool{}
	if c.Deleted {
		delete(v.plans, key)
	} else if now, err := store.Decode[cluster.PlanRecord](c.Value); err == nil {
		if old == nil && !v.whole {
			v.tokens(now)
		}
		for _, d := range placements(now) {
			a := v.attempt(d)
			still[d.UUID] = true
			if old == nil {
				v.placing(a)
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
		if a.desired == nil && !a.ended && !v.meddled {
			v.breach("plan-vanished", "%s/%d on %s was neither projected nor ended when %s went", a.task, a.number,
				a.node, key)
		}
	}
}

// placements returns what a plan record stands for.
func placements(p *cluster.PlanRecord) []*cluster.Desired {
	var out []*cluster.Desired
	for i := range p.Owners {
		for j := range p.Owners[i].Tasks {
			out = append(out, p.Desired(&p.Owners[i], &p.Owners[i].Tasks[j]))
		}
	}
	return out
}

// tokens judges a new plan record's token: it is the leader's (P1.4), and no agent that registered has seen a higher
// one (P1.7).
func (v *witness) tokens(p *cluster.PlanRecord) {
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

// placing judges a placement at the time of its record.
func (v *witness) placing(a *attempt) {
	if v.meddled || v.restored || a.number <= 1 {
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

// edits takes note of a record that somebody else is about to write.
func (v *witness) edits(value []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.edited == nil {
		v.edited = map[string]bool{}
	}
	v.edited[string(value)] = true
}

// desired takes a record of what is wanted of an attempt.
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
	if err != nil || d.Task != task || d.Node != node || v.edited[string(c.Value)] {
		return
	}
	a := v.attempt(d)
	// What writes an outcome projects the attempt where that was not done (P4.2).
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
	v.granted(a, d, was)
	a.desired = d
	v.touched[a] = true
}

// status takes what an agent saw.
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
		return // of an attempt that a restore forgot
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

// outcome takes how an attempt ended.
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
	v.justly(a, o)
}

// trimmed judges the deletion of an outcome.
func (v *witness) trimmed(a *attempt) {
	if a.desired != nil && !v.meddled && !v.restored {
		v.breach("outcome-fixed", "the outcome of %s/%d was deleted while its record stands on %s", a.task, a.number,
			a.node)
	}
}
