package executortest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/suite"
)

// Agent acts as an agent until it is killed: it makes containers below dir and starts them, several at a time. Each
// container appends a line to its file "ran"; every third runs until it is removed, the others end immediately. A
// driver's TestMain calls it in a process of its own, for Crash.
func Agent(ctx context.Context, ex executor.Executor, dir string, shell func(script string) cluster.Container) error {
	errs := make(chan error)
	for worker := range 3 {
		go func() {
			for i := 0; ; i++ {
				s, err := crashSpec(dir, executor.ID(fmt.Sprintf("c%d-%d-%d", os.Getpid(), worker, i)), i%3 == 0, shell)
				if err == nil {
					err = ex.Prepare(ctx, s, nil)
				}
				if err == nil && i%4 != 3 { // some are left prepared
					_, err = ex.Start(ctx, s.ID)
				}
				if err == nil && i%3 != 0 && i%4 != 3 && i%2 == 0 { // some ends are seen
					_, err = ex.Wait(ctx, s.ID)
				}
				if err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	return <-errs
}

func crashSpec(dir string, id executor.ID, forever bool, shell func(script string) cluster.Container) (executor.Spec,
	error,
) {
	base := filepath.Join(dir, string(id))
	s := executor.Spec{ID: id, Dir: filepath.Join(base, "own"), LogDir: filepath.Join(base, "log")}
	script := "echo ran >>/berth-test/ran"
	if forever {
		script += "; exec sleep 100000"
	}
	s.Container = shell(script)
	volume := filepath.Join(base, "volume")
	s.Mounts = []executor.Mount{{Source: volume, Path: "/berth-test"}}
	for _, d := range []string{s.Dir, s.LogDir, volume} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return s, fmt.Errorf("make folder: %w", err)
		}
	}
	return s, nil
}

// Each of crashRounds agents is killed some time after the programs of crashPrograms of its containers have run.
const (
	crashRounds   = 8
	crashPrograms = 3
)

// ranAtLeast returns nil once the programs of that many containers below dir have run.
func ranAtLeast(dir string, want int) error {
	ran, err := filepath.Glob(filepath.Join(dir, "c*", "volume", "ran"))
	if err == nil && len(ran) < want {
		err = fmt.Errorf("%d containers ran, want %d", len(ran), want)
	}
	return err
}

// Crash kills agents at random moments, several times, and checks what they leave: no program ran twice, none was lost,
// running programs are still the same processes, and interrupted preparations can be repeated. command makes a process
// that calls Agent with dir; only New and Shell of m are used.
func Crash(t suite.T, m Machine, dir string, command func(ctx context.Context) *exec.Cmd) {
	ex := m.New()
	b := &bench{T: t, m: m, ex: ex}
	running := map[executor.ID]executor.Process{}
	for round := range crashRounds {
		cmd := command(t.Context())
		var said strings.Builder
		cmd.Stdout, cmd.Stderr = &said, &said
		b.must(cmd.Start())
		died := make(chan error, 1)
		go func() { died <- cmd.Wait() }()
		lives := func() {
			select {
			case err := <-died:
				t.Fatalf("the agent died by itself: %v %s", err, said.String())
			default:
			}
		}
		suite.Eventually(t, Limit, func() error {
			lives()
			return ranAtLeast(dir, (round+1)*crashPrograms)
		})
		suite.Pause(t, rand.N(500*time.Millisecond))
		lives()
		b.must(cmd.Process.Kill())
		if err := <-died; err == nil {
			t.Fatalf("the agent ended well")
		}
		all, err := ex.List(t.Context())
		b.must(err)
		now := map[executor.ID]executor.Process{}
		for _, s := range all {
			if s.State == executor.StateRunning {
				now[s.ID] = s.Process
			}
		}
		for id, p := range running {
			if q := now[id]; q.Pid != p.Pid || q.PidStart != p.PidStart {
				t.Errorf("%s ran as %+v and is now %+v", id, p, q)
			}
		}
		running = map[executor.ID]executor.Process{}
		for id, p := range now {
			if endless(id) {
				running[id] = p
			}
		}
	}
	b.prepareUnfinished(dir)
	b.reckon(dir, running)
}

// prepareUnfinished repeats all preparations that a dying agent began, and some that it finished, as the next agent
// does. A container that was never started is listed as prepared, if at all.
func (b *bench) prepareUnfinished(dir string) {
	all, err := b.ex.List(b.Context())
	b.must(err)
	started := map[executor.ID]bool{}
	for _, s := range all {
		started[s.ID] = s.State != executor.StatePrepared
	}
	folders, err := os.ReadDir(dir)
	b.must(err)
	unlisted := 0
	for _, f := range folders {
		id := executor.ID(f.Name())
		if !strings.HasPrefix(f.Name(), "c") || started[id] {
			continue
		}
		if _, listed := started[id]; !listed {
			unlisted++
		}
		s, err := crashSpec(dir, id, endless(id), b.m.Shell)
		b.must(err)
		err = b.ex.Prepare(b.Context(), s, nil)
		if now, _ := b.status(id); errors.Is(err, executor.ErrStarted) && now.State != executor.StatePrepared {
			continue // the last request of the agent took effect after its death
		}
		if err != nil {
			b.Errorf("prepare of %s, which an agent did not finish: %v", id, err)
		}
	}
	b.Logf("%d containers were not listed and were prepared again", unlisted)
}

// reckon checks every container that an agent made, and removes it.
func (b *bench) reckon(dir string, running map[executor.ID]executor.Process) {
	all, err := b.ex.List(b.Context())
	b.must(err)
	states := map[executor.State]int{}
	for _, s := range all {
		states[s.State]++
		_, err := b.ex.Start(b.Context(), s.ID)
		switch {
		case s.State != executor.StatePrepared:
			b.wantErr("start of "+string(s.ID), err, executor.ErrStarted)
		case err != nil && !errors.Is(err, executor.ErrUnavailable):
			b.Errorf("start of prepared %s: %v", s.ID, err)
		}
		var exit cluster.Exit
		if _, runs := running[s.ID]; !runs && !endless(s.ID) {
			if err == nil || s.State != executor.StatePrepared {
				exit = b.wait(s.ID)
			}
		}
		b.must(b.ex.Remove(b.Context(), s.ID))
		ran, readErr := os.ReadFile(filepath.Join(dir, string(s.ID), "volume", "ran"))
		n := strings.Count(string(ran), "\n")
		if n > 1 {
			b.Errorf("%s ran %d times", s.ID, n)
		}
		if s.State == executor.StateExited && (exit.Unknown || n != 1) {
			b.Errorf("%s ended with %+v and ran %d times: %v", s.ID, exit, n, readErr)
		}
	}
	b.Logf("%d containers of crashed agents: %v", len(all), states)
	if len(all) < crashRounds*crashPrograms || len(running) == 0 {
		b.Errorf("the agents made %d containers, and %d of them run forever", len(all), len(running))
	}
}

// endless reports whether a container of a crashed agent runs until it is removed.
func endless(id executor.ID) bool {
	var pid, worker, i int
	_, err := fmt.Sscanf(string(id), "c%d-%d-%d", &pid, &worker, &i)
	return err == nil && i%3 == 0
}
