package executortest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/logs"
	"github.com/berthd/berth/internal/yardstick"
)

// basicTests are the life of a container.
func basicTests() []test {
	return []test{
		{"life", nil, life},
		{"exit codes", nil, exitCodes},
		{"start at most once", nil, startOnce},
		{"concurrent starts", nil, concurrentStarts},
		{"prepare again", nil, prepareAgain},
		{"remove", nil, removeAny},
		{"remove and make again", nil, makeAgain},
		{"not found", nil, notFound},
		{"start beside remove", nil, startBesideRemove},
		{"several waiters", nil, severalWaiters},
		{"agent restart", nil, agentRestart},
		{"end while the agent is away", nil, endWhileAway},
		{"logs", nil, logLines},
		{"cancelled contexts", nil, cancelled},
		{"unknown exit", func(m Machine) string {
			if m.Orphan == nil {
				return "supervisor"
			}
			return ""
		}, unknownExit},
	}
}

func life(b *bench) {
	fact, err := b.ex.Probe(b.Context())
	if err != nil || fact.Name == "" {
		b.Fatalf("probe: %+v %v", fact, err)
	}
	s := b.spec(b.m.Container(Program{After: 200 * time.Millisecond, Exit: 3}))
	b.prepare(s)
	if got := b.state(s.ID, executor.StatePrepared); !cmp.Equal(got.Labels, s.Labels) {
		b.Errorf("labels: %v, want %v", got.Labels, s.Labels)
	}
	p, err := b.ex.Start(b.Context(), s.ID)
	b.must(err)
	if got := b.state(s.ID, executor.StateRunning).Process; got.Pid != p.Pid || got.PidStart != p.PidStart ||
		!got.Started.Equal(p.Started) {
		b.Errorf("the running process is listed as %+v, started as %+v", got, p)
	}
	exit := b.wait(s.ID)
	b.wantExit(exit, cluster.Exit{Code: 3})
	if again := b.wait(s.ID); !again.At.Equal(exit.At) || again.Code != 3 {
		b.Errorf("waited again: %+v, first %+v", again, exit)
	}
	if got := b.state(s.ID, executor.StateExited); got.Exit == nil || got.Exit.Code != 3 {
		b.Errorf("listed as %+v", got)
	}
	b.must(b.ex.Remove(b.Context(), s.ID))
	if _, ok := b.status(s.ID); ok {
		b.Errorf("still listed after remove")
	}
}

func exitCodes(b *bench) {
	for _, code := range []int{0, 1, 125, 255} {
		id := b.start(b.spec(b.m.Container(Program{Exit: code})))
		b.wantExit(b.wait(id), cluster.Exit{Code: code})
	}
}

func startOnce(b *bench) {
	s := b.spec(b.m.Container(Program{Forever: true}))
	id := b.start(s)
	_, err := b.ex.Start(b.Context(), id)
	b.wantErr("start of a running container", err, executor.ErrStarted)
	b.newLife()
	_, err = b.ex.Start(b.Context(), id)
	b.wantErr("start of a running container in a new life", err, executor.ErrStarted)
	b.must(b.ex.Signal(b.Context(), id, syscall.SIGKILL))
	b.wait(id)
	_, err = b.ex.Start(b.Context(), id)
	b.wantErr("start of an ended container", err, executor.ErrStarted)
	b.newLife()
	_, err = b.ex.Start(b.Context(), id)
	b.wantErr("start of an ended container in a new life", err, executor.ErrStarted)
	b.wantErr("prepare of an ended container", b.ex.Prepare(b.Context(), s, nil), executor.ErrStarted)
}

