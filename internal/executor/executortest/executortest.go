// Package executortest is the contract of package executor as a suite that every driver passes: cases that run as tests
// and in programs.
//
// A test or a program makes a Machine, on which several lives of an agent may follow each other, for each case. The
// Machine leaves out what the driver cannot do at all; everything else must be right.
package executortest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/logs"
	"github.com/berthd/berth/internal/suite"
	"github.com/berthd/berth/internal/yardstick"
)

// Limit is the longest wait for an expected event.
const Limit = 10 * time.Second

// Program is the behaviour of a container in the basic tests, which a fake can play, too. It prints, waits, and exits.
type Program struct {
	Stdout, Stderr string // a line each, unless empty
	After          time.Duration
	Exit           int
	// Forever programs wait for a signal instead.
	Forever bool
	// OnTerm is the exit code after TERM, unless 0; IgnoreTerm programs do nothing about it.
	OnTerm     int
	IgnoreTerm bool
}

// Script is the program for busybox's shell.
func (p Program) Script() string {
	var b strings.Builder
	switch {
	case p.IgnoreTerm:
		b.WriteString("trap '' TERM; ")
	case p.OnTerm != 0:
		fmt.Fprintf(&b, "trap 'exit %d' TERM; ", p.OnTerm)
	}
	if p.Stdout != "" {
		fmt.Fprintf(&b, "echo '%s'; ", p.Stdout)
	}
	if p.Stderr != "" {
		fmt.Fprintf(&b, "echo '%s' >&2; ", p.Stderr)
	}
	switch {
	case p.Forever && p.OnTerm == 0 && !p.IgnoreTerm:
		b.WriteString("exec sleep 1000000")
	case p.Forever:
		b.WriteString("while :; do sleep 0.02; done")
	default:
		fmt.Fprintf(&b, "sleep %.3f; exit %d", p.After.Seconds(), p.Exit)
	}
	return b.String()
}

// Machine is where a driver under test runs.
type Machine struct {
	// New begins the next life of the agent: it returns an executor that knows what its predecessors
	// left. The one before is not used again.
	New func() executor.Executor
	// Container returns a container that plays the program.
	Container func(p Program) cluster.Container
	// Shell returns a container that runs a script with busybox's shell, as root unless the container says otherwise.
	// Without it only the basic tests run.
	Shell func(script string) cluster.Container
	// Cgroup returns the files of a running container's cgroup by their name. Without it limits are not tested.
	Cgroup func(id executor.ID, file string) string
	// Orphan kills the process between the driver and the program, so that the program's end is not observed. Without
	// it the test of unknown exits is skipped.
	Orphan func(id executor.ID)
	// OneUser says that all programs run as the agent's own user, which is not root.
	OneUser bool
	// Lines is how many lines a program prints quickly, 0 for a million. An emulated processor needs fewer.
	Lines int64
}

// Cases returns the suite.
func Cases() []suite.Case[Machine] {
	tests := slices.Concat(basicTests(), signalTests(), realTests(), terminalTests(), limitTests(), isolationTests())
	cases := make([]suite.Case[Machine], len(tests))
	for i, test := range tests {
		cases[i] = suite.Case[Machine]{Name: test.name, Run: func(t suite.T, m Machine) {
			if test.need != nil {
				if missing := test.need(m); missing != "" {
					t.Logf("does not apply: the driver has no %s", missing)
					return
				}
			}
			test.run(&bench{T: t, m: m, ex: m.New()})
		}}
	}
	return cases
}

type test struct {
	name string
	need func(Machine) string // returns what the driver lacks
	run  func(*bench)
}

func needShell(m Machine) string {
	if m.Shell == nil {
		return "programs"
	}
	return ""
}

func needUsers(m Machine) string {
	if m.Shell == nil || m.OneUser {
		return "users"
	}
	return ""
}

func needCgroup(m Machine) string {
	if m.Shell == nil || m.Cgroup == nil {
		return "cgroups"
	}
	return ""
}

// bench is one test with its executor.
type bench struct {
	suite.T
	m  Machine
	ex executor.Executor
}

// newLife ends the agent's life and begins the next.
func (b *bench) newLife() { b.Helper(); b.ex = b.m.New() }

// counter makes ids unique on a machine that outlives a test process.
var counter atomic.Int64

