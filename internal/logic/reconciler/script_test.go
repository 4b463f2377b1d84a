package reconciler_test

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	diff "github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/watcher"
	"github.com/berthd/berth/internal/testkit/script"
)

// TestScripts plays the stories in testdata against the model in world_test.go, see package script. Commands:
//
//	definition web@1 [port] [volume] [root] [sick]   a definition; a fixed port pins it; sick tasks never get healthy
//	service web count=N gen=N def=R [stopped] [deleted] [disconnect=wait] [daemon], and the settings of func policy
//	job work gen=N [cancelled] [deleted] [hold] [deadline=D]
//	step a count=N def=R [retries=N] [limit=D] [disconnect=keep] [gang=D] [needs=b,c] [requires=all-resolved]
//	     [parallelism=N] [idempotent] [final=N] [intermittent=N]    a gang waits since now
//	release                             the user ends the hold of the job
//	retry [TASK…]                       the user has the failed tasks tried again, or all of them
//	unspec                              the owner's record is deleted
//	nodes n1 n2 …                       the nodes of the domain
//	task web.1.0 a1 on n1 def=R STATE [HEALTH]   an attempt in this state;
//	                                    the first one marks its version as rolled out
//	cluster NAME [PERMISSION…]          the owner's cluster and its permissions
//	lost web.1.0 a1                     the attempt gets the outcome lost, but really goes on
//	node n1 present|suspected|silent|gone
//	node n1 unreported                  the node's full report is missing
//	drain n1 [deadline=D] [force]       drains the node; undrain n1
//	move web.1.0                        a place was found: commits the move of the last decision
//	unrecord web.1.0 a1                 the store loses the desired record
//	recovery [incarnation=N] [stop]     the store went back; with stop the operator has unknown attempts stopped
//	crash web.1.0 [reason=R]            the newest attempt ends badly
//	history                             prints the versions of the rollout's record
//	leader                              another server leads: deadlines count from now, and it has no reports yet;
//	                                    node n1 present: it has that of n1
//	rejects n1 n2                       these nodes reject all tasks
//	lacks n1 n2                         these nodes do not have the program of the tasks
//	fails work.1.a.0 a1 [code=N]        that attempt will end badly, with exit code 1 or N
//	permits                             from now on agents request permits for voluntary stops
//	on n1 n2 …                          of a daemon: the nodes that it belongs on;
//	                                    alone n1: only daemons are left on that drained node;
//	                                    stays n1 D: a task may stay for D on n1, on which it does not belong
//	ask [def=R] [count=N] [paused] [promote]   the user changes the service, as the API server writes it
//	gate NAME [passes=N] [failures=N]   the gate's result
//	pressure web.1.0                    the task's node is short of memory and proposes to move the task
//	leave web.1.0 reason=R [now] [to=n3] [for=D]   the task must leave its node; unleave web.1.0
//	cordon n1                           the node accepts no new tasks; uncordon n1
//	log web.1.0 WORD…                   the last log lines of the newest attempt
//	restarts web.1.0 n=N                the attempt was restarted N times in place;
//	                                    oom web.1.0: it was killed for its memory limit
//	wait D                              time passes
//	decide                              prints the decision
//	commit [WHAT…]                      commits the last decision, or only the named kinds of its parts:
//	                                    stops, outcomes, cleanups, trims
//	place [TASK on NODE]                places the pending tasks of the last decision
//	agents [TASK]                       every agent, or that of the task, takes a step and reports
//	rounds N                            N turns of decide, commit, place, agents; prints the decisions
//	show | status | obstacles           prints the attempts; the counts; what keeps the steps of a job from running
func TestScripts(t *testing.T) {
	script.Files(t, func(t *testing.T, text string) string { return play(t, text, 0) })
}