func concurrentStarts(b *bench) {
	s := b.spec(b.m.Container(Program{Stdout: "once", Forever: true}))
	id := b.prepare(s)
	var wg sync.WaitGroup
	var started atomic.Int32
	for range 8 {
		wg.Go(func() {
			_, err := b.ex.Start(b.Context(), id)
			switch {
			case err == nil:
				started.Add(1)
			case !errors.Is(err, executor.ErrStarted):
				b.Errorf("concurrent start: %v", err)
			}
		})
	}
	wg.Wait()
	if n := started.Load(); n != 1 {
		b.Errorf("%d of 8 concurrent starts succeeded", n)
	}
	b.appears(s, "once\n")
	b.must(b.ex.Remove(b.Context(), id))
	if got := b.output(s); got != "once\n" {
		b.Errorf("the program printed %q", got)
	}
}

func prepareAgain(b *bench) {
	s := b.spec(b.m.Container(Program{}))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := b.ex.Prepare(b.Context(), s, func(string) {}); err != nil {
				b.Errorf("concurrent prepare: %v", err)
			}
		})
	}
	wg.Wait()
	b.newLife()
	id := b.start(s)
	b.wantExit(b.wait(id), cluster.Exit{})
	b.wantErr("prepare after the end", b.ex.Prepare(b.Context(), s, nil), executor.ErrStarted)
}

func removeAny(b *bench) {
	b.must(b.ex.Remove(b.Context(), "never-was"))
	for _, end := range []string{"prepared", "running", "exited"} {
		s := b.spec(b.m.Container(Program{Forever: end == "running", IgnoreTerm: end == "running"}))
		id := b.prepare(s)
		if end != "prepared" {
			_, err := b.ex.Start(b.Context(), id)
			b.must(err)
		}
		if end == "exited" {
			b.wait(id)
		}
		for range 2 {
			if err := b.ex.Remove(b.Context(), id); err != nil {
				b.Fatalf("remove %s: %v", end, err)
			}
			if _, ok := b.status(id); ok {
				b.Errorf("%s: still listed after remove", end)
			}
		}
		_, err := b.ex.Wait(b.Context(), id)
		b.wantErr(end+": wait after remove", err, executor.ErrNotFound)
	}
}

func makeAgain(b *bench) {
	s := b.spec(b.m.Container(Program{Exit: 4}))
	for range 2 {
		b.wantExit(b.wait(b.start(s)), cluster.Exit{Code: 4})
		b.must(b.ex.Remove(b.Context(), s.ID))
	}
}

func notFound(b *bench) {
	_, err := b.ex.Start(b.Context(), "never-was")
	b.wantErr("start", err, executor.ErrNotFound)
	if errors.Is(err, executor.ErrNotStarted) {
		b.Errorf("start: %v promises that the program never ran, although nothing is known of it", err)
	}
	_, err = b.ex.Wait(b.Context(), "never-was")
	b.wantErr("wait", err, executor.ErrNotFound)
	b.wantErr("signal", b.ex.Signal(b.Context(), "never-was", syscall.SIGTERM), executor.ErrNotFound)
	_, err = b.ex.Exec(b.Context(), "never-was", executor.Command{Args: []string{"true"}})
	b.wantErr("exec", err, executor.ErrNotFound)
}

// startBesideRemove starts programs while they are removed. A program that certainly was not started has printed
// nothing.
func startBesideRemove(b *bench) {
	for range 10 {
		s := b.spec(b.m.Container(Program{Stdout: "ran", Forever: true}))
		id := b.prepare(s)
		var removed sync.WaitGroup
		removed.Go(func() {
			if err := b.ex.Remove(b.Context(), id); err != nil {
				b.Errorf("remove: %v", err)
			}
		})
		_, err := b.ex.Start(b.Context(), id)
		removed.Wait()
		b.must(b.ex.Remove(b.Context(), id)) // the start may have come after the first Remove
		if printed := b.output(s); printed != "" && errors.Is(err, executor.ErrNotStarted) {
			b.Errorf("start: %v, and the program printed %q", err, printed)
		}
	}
}

