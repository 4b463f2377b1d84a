package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/transport"
)

// program is how a container of the box behaves.
type program struct {
	Runs     time.Duration // 0: for ever
	Code     int
	OOM      bool
	Deaf     bool // to TERM
	Immortal bool // to KILL, for a while
	Prepare  error
	Start    error         // Start returns it
	Lost     bool          // the first answer of Start is lost
	Late     time.Duration // Start returns that much after the program began
	Pull     time.Duration // Prepare takes so long
}

// box is a machine's executor, which outlives the agents that use it. Each start of a program is an effect
// that is counted.
type box struct {
	mu       sync.Mutex
	programs map[string]program // by container name; "" for all others
	runs     map[executor.ID]*run
	effects  []string // "<container> <attempt>", in the order of their starts
	down     bool     // does not answer
	// crash is told each point before and after an effect; see TestCrashAtEveryStep.
	crash func(point string)
}

func (b *box) point(name string) func() {
	if b.crash == nil {
		return func() {}
	}
	b.crash("before " + name)
	return func() { b.crash("after " + name) }
}

type run struct {
	spec    executor.Spec
	program program
	state   executor.State
	proc    executor.Process
	exit    cluster.Exit
	ended   chan struct{}
	signals []syscall.Signal
	at      []time.Time
}

func newBox() *box { return &box{programs: map[string]program{}, runs: map[executor.ID]*run{}} }

func (b *box) lock() (unlock func(), err error) {
	b.mu.Lock()
	if b.down {
		b.mu.Unlock()
		return nil, executor.ErrUnavailable
	}
	return b.mu.Unlock, nil
}

func (b *box) Probe(context.Context) (cluster.ExecutorFact, error) {
	return cluster.ExecutorFact{Name: "box", Version: "1"}, nil
}

func (b *box) Prepare(ctx context.Context, spec executor.Spec, progress func(string)) error {
	defer b.point("prepare")()
	unlock, err := b.lock()
	if err != nil {
		return err
	}
	p, ok := b.programs[spec.Container.Name]
	if !ok {
		p = b.programs[""]
	}
	unlock()
	if p.Pull > 0 {
		progress("pulling")
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(p.Pull):
		}
	}
	if p.Prepare != nil {
		return p.Prepare
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.runs[spec.ID] == nil {
		b.runs[spec.ID] = &run{spec: spec, program: p, state: executor.StatePrepared, ended: make(chan struct{})}
	}
	return nil
}

func (b *box) Start(ctx context.Context, id executor.ID) (executor.Process, error) {
	defer b.point("start")()
	unlock, err := b.lock()
	if err != nil {
		return executor.Process{}, err
	}
	r := b.runs[id]
	switch {
	case r == nil:
		unlock()
		return executor.Process{}, executor.ErrNotFound
	case r.state != executor.StatePrepared:
		unlock()
		return executor.Process{}, executor.ErrStarted
	case r.program.Start != nil:
		unlock()
		return executor.Process{}, r.program.Start
	}
	r.state = executor.StateRunning
	r.proc = executor.Process{Pid: 100 + len(b.effects), PidStart: uint64(len(b.effects)) + 1, Started: time.Now()}
	b.effects = append(b.effects, r.spec.Container.Name+" "+r.spec.Labels[labelUUID])
	if r.program.Runs > 0 {
		time.AfterFunc(r.program.Runs, func() {
			b.end(r, cluster.Exit{Code: r.program.Code, OOM: r.program.OOM})
		})
	}
	p, late, lost := r.proc, r.program.Late, r.program.Lost
	unlock()
	if lost {
		return executor.Process{}, executor.ErrUnavailable
	}
	if late > 0 {
		select {
		case <-ctx.Done():
			return executor.Process{}, ctx.Err()
		case <-time.After(late):
		}
	}
	return p, nil
}

func (b *box) end(r *run, exit cluster.Exit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.state != executor.StateRunning {
		return
	}
	exit.At = time.Now()
	r.state, r.exit = executor.StateExited, exit
	close(r.ended)
}