// TestTracesWithoutTheirClauses plays the budget's traces with the clause disabled that prevents each. More tasks are
// given up then.
func TestTracesWithoutTheirClauses(t *testing.T) {
	for name, off := range map[string]clause.Set{"trace-t7": clause.ChargeHeld, "trace-t8": clause.Permit} {
		t.Run(name, func(t *testing.T) {
			b, err := os.ReadFile("testdata/" + name + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			more := func(what string) bool {
				return strings.Count(play(t, string(b), off), what) > strings.Count(string(b), what)
			}
			if !more(": voluntary ") {
				t.Errorf("without its clause nothing more is stopped:\n%s",
					diff.Diff(string(b), play(t, string(b), off)))
			}
			if off == clause.ChargeHeld && !more("stopped first") {
				t.Error("without its clause no second task is stopped so that it can move")
			}
		})
	}
}

// play returns the script with the present output of its commands, with some clauses disabled.
func play(t *testing.T, text string, without clause.Set) string {
	t.Helper()
	s := stage{T: t, world: newWorld()}
	s.without = without
	return script.Play(t, text, &s.out, s.do)
}

type stage struct {
	*testing.T
	*world
	out strings.Builder
}

// args are the words of a command after the first: values by key, and flags.
type args map[string]string

func (a args) has(flag string) bool { _, ok := a[flag]; return ok }

func (a args) number(key string) int {
	n, err := strconv.Atoi(a[key])
	if err != nil {
		return 0
	}
	return n
}

func (s *stage) do(words []string) {
	s.Helper()
	a := args{}
	for _, w := range words[1:] {
		k, v, _ := strings.Cut(w, "=")
		a[k] = v
	}
	switch words[0] {
	case "definition":
		r := s.define(words[1], func(d *cluster.TaskDefinition) {
			if a.has("port") {
				d.Ports = []cluster.Port{{Name: "http", Port: 8080}}
			}
			if a.has("volume") {
				d.Volumes = []cluster.Volume{{Name: "data"}}
			}
			if a.has("root") {
				d.Containers[0].User = "root"
			}
		})
		s.sick[r] = a.has("sick")
	case "cluster":
		s.cluster = &cluster.Cluster{Name: words[1]}
		for _, permission := range words[2:] {
			s.cluster.Permissions = append(s.cluster.Permissions, cluster.Permission(permission))
		}
	case "service", "job", "step":
		s.spec(words, a)
	case "on":
		s.matching = words[1:]
	case "alone":
		s.alone[words[1]] = true
	case "stays":
		s.stays(words[1], words[2])
	case "pressure":
		s.pressureCommand(words)
	case "cordon", "uncordon":
		s.cordoned[words[1]] = words[0] == "cordon"
	case "leave", "unleave":
		s.leaveCommand(words, a)
	case "gate":
		s.gates = []cluster.GateResult{
			{Name: words[1], Passes: a.number("passes"), Failures: a.number("failures"), Message: a["says"]},
		}
	case "ask": // the user changes the service
		ref, _ := cluster.ParseRef(a["def"])
		s.ask(func(spec *cluster.Service) {
			if a.has("def") {
				spec.Definition = ref
			}
			if a.has("count") {
				spec.Count = a.number("count")
			}
			if a.has("promote") {
				spec.Rollout.Promoted = spec.Generation
			}
			spec.Rollout.Paused = a.has("paused")
		})
	case "leader":
		s.since = s.now
		for _, n := range s.nodes {
			s.unreported[n] = true
		}
	case "log":
		r := s.newestOf(words[1])
		r.real.LogTail = strings.Join(words[2:], "\n")
	case "restarts":
		r := s.newestOf(words[1])
		r.real.Restarts, r.real.State, r.real.Health, r.real.Message = a.number("n"), cluster.StateStarting, "",
			"exit code 1"
		s.report(r)
	case "oom":
		s.crash(s.newestOf(words[1]), cluster.ReasonOOM)
	case "permits":
		s.agentsRequestPermits = true
	case "release":
		s.job.Hold, s.job.Updated = false, s.now
	case "retry":
		s.retry(words[1:])
	case "unspec":
		s.service, s.job = nil, nil
	case "nodes":
		s.nodes = words[1:]
	case "drain", "undrain", "move", "unrecord", "recovery":
		s.drainCommand(words, a)
	case "node":
		if s.unreported[words[1]] = words[2] == "unreported"; s.unreported[words[1]] {
			return
		}
		s.absent[words[1]] = map[string]watcher.Absence{
			"present": watcher.Present, "suspected": watcher.Suspected, "silent": watcher.Silent, "gone": watcher.Gone,
		}[words[2]]
	case "task":
		s.task(words, a)
	case "lost":
		r := s.attemptOf(words[1], words[2])
		r.Outcome = &cluster.Outcome{
			Task: r.id, Attempt: r.attempt, UUID: r.Desired.UUID, Node: r.Desired.Node, State: cluster.StateLost,
			Definition: r.Desired.Definition, Started: true, Ended: s.now,
		}
	case "crash":
		r := s.newestOf(words[1])
		if r.real == nil {
			s.Fatalf("%v: nothing runs", words)
		}
		s.crash(r, cmp.Or(cluster.ReasonCode(a["reason"]), cluster.ReasonRestartLimit))
	case "rejects":
		s.rejects = words[1:]
	case "lacks":
		s.lacks = words[1:]
	case "fails":
		before, id, n := s.fails, cluster.TaskID("default."+words[1]), attemptNumber(words[2])
		s.exitCodes[id] = a.number("code")
		s.fails = func(t cluster.TaskID, k int) bool { return before(t, k) || t == id && k == n }
	case "wait":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			s.Fatal(err)
		}
		s.now = s.now.Add(d)
	case "place":
		s.placeCommand(words)
	case "agents":
		for _, r := range s.records {
			if len(words) == 1 || shortID(r.id) == words[1] {
				s.step(r)
			}
		}
	case "decide", "commit", "rounds", "show", "status", "waits", "history", "obstacles":
		s.print(words, a)
	default:
		s.Fatalf("unknown command %v", words)
	}
}