func severalWaiters(b *bench) {
	id := b.prepare(b.spec(b.m.Container(Program{After: 100 * time.Millisecond, Exit: 6})))
	var wg sync.WaitGroup
	for range 5 { // signals may arrive before the start
		wg.Go(func() {
			if exit, err := b.ex.Wait(b.Context(), id); err != nil || exit.Code != 6 {
				b.Errorf("wait: %+v %v", exit, err)
			}
		})
	}
	_, err := b.ex.Start(b.Context(), id)
	b.must(err)
	wg.Wait()
}

func agentRestart(b *bench) {
	s := b.spec(b.m.Container(Program{Stdout: "up", Forever: true, OnTerm: 9}))
	id := b.start(s)
	prepared := b.prepare(b.spec(b.m.Container(Program{Exit: 2})))
	b.appears(s, "up\n")
	before := b.state(id, executor.StateRunning)
	b.newLife()
	b.state(prepared, executor.StatePrepared)
	after := b.state(id, executor.StateRunning)
	if diff := cmp.Diff(before, after); diff != "" {
		b.Errorf("listed otherwise after a restart (-before +after):\n%s", diff)
	}
	ended := make(chan cluster.Exit, 1)
	go func() { ended <- b.wait(id) }()
	b.must(b.ex.Signal(b.Context(), id, syscall.SIGTERM))
	b.wantExit(<-ended, cluster.Exit{Code: 9})
	_, err := b.ex.Start(b.Context(), prepared)
	b.must(err)
	b.wantExit(b.wait(prepared), cluster.Exit{Code: 2})
}

func endWhileAway(b *bench) {
	s := b.spec(b.m.Container(Program{After: 50 * time.Millisecond, Stdout: "bye", Exit: 7}))
	id := b.start(s)
	b.newLife()
	b.wantExit(b.wait(id), cluster.Exit{Code: 7})
	if got := b.output(s); got != "bye\n" {
		b.Errorf("output %q", got)
	}
	b.newLife()
	if got := b.state(id, executor.StateExited); got.Exit == nil || got.Exit.Code != 7 {
		b.Errorf("listed as %+v", got)
	}
}

func logLines(b *bench) {
	begin := time.Now().Add(-time.Second)
	s := b.spec(b.m.Container(Program{Stdout: "out", Stderr: "err"}))
	b.wait(b.start(s))
	seen := map[logs.Stream]string{}
	b.must(logs.Read(b.Context(), s.LogDir, logs.Options{}, func(l logs.Line) error {
		if l.Time.Before(begin) || l.Time.After(time.Now()) {
			b.Errorf("a line of %v", l.Time)
		}
		seen[l.Stream] += l.Text
		return nil
	}))
	if want := map[logs.Stream]string{logs.Stdout: "out", logs.Stderr: "err"}; !cmp.Equal(seen, want) {
		b.Errorf("the log at the program's end: %v, want %v", seen, want)
	}
	b.must(b.ex.Remove(b.Context(), s.ID))
	if got := b.output(s); len(got) != len("out\nerr\n") {
		b.Errorf("the log after remove: %q", got)
	}
}

func cancelled(b *bench) {
	ctx, cancel := context.WithCancel(b.Context())
	cancel()
	s := b.spec(b.m.Container(Program{Forever: true}))
	if err := b.ex.Prepare(ctx, s, nil); err == nil {
		b.Errorf("prepare with an ended context succeeded")
	}
	id := b.start(s)
	short, cancel := context.WithTimeout(b.Context(), 50*time.Millisecond)
	defer cancel()
	watch := yardstick.NewStopwatch()
	_, err := b.ex.Wait(short, id)
	if err == nil || watch.Elapsed() > Limit/2 {
		b.Errorf("wait with a short context: %v after %v", err, watch.Elapsed())
	}
	_, err = b.ex.Wait(ctx, id)
	b.wantErr("wait with an ended context", err, context.Canceled)
	b.state(id, executor.StateRunning)
}