func (b *box) Wait(ctx context.Context, id executor.ID) (cluster.Exit, error) {
	unlock, err := b.lock()
	if err != nil {
		return cluster.Exit{}, err
	}
	r := b.runs[id]
	unlock()
	if r == nil {
		return cluster.Exit{}, executor.ErrNotFound
	}
	select {
	case <-ctx.Done():
		return cluster.Exit{}, ctx.Err()
	case <-r.ended:
		b.point("wait")()
		return r.exit, nil
	}
}

func (b *box) Signal(_ context.Context, id executor.ID, sig syscall.Signal) error {
	defer b.point("signal")()
	unlock, err := b.lock()
	if err != nil {
		return err
	}
	r := b.runs[id]
	if r == nil {
		unlock()
		return executor.ErrNotFound
	}
	if r.state != executor.StateRunning {
		unlock()
		return executor.ErrNotRunning
	}
	r.signals = append(r.signals, sig)
	r.at = append(r.at, time.Now())
	deaf := sig == syscall.SIGTERM && r.program.Deaf || r.program.Immortal
	unlock()
	if !deaf {
		b.end(r, cluster.Exit{Code: 128 + int(sig), Signal: int(sig)})
	}
	return nil
}

func (b *box) Remove(_ context.Context, id executor.ID) error {
	defer b.point("remove")()
	unlock, err := b.lock()
	if err != nil {
		return err
	}
	r := b.runs[id]
	delete(b.runs, id)
	unlock()
	if r != nil {
		b.end(r, cluster.Exit{Code: 137, Signal: 9})
	}
	return nil
}

func (b *box) List(context.Context) ([]executor.Status, error) {
	unlock, err := b.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	var all []executor.Status
	for _, id := range slices.Sorted(maps.Keys(b.runs)) {
		r := b.runs[id]
		s := executor.Status{ID: id, Labels: r.spec.Labels, State: r.state}
		switch r.state {
		case executor.StateRunning:
			s.Process = r.proc
		case executor.StateExited:
			exit := r.exit
			s.Exit = &exit
		case executor.StatePrepared, executor.StateUnknown:
		}
		all = append(all, s)
	}
	return all, nil
}

func (b *box) Exec(ctx context.Context, _ executor.ID, cmd executor.Command) (int, error) {
	switch cmd.Args[0] {
	case "cat":
		_, err := io.Copy(cmd.Stdout, cmd.Stdin)
		return 0, err
	case "hang":
		<-ctx.Done()
		return 0, ctx.Err()
	}
	fmt.Fprint(cmd.Stdout, strings.Join(cmd.Args, " "))
	return 3, nil
}

// running returns how many programs run, of all attempts.
func (b *box) running() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.runs {
		if r.state == executor.StateRunning {
			n++
		}
	}
	return n
}

// reboot ends everything as a power cut does.
func (b *box) reboot() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, r := range b.runs {
		if r.state == executor.StateRunning {
			r.state = executor.StateUnknown
		}
		delete(b.runs, id)
	}
}

// server is a Source with a script.
type server struct {
	mu       sync.Mutex
	sessions uint64
	live     uint64
	down     bool
	have     []transport.AssignmentsRequest // of all streams, in order
	sent     []transport.Message            // all that was said, in order, sent anew on each stream as far as it is not had
	streams  map[*stream]bool
	regs     []transport.Registration
	reports  []transport.Report
	seen     map[string]cluster.Observed // newest report of each attempt
	story    map[string][]string         // states of each attempt as they were reported
	// answer, unless nil, makes the reply.
	answer  func(*server, transport.Report) (transport.ReportReply, error)
	carried map[string]io.ReadWriteCloser
	crash   func(point string)
}

func newServer() *server {
	return &server{
		streams: map[*stream]bool{}, seen: map[string]cluster.Observed{}, story: map[string][]string{},
		carried: map[string]io.ReadWriteCloser{},
	}
}

var errDown = errors.New("nobody answers")

func (s *server) Register(_ context.Context, r transport.Registration) (transport.Welcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return transport.Welcome{}, errDown
	}
	if r.Previous != s.sessions {
		return transport.Welcome{}, &transport.SessionError{Newest: s.sessions}
	}
	s.regs = append(s.regs, r)
	for i := range r.Tasks {
		s.see(&r.Tasks[i])
	}
	s.sessions++
	s.live = s.sessions
	return transport.Welcome{
		Session: s.live, Token: cluster.Token{Generation: 1, Incarnation: 1, Epoch: 1},
		Heartbeat: cluster.Duration(5 * time.Second),
	}, nil
}

