package attempt

import (
	"encoding/json"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/logic/lifecycle"
	"github.com/berthd/berth/internal/testkit"
)

// model is a node with all possible events: the agent dies and loses changes that are not durable, the machine reboots,
// steps fail, answers are late. It checks the invariants.
type model struct {
	*rapid.T
	def     *cluster.TaskDefinition
	rec     *Record
	durable []byte // the record after a crash
	boot    int
	clock   time.Duration
	wall    time.Time

	programs    map[executor.ID]*executor.Status
	starts      map[int]int   // of each container
	passed      time.Duration // when the newest passed barrier was requested
	stopped     bool          // a stop is durable
	shown       cluster.State
	sessions    uint64
	asked       map[string]time.Duration // when each ask was first sent
	used        bool                     // a permit
	stopsAtOnce bool                     // a stop began with a server without permits
	failed      map[int]bool             // rounds with a failed startup or liveness check
}

func newModel(t *rapid.T) *model {
	batch := rapid.Bool().Draw(t, "batch")
	m := &model{
		T: t, clock: time.Hour, wall: time.Unix(1_800_000_000, 0).UTC(), shown: cluster.StateAssigned,
		programs: map[executor.ID]*executor.Status{}, starts: map[int]int{},
		asked: map[string]time.Duration{}, failed: map[int]bool{},
	}
	m.def = &cluster.TaskDefinition{Name: "d", Version: 1, Checks: drawChecks(t)}
	n := rapid.IntRange(1, 4).Draw(t, "containers")
	for i := range n {
		c := cluster.Container{Name: fmt.Sprint("c", i)}
		c.Init = i < n-1 && rapid.IntRange(0, 3).Draw(t, "init") == 0
		c.Optional = !c.Init && rapid.IntRange(0, 3).Draw(t, "optional") == 0
		if i > 0 && rapid.Bool().Draw(t, "after") {
			c.After = []string{"c0"}
		}
		m.def.Containers = append(m.def.Containers, c)
	}
	if rapid.Bool().Draw(t, "registered") {
		m.def.Discovery.Consul = []cluster.ConsulService{{Name: "x"}}
	}
	modes := []cluster.RestartMode{"", cluster.RestartAlways, cluster.RestartOnFailure, cluster.RestartNever}
	m.def.Restart.Mode = rapid.SampledFrom(modes).Draw(t, "mode")
	d := cluster.Desired{Task: "c.s.1.0", Attempt: 1, UUID: "u", Owner: cluster.OwnerRef{Kind: cluster.KindService}}
	if batch {
		d.Owner.Kind = cluster.KindJob
		d.TimeLimit = cluster.Duration(rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "limit"))
	}
	m.rec = New(d, 1, m.bootID())
	m.save()
	return m
}

func (m *model) bootID() string { return fmt.Sprint("boot-", m.boot) }
func (m *model) now() Now       { return Now{Boot: m.clock, Wall: m.wall} }

func (m *model) pass(d time.Duration) {
	m.clock += d
	m.wall = m.wall.Add(d)
}

func (m *model) save() {
	b, err := json.Marshal(m.rec)
	if err != nil {
		m.Fatal(err)
	}
	m.durable = b
	m.stopped = m.rec.Desired.Stop != nil
}

// load replaces the record by the durable one; a record in memory equals one that was read.
func (m *model) load() {
	m.rec, m.used, m.stopsAtOnce = new(Record), false, false
	defer func() { m.used = m.rec.Permit.Used }()
	if err := json.Unmarshal(m.durable, m.rec); err != nil {
		m.Fatal(err)
	}
}

// steps does some steps, like an agent without disturbance.
func (m *model) steps() {
	for range rapid.IntRange(1, 6).Draw(m.T, "steps") {
		m.step()
	}
}