// spec returns a spec for a container, whose folders live as long as the test.
func (b *bench) spec(c cluster.Container) executor.Spec {
	b.Helper()
	id := executor.ID(fmt.Sprintf("t%d--%d", os.Getpid(), counter.Add(1)))
	dir := b.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil { // as agents keep theirs
		b.Fatalf("%v", err)
	}
	s := executor.Spec{
		ID: id, Labels: map[string]string{"task": "web.1." + string(id)}, Container: c,
		Dir: filepath.Join(dir, "own"), LogDir: filepath.Join(dir, "log"),
	}
	for _, d := range []string{s.Dir, s.LogDir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			b.Fatalf("%v", err)
		}
	}
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(b.Context()), yardstick.Scaled(Limit))
		defer cancel()
		if err := b.ex.Remove(ctx, id); err != nil {
			b.Errorf("remove %s at the end: %v", id, err)
		}
	})
	return s
}

func (b *bench) prepare(s executor.Spec) executor.ID {
	b.Helper()
	b.must(b.ex.Prepare(b.Context(), s, nil))
	return s.ID
}

func (b *bench) start(s executor.Spec) executor.ID {
	b.Helper()
	b.started(s)
	return s.ID
}

// started prepares and starts a container.
func (b *bench) started(s executor.Spec) executor.Process {
	b.Helper()
	p, err := b.ex.Start(b.Context(), b.prepare(s))
	b.must(err)
	if p.Pid <= 0 || p.PidStart == 0 || time.Since(p.Started) > time.Hour {
		b.Fatalf("start returned %+v", p)
	}
	return p
}

func (b *bench) wait(id executor.ID) cluster.Exit {
	b.Helper()
	ctx := suite.Context(b, Limit)
	exit, err := b.ex.Wait(ctx, id)
	if err != nil {
		b.Fatalf("wait: %v", err)
	}
	return exit
}

// run runs a script to its end and returns its output.
func (b *bench) run(script string, change ...func(*executor.Spec)) (string, cluster.Exit) {
	b.Helper()
	s := b.spec(b.m.Shell(script))
	for _, c := range change {
		c(&s)
	}
	exit := b.wait(b.start(s))
	return b.output(s), exit
}

// output returns the lines of both streams, each with its end.
func (b *bench) output(s executor.Spec) string {
	b.Helper()
	var out strings.Builder
	b.must(logs.Read(b.Context(), s.LogDir, logs.Options{}, func(l logs.Line) error {
		if l.Lost > 0 {
			fmt.Fprintf(&out, "[%d lost]", l.Lost)
		}
		out.WriteString(l.Text)
		if !l.Partial {
			out.WriteByte('\n')
		}
		return nil
	}))
	return out.String()
}

// appears waits until the log holds a text.
func (b *bench) appears(s executor.Spec, text string) {
	b.Helper()
	suite.Eventually(b, Limit, func() error {
		if out := b.output(s); !strings.Contains(out, text) {
			return fmt.Errorf("the log has no %q: %q", text, out)
		}
		return nil
	})
}

func (b *bench) status(id executor.ID) (executor.Status, bool) {
	b.Helper()
	all, err := b.ex.List(b.Context())
	b.must(err)
	if !slices.IsSortedFunc(all, func(x, y executor.Status) int {
		return strings.Compare(string(x.ID), string(y.ID))
	}) {
		b.Errorf("the list is not ordered")
	}
	i := slices.IndexFunc(all, func(s executor.Status) bool { return s.ID == id })
	if i < 0 {
		return executor.Status{}, false
	}
	return all[i], true
}

func (b *bench) state(id executor.ID, want executor.State) executor.Status {
	b.Helper()
	s, ok := b.status(id)
	if !ok || s.State != want {
		b.Fatalf("the state is %q (listed: %v), want %q", s.State, ok, want)
	}
	return s
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatalf("%v", err)
	}
}

func (b *bench) wantErr(what string, got, want error) {
	b.Helper()
	if !errors.Is(got, want) {
		b.Errorf("%s: got error %v, want %v", what, got, want)
	}
}

func (b *bench) wantExit(got, want cluster.Exit) {
	b.Helper()
	if !got.Unknown && time.Since(got.At) > time.Hour {
		b.Errorf("the exit is of %v", got.At)
	}
	got.At = want.At
	if got != want {
		b.Errorf("got exit %+v, want %+v", got, want)
	}
}

// processes returns how many processes of the machine have a word among their arguments.
func processes(word string) (n int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		args, err := os.ReadFile(f)
		if err == nil && slices.Contains(strings.Split(string(args), "\x00"), word) {
			n++
		}
	}
	return n
}