func (s *server) see(o *cluster.Observed) {
	was := s.seen[o.UUID]
	s.seen[o.UUID] = *o
	text := string(o.State)
	if o.Health != "" && o.Health != cluster.HealthUnknown {
		text += "/" + string(o.Health)
	}
	if o.Gone {
		text += " gone"
	}
	if story := s.story[o.UUID]; len(story) == 0 || story[len(story)-1] != text || was.Restarts != o.Restarts {
		s.story[o.UUID] = append(story, text)
	}
}

type stream struct {
	server *server
	in     chan transport.Message
	broken chan struct{}
}

func (s *server) Assignments(_ context.Context, r transport.AssignmentsRequest) (AssignmentStream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errDown
	}
	if r.Session != s.live {
		return nil, &transport.SessionError{Newest: s.sessions}
	}
	s.have = append(s.have, r)
	st := &stream{server: s, in: make(chan transport.Message, 10_000), broken: make(chan struct{})}
	for _, m := range s.sent {
		switch {
		case m.Assignment != nil && r.Have[m.Assignment.UUID] >= m.Assignment.Revision:
		case m.Definition != nil && slices.Contains(r.Definitions, m.Definition.Ref()):
		case m.Open != nil:
		default:
			st.in <- m
		}
	}
	s.streams[st] = true
	return st, nil
}

func (st *stream) Next(ctx context.Context) (transport.Message, error) {
	select {
	case <-ctx.Done():
		return transport.Message{}, ctx.Err()
	case <-st.broken:
		return transport.Message{}, io.EOF
	case m := <-st.in:
		return m, nil
	}
}

func (st *stream) Close() error {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	delete(st.server.streams, st)
	return nil
}

func (s *server) Report(_ context.Context, r transport.Report) (transport.ReportReply, error) {
	if s.crash != nil {
		s.crash("before report")
		defer s.crash("after report")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return transport.ReportReply{}, errDown
	}
	if r.Session != s.live {
		return transport.ReportReply{}, &transport.SessionError{Newest: s.sessions}
	}
	s.reports = append(s.reports, r)
	if s.answer != nil {
		reply, err := s.answer(s, r)
		if err != nil {
			return reply, err
		}
		for i := range r.Tasks {
			if _, no := reply.Refused[r.Tasks[i].UUID]; !no {
				s.see(&r.Tasks[i])
			}
		}
		return reply, nil
	}
	for i := range r.Tasks {
		s.see(&r.Tasks[i])
	}
	return transport.ReportReply{}, nil
}

func (s *server) Stream(_ context.Context, id string) (io.ReadWriteCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.carried[id]
	if c == nil {
		return nil, errors.New("no such stream")
	}
	return c, nil
}

// say sends messages on all streams, and on those to come.
func (s *server) say(messages ...transport.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, messages...)
	for st := range s.streams {
		for _, m := range messages {
			st.in <- m
		}
	}
}

// cut breaks all streams and, unless up, answers nothing any more.
func (s *server) cut(up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = !up
	for st := range s.streams {
		close(st.broken)
		delete(s.streams, st)
	}
}

// world is a server, a box and an agent that lives and dies.
type world struct {
	t      *testing.T
	server *server
	box    *box
	// attach, unless nil, returns the executor of another life of the agent instead of the box.
	attach func() executor.Executor
	dir    string
	boot   string
	taken  map[int]bool // ports
	probe  func(context.Context, *cluster.Check, map[string]int) error
	began  time.Time

	agent  *Agent
	cancel context.CancelFunc
	done   chan error
	rev    uint64
}

func newWorld(t *testing.T) *world {
	return &world{t: t, server: newServer(), box: newBox(), dir: t.TempDir(), boot: "boot-1", taken: map[int]bool{}, began: time.Now()}
}

// inWorld runs a test in a bubble with an agent that runs.
func inWorld(t *testing.T, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		defer w.stop()
		test(w)
	})
}