func (s *stage) drainCommand(words []string, a args) {
	s.Helper()
	switch words[0] {
	case "drain":
		d := &cluster.Drain{Since: s.now, Force: a.has("force")}
		if a.has("deadline") {
			in, err := time.ParseDuration(a["deadline"])
			if err != nil {
				s.Fatal(err)
			}
			d.Deadline = s.now.Add(in)
		}
		s.drains[words[1]] = d
	case "undrain":
		delete(s.drains, words[1])
		delete(s.alone, words[1])
	case "move":
		i := slices.IndexFunc(s.last.Moves, func(m reconciler.Move) bool { return shortID(m.Next.Task) == words[1] })
		if i < 0 {
			s.Fatalf("%s is not to move", words[1])
		}
		if !s.commitMove(&s.last.Moves[i]) {
			fmt.Fprintf(&s.out, "  no place for %s\n", words[1])
		}
	case "unrecord":
		r := s.attemptOf(words[1], words[2])
		r.Desired, r.DesiredRev = nil, 0
	case "recovery":
		s.recover.Incarnation = uint64(a.number("incarnation"))
		if a.has("stop") {
			s.recover.StopBefore = s.now.Add(time.Second)
		}
	}
}

func (s *stage) print(words []string, a args) {
	s.Helper()
	switch words[0] {
	case "decide":
		s.last = s.decide(s.tasks())
		s.out.WriteString(s.describe(s.last))
	case "commit":
		part := s.last
		if len(words) > 1 {
			part = reconciler.Decision{}
			if a.has("stops") {
				part.Stops = s.last.Stops
			}
			if a.has("outcomes") {
				part.Conclusions = s.last.Conclusions
			}
			if a.has("rollout") {
				part.Rollout, part.Revert = s.last.Rollout, s.last.Revert
			}
			if a.has("adoptions") {
				part.Adoptions = s.last.Adoptions
			}
			if a.has("cleanups") {
				part.Cleanups = s.last.Cleanups
			}
		}
		before := s.refused
		s.commit(part)
		if n := s.refused - before; n > 0 {
			fmt.Fprintf(&s.out, "  %d refused\n", n)
		}
	case "rounds":
		n, err := strconv.Atoi(words[1])
		if err != nil {
			s.Fatal(err)
		}
		for i := range n {
			d, err := s.round()
			if err != nil {
				s.Fatal(err)
			}
			if text := s.describe(d); text != "  nothing to do\n" {
				fmt.Fprintf(&s.out, "round %d\n%s", i+1, text)
			}
		}
	case "history":
		for _, v := range append([]cluster.Version{s.rollout.Version}, s.rollout.History...) {
			fmt.Fprintf(&s.out, "  %d %s %s%s\n", v.Generation, v.Definition, v.State,
				strings.ReplaceAll(colon(v.Message), "default.", ""))
		}
	case "waits":
		for _, x := range reconciler.Waits(s.input(s.tasks())) {
			fmt.Fprintf(&s.out, "  %s: %s\n", x.Code, strings.ReplaceAll(x.Message, "default.", ""))
		}
	case "obstacles":
		s.obstacles()
	case "show":
		s.out.WriteString(s.listAttempts())
	case "status":
		s.status()
	}
}