// step does the record's next step, or fails at it.
func (m *model) step() {
	s := m.rec.Next(m.def, m.now())
	if again := m.rec.Next(m.def, m.now()); again != s {
		m.Fatalf("asked twice, it wants %+v and then %+v", s, again)
	}
	m.observe()
	if rapid.IntRange(0, 5).Draw(m.T, "fails") == 5 && s.Do != Launch {
		return // the record asks again later
	}
	c := s.Container
	switch s.Do {
	case Admit:
		m.rec.Admitted("x", m.def)
	case Prepare:
		if rapid.IntRange(0, 9).Draw(m.T, "bad image") == 9 {
			if rapid.Bool().Draw(m.T, "no program") {
				m.rec.NoProgram(c, "no", m.now())
			} else {
				m.rec.PrepareFailed(c, "no", m.now())
			}
			return
		}
		id := m.rec.Containers[c].ID
		if m.programs[id] == nil {
			m.programs[id] = &executor.Status{ID: id, State: executor.StatePrepared}
		}
		m.rec.WasPrepared(c)
	case ProbePorts:
		m.rec.PortsProbed()
	case Launch:
		m.launch(c)
	case Discard:
		delete(m.programs, m.rec.Containers[c].ID)
		m.rec.WasDiscarded(c, m.now())
	case Use:
		m.save()
		m.rec.PermitKept()
	case Leave:
		if r := m.rec; r.Ending == nil && r.stop() == nil {
			m.Fatal("leaves while nothing ends it")
		}
		m.rec.HasLeft(m.now())
	case Signal:
		if r := m.rec; r.IsRegistered(m.def) {
			m.Fatal("gets a signal while it is registered")
		}
		if e := m.rec.Ending; e.Cause == lifecycle.CauseStop && m.rec.Session.Asks {
			m.permitted()
		}
		m.save()
		m.signal(s.Signal)
		m.rec.Signalled(s.Signal, m.now())
	case Close:
		m.rec.Closed("tail")
	case Tail:
		m.rec.Tailed("tail")
	case Clear:
		if len(m.live()) > 0 {
			m.Fatal("cleared while a program runs")
		}
		clear(m.programs)
		m.rec.Cleared()
	case Wait:
	}
}

// launch makes the intent durable and starts the program, with or without reporting it.
func (m *model) launch(c int) {
	m.save()
	r, id := m.rec, m.rec.Containers[c].ID
	p := m.programs[id]
	if p == nil {
		m.Fatalf("container %s is launched and was not prepared", id)
	}
	kind := rapid.IntRange(0, 9).Draw(m.T, "start")
	if kind == 0 {
		return // the executor did not answer and did nothing
	}
	if kind == 1 {
		delete(m.programs, id)
		if rapid.Bool().Draw(m.T, "no program") {
			r.NoProgram(c, "no", m.now())
		} else {
			r.StartFailed(c, "no", m.now())
		}
		return
	}
	if p.State == executor.StatePrepared {
		m.allowed(c)
		p.State = executor.StateRunning
		m.starts[c]++
	}
	if kind == 2 {
		return // the result is unknown
	}
	if kind == 3 {
		delete(m.programs, id)
		r.StartInDoubt(c, "an odd answer", m.now())
		return
	}
	r.WasStarted(c, executor.Process{Pid: 1}, m.now())
}

// allowed fails if the program of the container must not start now.
func (m *model) allowed(c int) {
	r := m.rec
	if r.stop() != nil {
		m.Fatal("started after its stop was requested")
	}
	if r.Terminal() {
		m.Fatal("started after its end")
	}
	for i := range r.Containers {
		for id, p := range m.programs {
			if id != r.Containers[i].ID && p.State == executor.StateRunning && m.container(id) == i && i == c {
				m.Fatalf("container %d is started while its run %s lives", c, id)
			}
		}
	}
	if !r.Desired.Batch() {
		return
	}
	if r.Started.IsZero() && (m.passed == 0 || m.clock-m.passed > BarrierAge) {
		m.Fatalf("user code starts %v after its barrier was requested", m.clock-m.passed)
	}
	if mode := m.def.Restart.Mode; m.starts[c] > 0 && (mode == "" || mode == cluster.RestartNever) {
		m.Fatal("a batch program is started a second time")
	}
}

func (m *model) container(id executor.ID) (i int) {
	var round int
	if _, err := fmt.Sscanf(string(id), "u-%d-%d", &i, &round); err != nil {
		m.Fatal(err)
	}
	return i
}