func (w *world) config() Config {
	boot := w.boot
	var exec executor.Executor = w.box
	if w.attach != nil {
		exec = w.attach()
	}
	return Config{
		Name: "n1", DataDir: w.dir, Source: w.server, Executors: []executor.Executor{exec},
		Boot: func() time.Duration { return time.Hour + time.Since(w.began) },
		Facts: func(string) (cluster.Facts, error) {
			return cluster.Facts{Hostname: "n1", BootID: boot, Address: "10.0.0.1", CPU: 4000}, nil
		},
		PortFree: func(p int) error {
			if w.taken[p] {
				return errors.New("address already in use")
			}
			return nil
		},
		Probe: w.probe, Random: func() float64 { return 0.5 },
	}
}

func (w *world) start() {
	a, err := New(w.config())
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	w.agent = a
	w.cancel, w.done = cancel, make(chan error, 1)
	go func() { w.done <- a.Run(ctx) }()
	synctest.Wait()
}

// stop ends the agent as a crash does: nothing that runs is told.
func (w *world) stop() {
	w.cancel()
	if err := <-w.done; err != nil {
		w.t.Errorf("the agent ended with %v", err)
	}
}

func (w *world) restart() {
	w.stop()
	w.start()
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	time.Sleep(d) // in-bubble: every world is in one
	synctest.Wait()
}

// definition makes one with the named containers.
func definition(name string, containers ...string) *cluster.TaskDefinition {
	d := &cluster.TaskDefinition{Name: name, Version: 1}
	for _, c := range containers {
		d.Containers = append(d.Containers, cluster.Container{Name: c, Command: []string{"run"}})
	}
	return d
}

func (w *world) desired(uuid string, d *cluster.TaskDefinition, kind cluster.Kind) cluster.Desired {
	id := cluster.ServiceTask("default", "web", 1, 0)
	if kind == cluster.KindJob {
		id = cluster.JobTask("default", "web", 1, "main", 0)
	}
	return cluster.Desired{
		Task: id, Attempt: 1, UUID: uuid, Node: "n1",
		Owner:      cluster.OwnerRef{Kind: kind, Cluster: "default", Name: "web"},
		Definition: d.Ref(), Count: 1,
		Token: cluster.Token{Generation: 1, Incarnation: 1, Epoch: 1},
	}
}

// assign tells the definition and the assignment, and lets the agent act.
func (w *world) assign(d cluster.Desired, def *cluster.TaskDefinition) {
	w.rev++
	w.server.say(transport.Message{Definition: def}, transport.Message{Assignment: &transport.Assignment{Desired: d, Revision: w.rev}})
	w.pass(50 * time.Millisecond)
}

func (w *world) service(uuid string, def *cluster.TaskDefinition) cluster.Desired {
	d := w.desired(uuid, def, cluster.KindService)
	w.assign(d, def)
	return d
}

func (w *world) batch(uuid string, def *cluster.TaskDefinition) cluster.Desired {
	d := w.desired(uuid, def, cluster.KindJob)
	w.assign(d, def)
	return d
}

// tell sends an assignment again with a newer revision.
func (w *world) tell(d cluster.Desired) {
	w.rev++
	w.server.say(transport.Message{Assignment: &transport.Assignment{Desired: d, Revision: w.rev}})
	w.pass(50 * time.Millisecond)
}

func (w *world) stopTask(d cluster.Desired, ended bool) {
	d.Stop = &cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonDeleted, Ended: ended}
	w.tell(d)
}

// want compares the newest report.
func (w *world) want(uuid string, state cluster.State, reason cluster.ReasonCode) cluster.Observed {
	w.t.Helper()
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	o, ok := w.server.seen[uuid]
	if !ok || o.State != state || o.Reason != reason {
		w.t.Errorf("%s is %q (%q, %s), want %q (%q)\nstory: %v", uuid, o.State, o.Reason, o.Message, state, reason, w.server.story[uuid])
	}
	return o
}

func (w *world) wantStory(uuid string, want ...string) {
	w.t.Helper()
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	if got := w.server.story[uuid]; !slices.Equal(got, want) {
		w.t.Errorf("story of %s\n got %q\nwant %q", uuid, got, want)
	}
}

func (w *world) wantEffects(want ...string) {
	w.t.Helper()
	w.box.mu.Lock()
	defer w.box.mu.Unlock()
	if !slices.Equal(w.box.effects, want) {
		w.t.Errorf("programs were started %q, want %q", w.box.effects, want)
	}
}