// describe omits the time of the next decision if it is far ahead, at a deadline.
func (s *stage) describe(d reconciler.Decision) string {
	if d.NextDecision.Sub(s.now) > 2*time.Minute {
		d.NextDecision = time.Time{}
	}
	return describe(d)
}

func (s *stage) status() {
	if s.owner.Kind == cluster.KindJob {
		st := reconciler.StatusOfJob(reconciler.JobInput{Spec: s.job, Tasks: s.tasks()})
		fmt.Fprintf(&s.out, "  %s: %d tasks, %d pending, %d running, %d succeeded, %d failed, %d cancelled\n", st.State,
			st.Total, st.Pending, st.Running, st.Succeeded, st.Failed, st.Cancelled)
		if st.Message != "" {
			fmt.Fprintf(&s.out, "  %s\n", st.Message)
		}
		for i := range st.Steps {
			if step := &st.Steps[i]; len(st.Steps) > 1 {
				fmt.Fprintf(&s.out, "    %s %s: %d of %d succeeded%s\n", step.Name, step.State, step.Succeeded,
					step.Total, colon(step.Message))
			}
		}
		return
	}
	st := reconciler.StatusOfService(s.input(s.tasks()))
	fmt.Fprintf(&s.out, "  %s: %d wanted, %d running, %d healthy, %d updated, %d waiting\n", st.State, st.Desired,
		st.Running,
		st.Healthy, st.Updated, st.Waiting)
	if st.Message != "" {
		fmt.Fprintf(&s.out, "  %s\n", st.Message)
	}
}

func (s *stage) spec(words []string, a args) {
	s.Helper()
	ref, _ := cluster.ParseRef(a["def"])
	life := cluster.Lifespan{Generation: uint64(a.number("gen")), Deleted: a.has("deleted"), Updated: s.now}
	switch words[0] {
	case "service":
		s.service = &cluster.Service{
			Name: words[1], Definition: ref, Count: a.number("count"), Stopped: a.has("stopped"),
			OnDisconnect: cluster.OnDisconnect(a["disconnect"]), Lifespan: life,
		}
		s.service.SetDefaults()
		s.owner = s.service.Owner()
		s.policy(a)
	case "job":
		var steps []cluster.Step
		if s.job != nil {
			steps = s.job.Steps
		}
		deadline, _ := time.ParseDuration(a["deadline"])
		s.job = &cluster.Job{
			Name: words[1], Steps: steps, Cancelled: a.has("cancelled"), Hold: a.has("hold"),
			Deadline: cluster.Duration(deadline), Submitted: s.now, Lifespan: life,
		}
		s.job.SetDefaults()
		s.owner = s.job.Owner()
	case "step":
		limit, _ := time.ParseDuration(a["limit"])
		s.job.Steps = append(s.job.Steps, cluster.Step{
			Name: words[1], Definition: ref, Count: a.number("count"), Retries: a.number("retries"),
			TimeLimit: cluster.Duration(limit), OnDisconnect: cluster.OnDisconnect(a["disconnect"]),
			Parallelism: a.number("parallelism"), Idempotent: a.has("idempotent"),
		})
		if codes := (cluster.ExitCodes{}); a.has("final") || a.has("intermittent") {
			if a.has("final") {
				codes.Final = []int{a.number("final")}
			} else {
				codes.Intermittent = []int{a.number("intermittent")}
			}
			s.job.Steps[len(s.job.Steps)-1].ExitCodes = &codes
		}
		if needs := a["needs"]; needs != "" {
			step := &s.job.Steps[len(s.job.Steps)-1]
			step.Needs, step.Requires = strings.Split(needs, ","), cluster.Requirement(a["requires"])
		}
		if a.has("gang") {
			deadline, _ := time.ParseDuration(a["gang"])
			s.job.Steps[len(s.job.Steps)-1].Gang = &cluster.Gang{Deadline: cluster.Duration(deadline)}
			s.job.Submitted = s.now
		}
		s.job.SetDefaults()
	}
}