func unknownExit(b *bench) {
	id := b.start(b.spec(b.m.Container(Program{Forever: true})))
	ended := make(chan cluster.Exit, 1)
	go func() { ended <- b.wait(id) }()
	b.m.Orphan(id)
	exit := <-ended
	if !exit.Unknown || exit.Success() {
		b.Errorf("got exit %+v, want an unknown one", exit)
	}
	b.newLife()
	if exit = b.wait(id); !exit.Unknown {
		b.Errorf("got exit %+v in a new life, want an unknown one", exit)
	}
	_, err := b.ex.Start(b.Context(), id)
	b.wantErr("start after that", err, executor.ErrStarted)
	b.must(b.ex.Remove(b.Context(), id))
}

// signalTests are about how programs are ended.
func signalTests() []test {
	return []test{
		{"term", nil, func(b *bench) {
			for code, p := range map[int]Program{9: {Stdout: "up", Forever: true, OnTerm: 9}} {
				s := b.spec(b.m.Container(p))
				id := b.start(s)
				b.appears(s, "up")
				b.must(b.ex.Signal(b.Context(), id, syscall.SIGTERM))
				b.wantExit(b.wait(id), cluster.Exit{Code: code})
			}
		}},
		{"term ignored, then kill", nil, func(b *bench) {
			s := b.spec(b.m.Container(Program{Stdout: "up", Forever: true, IgnoreTerm: true}))
			id := b.start(s)
			b.appears(s, "up")
			b.must(b.ex.Signal(b.Context(), id, syscall.SIGTERM))
			short, cancel := context.WithTimeout(b.Context(), 100*time.Millisecond)
			defer cancel()
			if exit, err := b.ex.Wait(short, id); err == nil {
				b.Fatalf("ended by a signal that it ignores: %+v", exit)
			}
			b.must(b.ex.Signal(b.Context(), id, syscall.SIGKILL))
			b.wantExit(b.wait(id), cluster.Exit{Code: 137, Signal: 9})
		}},
		{"signals of what does not run", nil, func(b *bench) {
			id := b.prepare(b.spec(b.m.Container(Program{})))
			b.wantErr("before the start", b.ex.Signal(b.Context(), id, syscall.SIGTERM), executor.ErrNotRunning)
			_, err := b.ex.Start(b.Context(), id)
			b.must(err)
			b.wait(id)
			b.wantErr("after the end", b.ex.Signal(b.Context(), id, syscall.SIGTERM), executor.ErrNotRunning)
			_, err = b.ex.Exec(b.Context(), id, executor.Command{Args: []string{"true"}})
			b.wantErr("exec after the end", err, executor.ErrNotRunning)
		}},
		{"kill ends the whole tree", needShell, func(b *bench) {
			word := fmt.Sprintf("9%d", time.Now().UnixNano()%1e8)
			s := b.spec(b.m.Shell(tree(word) + "sleep " + word))
			id := b.start(s)
			b.appears(s, "grown")
			if n := processes(word); n < 4 {
				b.Fatalf("the tree has %d processes", n)
			}
			b.must(b.ex.Signal(b.Context(), id, syscall.SIGKILL))
			exit := b.wait(id)
			if exit.Code != 137 {
				b.Errorf("exit %+v", exit)
			}
			if n := processes(word); n != 0 {
				b.Errorf("%d processes are left", n)
			}
		}},
		{"orphans end with the program", needShell, func(b *bench) {
			word := fmt.Sprintf("8%d", time.Now().UnixNano()%1e8)
			id := b.start(b.spec(b.m.Shell(tree(word) + "exit 5")))
			b.wantExit(b.wait(id), cluster.Exit{Code: 5})
			if n := processes(word); n != 0 {
				b.Errorf("%d processes are left", n)
			}
		}},
	}
}

// tree is a script that leaves children, grandchildren, a session of its own and an orphan, each with a word
// among its arguments.
func tree(word string) string {
	return fmt.Sprintf(`trap '' TERM; sleep %[1]s & (sleep %[1]s & sleep %[1]s) & setsid sleep %[1]s & (setsid sh -c 'sleep %[1]s & exit 0' &); sleep 0.2; echo grown; `, word)
}
