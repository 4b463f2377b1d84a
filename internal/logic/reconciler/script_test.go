package reconciler_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/watcher"
)

var update = flag.Bool("update", false, "write what the scripts print into testdata")

// TestScripts plays the stories in testdata against the model in world_test.go. A script is a list of commands; after
// a line "----" stands what they print, up to an empty line. Lines beginning with # are for the reader. Commands:
//
//	definition web@1 [port] [sick]      exists; with a fixed port it is pinned; sick tasks never become healthy
//	service web count=N gen=N def=R [stopped] [deleted] [disconnect=wait]
//	job work gen=N [cancelled] [deleted]
//	step a count=N def=R [retries=N] [limit=D] [disconnect=keep]
//	unspec                              the owner's record is gone
//	nodes n1 n2 …                       there are
//	task web.1.0 a1 on n1 def=R STATE [HEALTH]   an attempt stands like this
//	lost web.1.0 a1                     it has that outcome, and goes on in truth
//	node n1 present|suspected|silent|gone
//	node n1 unreported                  its full report is not in
//	drain n1 [deadline=D] [force]       it is to be emptied; undrain n1
//	move web.1.0                        there is a place for it: what the last decision says of its move is written
//	unrecord web.1.0 a1                 the store loses the desired record
//	recovery [incarnation=N] [stop]     the store went back; the operator said to stop what it does not know
//	crash web.1.0                       the newest attempt ends badly
//	fails work.1.a.0 a1                 that attempt will end badly
//	wait D                              time passes
//	decide                              prints the decision
//	commit [WHAT…]                      the last decision is written; only those kinds of its parts, if named:
//	                                    stops, outcomes, cleanups, trims
//	place [TASK on NODE]                what was pending in the last decision is placed
//	agents [TASK]                       every agent takes a step, of that task only, and reports
//	rounds N                            N turns of decide, commit, place, agents; prints what was decided
//	show | status                       prints the attempts; the counts
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(b), 0)
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(b), got); diff != "" {
				t.Errorf("(-script +got):\n%s", diff)
			}
		})
	}
}

// TestTracesWithoutTheirClauses plays the traces of the budget with the clause off that closes each: then more tasks are given
// up.
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
				t.Errorf("without its clause nothing more is stopped:\n%s", cmp.Diff(string(b), play(t, string(b), off)))
			}
			if off == clause.ChargeHeld && !more("stopped first") {
				t.Error("without its clause no second task is stopped so that it can move")
			}
		})
	}
}

// play returns the script with the output that its commands have now, some clauses switched off.
func play(t *testing.T, script string, without clause.Set) string {
	t.Helper()
	var out strings.Builder
	s := stage{T: t, world: newWorld()}
	s.without = without
	for block := range strings.SplitSeq(strings.TrimRight(script, "\n"), "\n\n") {
		if out.Len() > 0 {
			out.WriteString("\n")
		}
		commands, _, prints := strings.Cut(block, "\n----")
		out.WriteString(commands + "\n")
		s.out.Reset()
		for line := range strings.SplitSeq(commands, "\n") {
			if words := strings.Fields(line); len(words) > 0 && !strings.HasPrefix(line, "#") {
				s.do(words)
			}
		}
		if prints {
			out.WriteString("----\n" + s.out.String())
		} else if s.out.Len() > 0 {
			t.Errorf("this prints, but has no line \"----\":\n%s", commands)
		}
	}
	return out.String()
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
		})
		s.sick[r] = a.has("sick")
	case "service", "job", "step":
		s.spec(words, a)
	case "unspec":
		s.service, s.job = nil, nil
	case "nodes":
		s.nodes = words[1:]
	case "drain", "undrain", "move", "unrecord", "recovery":
		s.empty(words, a)
	case "node":
		if s.unheard[words[1]] = words[2] == "unreported"; s.unheard[words[1]] {
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
		s.crash(r, cluster.ReasonRestartLimit)
	case "fails":
		before, id, n := s.fails, cluster.TaskID("default."+words[1]), attemptNumber(words[2])
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
			if len(words) == 1 || short(r.id) == words[1] {
				s.step(r)
			}
		}
	case "decide", "commit", "rounds", "show", "status":
		s.print(words, a)
	default:
		s.Fatalf("unknown command %v", words)
	}
}