// retry has failed tasks tried again, as the API server does: those with the ids, or all of them.
func (s *stage) retry(ids []string) {
	s.Helper()
	var at time.Time
	tasks := map[string]time.Time{}
	for _, f := range reconciler.FailedTasks(reconciler.JobInput{Spec: s.job, Tasks: s.tasks()}) {
		if len(ids) > 0 && !slices.Contains(ids, shortID(f.ID)) {
			continue
		}
		if f.Placed.After(at) {
			at = f.Placed
		}
		tasks[cluster.RetriedTask(f.Step, f.Index)] = at
	}
	if len(tasks) == 0 {
		s.Fatalf("no task of %v failed", ids)
	}
	if s.job.Retried = (cluster.JobRetries{Tasks: tasks}); len(ids) == 0 {
		s.job.Retried = cluster.JobRetries{All: at}
	}
}

// policy sets the update policy from a service's words.
func (s *stage) policy(a args) {
	s.Helper()
	u := &s.service.Update
	portion := func(key string) *cluster.Portion {
		if !a.has(key) {
			return nil
		}
		p, err := cluster.ParsePortion(a[key])
		if err != nil {
			s.Fatal(err)
		}
		return &p
	}
	duration := func(key string) cluster.Duration {
		d, err := time.ParseDuration(cmp.Or(a[key], "0s"))
		if err != nil {
			s.Fatal(err)
		}
		return cluster.Duration(d)
	}
	u.MaxSurge, u.MinHealthy, u.Parallelism, u.Canaries = portion("surge"), portion("min"), portion("parallel"),
		portion("canaries")
	u.Stagger, u.HealthyDeadline, u.ProgressDeadline = duration("stagger"), duration("healthy"), duration("progress")
	u.Order, u.AutoPromote = cluster.UpdateOrder(a["order"]), a.has("auto")
	if a.has("norollback") {
		u.AutoRollback = new(bool)
	}
	if a.has("gate") {
		u.Gates = []cluster.Gate{{Name: a["gate"], HTTP: "http://gate"}}
	}
	if a.has("daemon") {
		s.service.Mode = cluster.ModeDaemon
	}
	r := &s.service.Reschedule
	r.Limit, r.Delay, r.MaxDelay, r.Window = a.number("limit"), duration("delay"), duration("maxdelay"),
		duration("window")
	s.service.Restarted = uint64(a.number("restarted"))
	s.service.Rollout = cluster.RolloutWish{
		Paused: a.has("paused"), Promoted: uint64(a.number("promoted")),
		Reverted: uint64(a.number("reverted")),
	}
}

// pressureCommand makes a task's node propose to move its newest attempt for memory pressure; "pressure n1" ends the
// pressure.
func (s *stage) pressureCommand(words []string) {
	s.Helper()
	if !strings.Contains(words[1], ".") {
		delete(s.pressured, words[1])
		return
	}
	r := s.newestOf(words[1])
	s.pressured[r.node()] = &cluster.Pressure{
		Since: s.now, Message: "96% is used", Victim: r.Desired.UUID, Task: r.id,
		Why: "it uses 200 MiB beyond what it reserved",
	}
}