func (m *model) live() (ids []executor.ID) {
	for id, p := range m.programs {
		if p.State == executor.StateRunning {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// signal ends some of the programs; KILL ends all.
func (m *model) signal(sig syscall.Signal) {
	for i := range m.rec.Containers {
		id := m.rec.Containers[i].ID
		if p := m.programs[id]; p != nil && p.State == executor.StateRunning &&
			(sig == syscall.SIGKILL || rapid.Bool().Draw(m.T, "heeds TERM")) {
			m.exit(id, cluster.Exit{Code: 128 + int(sig), Signal: int(sig), At: m.wall})
		}
	}
}

func (m *model) exit(id executor.ID, e cluster.Exit) {
	m.programs[id].State, m.programs[id].Exit = executor.StateExited, &e
	if rapid.IntRange(0, 4).Draw(m.T, "reported late") > 0 {
		m.rec.HasExited(id, e, m.now())
	}
}

// reportEnds reports all unreported ends.
func (m *model) reportEnds() {
	for i := range m.rec.Containers {
		if p := m.programs[m.rec.Containers[i].ID]; p != nil && p.Exit != nil &&
			m.rec.Containers[i].Progress == Running {
			m.rec.HasExited(p.ID, *p.Exit, m.now())
		}
	}
}

// permitted fails if a voluntary stop ends a program without the durable use of a permit (P5.2).
func (m *model) permitted() {
	var kept Record
	if err := json.Unmarshal(m.durable, &kept); err != nil {
		m.Fatal(err)
	}
	begun := kept.Ending != nil && kept.Ending.Cause == lifecycle.CauseStop
	if s := m.rec.Desired.Stop; s.Class == cluster.StopVoluntary && !kept.Permit.Used && !begun && !m.stopsAtOnce {
		m.Fatalf("ended by the voluntary stop %+v before the use of its permit was durable", s)
	}
}

func (m *model) session(asks bool) {
	m.sessions++
	m.rec.Session = Session{Number: m.sessions, Asks: asks}
}

// report sends the requests; requestStop and grant answer.
func (m *model) report() {
	if ask := m.rec.Observed(m.def).Ask; ask != "" && m.rec.Session.Number != 0 {
		if _, sent := m.asked[ask]; !sent {
			m.asked[ask] = m.clock
		}
		m.rec.Permit.AskSent(ask, m.now())
	}
}

// serverActs draws the server's messages about a voluntary stop, and when they reach the agent.
func (m *model) serverActs() {
	switch said := rapid.SampledFrom([]string{
		"session", "old server", "report", "stop", "grant", "grant", "nothing",
		"nothing",
	}).Draw(m.T, "said"); {
	case said == "session" || said == "old server":
		m.session(said == "session")
	case said == "report":
		m.report()
	case said == "stop" && m.rec.Begun != 0:
		m.requestStop("")
	case said == "grant" && m.rec.Begun != 0:
		if m.rec.Desired.Stop == nil {
			m.session(true)
			m.requestStop("")
			m.rec.Attend(m.now())
		}
		m.report()
		m.pass(time.Duration(rapid.SampledFrom([]int{0, 1, 30, 31, 60}).Draw(m.T, "answered after")) * time.Second)
		m.requestStop(m.rec.Permit.Ask)
	}
}

func (m *model) requestStop(permit string) {
	d := m.rec.Desired
	d.Stop = &cluster.Stop{Class: cluster.StopVoluntary, Reason: cluster.ReasonRollout, Permit: permit}
	if !m.rec.Update(&d, m.rec.Revision+1) {
		m.Fatal("a newer stop was refused")
	}
}

func (m *model) observe() {
	if e := m.rec.Ending; e != nil && e.Cause == lifecycle.CauseStop && !m.rec.Session.Asks {
		m.stopsAtOnce = true
	}
	if p := m.rec.Permit; p.Used && !m.used {
		m.used = true
		if asked, sent := m.asked[p.Ask]; !sent || m.clock-asked > PermitAge {
			m.Fatalf("the permit %q is used %v after it was requested", p.Ask, m.clock-asked)
		}
	}
	o := m.rec.Observed(m.def)
	if !lifecycle.Follows(m.shown, o.State) {
		m.Fatalf("shown as %s after %s", o.State, m.shown)
	}
	m.shown = o.State
	if e := m.rec.Ending; e != nil && e.Cause == lifecycle.CauseCheck && !m.failed[m.rec.Round] {
		m.Fatalf("ended by %q, which nothing reported", e.Problem)
	}
	if m.rec.Health == cluster.HealthHealthy && m.rec.Up != 0 && m.rec.Through == 0 {
		m.Fatal("healthy before its start is through")
	}
	if o.State.Terminal() && m.rec.MayRun() {
		m.Fatalf("%s while something may run", o.State)
	}
}

func (m *model) crash() {
	m.load()
	m.shown = m.rec.Observed(m.def).State
	held := map[executor.ID]executor.Status{}
	for id, p := range m.programs {
		held[id] = *p
	}
	fresh := m.rec.Boot != m.bootID() && m.rec.Begun == 0
	m.rec.Recover(held, m.bootID(), m.now())
	if fresh { // nothing ran: it is prepared once more
		m.shown = m.rec.Observed(m.def).State
	}
}

func (m *model) stop(ended bool) {
	d := m.rec.Desired
	d.Stop = &cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonDeleted, Ended: ended}
	if !m.rec.Update(&d, m.rec.Revision+1) {
		m.Fatal("a newer stop was refused")
	}
}

func TestModel(t *testing.T) {
	ends := map[cluster.State]int{}
	testkit.CheckRounds(t, 20, func(t *rapid.T) { whatever(t, ends) }, nil)
	t.Logf("ended as %v", ends)
	if total := 2000; ends[cluster.StateSucceeded] < total/50 || ends[cluster.StateFailed] < total/50 {
		t.Errorf("the model is one-sided: %v", ends)
	}
}

func whatever(t *rapid.T, ends map[cluster.State]int) {
	{
		m := newModel(t)
		exit := func(t *rapid.T) {
			m.T = t
			for _, id := range m.live() {
				code := max(0, rapid.IntRange(-3, 1).Draw(t, "code"))
				m.exit(id, cluster.Exit{Code: code, At: m.wall})
				return
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"step":   func(t *rapid.T) { m.T = t; m.steps() },
			"again":  func(t *rapid.T) { m.T = t; m.steps() },
			"more":   func(t *rapid.T) { m.T = t; m.steps() },
			"on":     func(t *rapid.T) { m.T = t; m.steps() },
			"and on": func(t *rapid.T) { m.T = t; m.steps() },
			"save":   func(*rapid.T) { m.save() },
			"time": func(t *rapid.T) {
				m.pass(time.Duration(rapid.IntRange(1, 40).Draw(t, "seconds")) * time.Second)
			},
			"barrier": func(t *rapid.T) {
				if !m.rec.AtBarrier() {
					t.Skip("not at its barrier")
				}
				m.passed = m.clock - time.Duration(rapid.SampledFrom([]int{0, 1, 2, 30, 40}).Draw(t, "age"))*time.Second
				m.rec.BarrierPassed(m.passed)
			},
			"refused": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "refused") == 0 {
					m.rec.BarrierRefused("no")
				}
			},
			"renew": func(t *rapid.T) {
				if rapid.IntRange(0, 2).Draw(t, "renew") != 0 {
					t.Skip("not now")
				}
				if round := m.rec.Round; m.rec.Renew(round, "other addresses") && (m.rec.Desired.Batch() || m.stopped) {
					t.Fatal("what has to stop, or is not begun again, was renewed")
				}
			},
			"exit":     exit,
			"exit too": exit,
			"tell":     func(*rapid.T) { m.reportEnds() },
			"crash":    func(*rapid.T) { m.crash() },
			"reboot": func(t *rapid.T) {
				if rapid.IntRange(0, 4).Draw(t, "reboot") == 0 {
					m.boot++
					m.clock = time.Minute
					clear(m.asked)
					m.passed = 0
					clear(m.programs)
					m.crash()
				}
			},
			"stop": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "stop") == 0 {
					m.stop(false)
				}
			},
			"talk": func(t *rapid.T) { m.T = t; m.serverActs() },
			"look": func(t *rapid.T) { m.T = t; m.checks() },
		})
		m.T = t
		m.stop(true)
		for range 200 {
			m.step()
			m.reportEnds()
			m.pass(10 * time.Second)
			if m.rec.Phase == PhaseGone {
				ends[m.rec.Observed(m.def).State]++
				return
			}
		}
		t.Fatalf("not gone after a long time: %+v", m.rec)
	}
}