func (s *stage) empty(words []string, a args) {
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
	case "move":
		i := slices.IndexFunc(s.last.Moves, func(m reconciler.Move) bool { return short(m.Next.Task) == words[1] })
		if i < 0 {
			s.Fatalf("%s is not to move", words[1])
		}
		if !s.leave(&s.last.Moves[i]) {
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
		s.out.WriteString(describe(s.last))
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
			if text := describe(d); text != "  nothing to do\n" {
				fmt.Fprintf(&s.out, "round %d\n%s", i+1, text)
			}
		}
	case "show":
		s.out.WriteString(s.picture())
	case "status":
		s.status()
	}
}

func (s *stage) status() {
	if s.owner.Kind == cluster.KindJob {
		st := reconciler.StatusOfJob(reconciler.JobInput{Spec: s.job, Tasks: s.tasks()})
		fmt.Fprintf(&s.out, "  %s: %d tasks, %d pending, %d running, %d succeeded, %d failed, %d cancelled\n", st.State,
			st.Total, st.Pending, st.Running, st.Succeeded, st.Failed, st.Cancelled)
		if st.Message != "" {
			fmt.Fprintf(&s.out, "  %s\n", st.Message)
		}
		return
	}
	st := reconciler.StatusOfService(reconciler.ServiceInput{Spec: s.service, Tasks: s.tasks()})
	fmt.Fprintf(&s.out, "  %s: %d wanted, %d running, %d healthy, %d updated, %d waiting\n", st.State, st.Desired, st.Running,
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
	case "job":
		var steps []cluster.Step
		if s.job != nil {
			steps = s.job.Steps
		}
		s.job = &cluster.Job{Name: words[1], Steps: steps, Cancelled: a.has("cancelled"), Lifespan: life}
		s.job.SetDefaults()
		s.owner = s.job.Owner()
	case "step":
		limit, _ := time.ParseDuration(a["limit"])
		s.job.Steps = append(s.job.Steps, cluster.Step{
			Name: words[1], Definition: ref, Count: a.number("count"), Retries: a.number("retries"),
			TimeLimit: cluster.Duration(limit), OnDisconnect: cluster.OnDisconnect(a["disconnect"]),
		})
		s.job.SetDefaults()
	}
}

// task puts an attempt into the store and, in truth, onto its node.
func (s *stage) task(words []string, a args) {
	s.Helper()
	if len(words) < 6 {
		s.Fatalf("%v: want task ID aN on NODE def=R STATE [HEALTH]", words)
	}
	ref, _ := cluster.ParseRef(a["def"])
	s.uuid++
	r := &record{id: cluster.TaskID("default." + words[1]), attempt: attemptNumber(words[2])}
	r.Desired = &cluster.Desired{
		Task: r.id, Attempt: r.attempt, UUID: fmt.Sprintf("u%d", s.uuid), Node: words[4], Owner: s.owner, Definition: ref,
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
		r.real = &cluster.Observed{Task: r.id, Attempt: r.attempt, UUID: r.Desired.UUID, Node: words[4], State: cluster.State(states[0]), Definition: ref}
		if len(states) > 1 {
			r.real.Health = cluster.Health(states[1])
		}
		if r.real.State == cluster.StateRunning {
			r.real.Started = s.now
		}
		s.report(r)
	}
	s.records = append(s.records, r)
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
		if short(p.Task) == words[1] {
			if err := s.place(p, words[3]); err != nil {
				fmt.Fprintf(&s.out, "  refused: %v\n", err)
			}
			return
		}
	}
	s.Fatalf("%s is not pending", words[1])
}