// leaveCommand makes the newest attempt of a task leave its node for a reason, or takes the reason back.
func (s *stage) leaveCommand(words []string, a args) {
	s.Helper()
	r := s.newestOf(words[1])
	if words[0] == "unleave" {
		delete(s.leaves, r.Desired.UUID)
		return
	}
	l := &reconciler.Leave{
		Reason: cluster.ReasonCode(a["reason"]), Since: s.now, To: a["to"], Now: a.has("now"),
		Message: fmt.Sprintf("node %s is not for it (%s)", r.node(), a["reason"]),
	}
	if a.has("for") {
		d, err := time.ParseDuration(a["for"])
		if err != nil {
			s.Fatal(err)
		}
		l.From = s.now.Add(d)
	}
	s.leaves[r.Desired.UUID] = l
}

// task adds an attempt to the store and to its node.
func (s *stage) task(words []string, a args) {
	s.Helper()
	if len(words) < 6 {
		s.Fatalf("%v: want task ID aN on NODE def=R STATE [HEALTH]", words)
	}
	ref, _ := cluster.ParseRef(a["def"])
	s.uuid++
	r := &record{id: cluster.TaskID("default." + words[1]), attempt: attemptNumber(words[2])}
	r.Desired = &cluster.Desired{
		Task: r.id, Attempt: r.attempt, UUID: fmt.Sprintf("u%d", s.uuid), Node: words[4], Owner: s.owner,
		Definition: ref,
	}
	switch {
	case s.service != nil:
		r.Desired.OnDisconnect = s.service.OnDisconnect
	case s.job != nil && len(s.job.Steps) > 0:
		r.Desired.OnDisconnect, r.Desired.TimeLimit = s.job.Steps[0].OnDisconnect, s.job.Steps[0].TimeLimit
	}
	r.Desired.Token.Incarnation = 1
	r.DesiredRev = s.next()
	var states []string
	for _, w := range words[5:] {
		if !strings.Contains(w, "=") {
			states = append(states, w)
		}
	}
	if states[0] != "assigned" {
		r.real = &cluster.Observed{
			Task: r.id, Attempt: r.attempt, UUID: r.Desired.UUID, Node: words[4],
			State: cluster.State(states[0]), Definition: ref,
		}
		if len(states) > 1 {
			r.real.Health = cluster.Health(states[1])
		}
		if r.real.State == cluster.StateRunning {
			r.real.Started = s.now
		}
		s.report(r)
	}
	s.records = append(s.records, r)
	if s.rollout == nil && s.service != nil {
		s.setRolledOut()
	}
}

// setRolledOut marks the service's newest version as rolled out long ago.
func (s *stage) setRolledOut() {
	v := cluster.Version{
		Generation: s.service.Generation, Definition: s.service.Definition,
		State: cluster.RolloutComplete,
	}
	s.rollout, s.rolloutRev = &cluster.Rollout{Version: v, Healthy: &v, Most: s.service.Count}, s.next()
}

func attemptNumber(word string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(word, "a"))
	return n
}

func (s *stage) attemptOf(id, attempt string) *record {
	s.Helper()
	r := s.find(cluster.TaskID("default."+id), attemptNumber(attempt))
	if r == nil {
		s.Fatalf("there is no %s %s", id, attempt)
	}
	return r
}

func (s *stage) newestOf(id string) *record {
	s.Helper()
	var newest *record
	for _, r := range s.records {
		if r.id == cluster.TaskID("default."+id) && (newest == nil || r.attempt > newest.attempt) {
			newest = r
		}
	}
	if newest == nil {
		s.Fatalf("there is no %s", id)
	}
	return newest
}

func (s *stage) placeCommand(words []string) {
	s.Helper()
	if len(words) == 1 {
		if err := s.placeAll(s.last); err != nil {
			s.Fatal(err)
		}
		return
	}
	for _, p := range s.last.Pending {
		if shortID(p.Task) == words[1] {
			if err := s.place(p, words[3]); err != nil {
				fmt.Fprintf(&s.out, "  refused: %v\n", err)
			}
			return
		}
	}
	s.Fatalf("%s is not pending", words[1])
}
