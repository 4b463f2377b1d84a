// Package workertest is the worker protocol as a suite: cases in which a worker program meets a scripted server. Each
// case checks promises of docs/reference/worker.md. The cases run as tests and in programs.
package workertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/suite"
	"github.com/berthd/berth/internal/transport"
	"github.com/berthd/berth/internal/yardstick"
)

// Limit is the longest wait for an expected event.
const Limit = 20 * time.Second

// absence is how long a case watches for an event that must not happen.
const absence = 500 * time.Millisecond

// Worker is a worker program under test.
type Worker struct {
	// Node is the name of its node.
	Node string
	// Start starts it for the server at a URL. The returned function ends it as kill -9 does, and returns when it is
	// gone. The next start continues with the state of the one before. Programs of tasks may outlive the worker.
	Start func(url string) (kill func())
}

// Cases returns the suite.
func Cases() []suite.Case[Worker] {
	var cases []suite.Case[Worker]
	for _, c := range []struct {
		name string
		run  func(*bench)
	}{
		{"register", register},
		{"barrier", barrier},
		{"barrier refused", barrierRefused},
		{"barrier refused for now", barrierRetried},
		{"exit code", exitCode},
		{"mandatory stop", mandatoryStop},
		{"stop before the start", stopBeforeStart},
		{"older messages", olderMessages},
		{"older token", olderToken},
		{"forget while it runs", forgetWhileRunning},
		{"lost connection", lostConnection},
		{"newer session", newerSession},
		{"restart", restart},
		{"restart at the barrier", restartAtBarrier},
	} {
		cases = append(cases, suite.Case[Worker]{Name: c.name, Run: func(t suite.T, w Worker) { c.run(open(t, w)) }})
	}
	return cases
}

// bench is one case with its server and its worker.
type bench struct {
	suite.T
	*server
	worker Worker
	dir    string // the programs write here
	kill   func()
}

// open starts a server and a worker, and ends all attempts when the case ends.
func open(t suite.T, w Worker) *bench {
	t.Helper()
	b := &bench{T: t, worker: w, server: newServer(), dir: t.TempDir()}
	if err := errors.Join(os.Chmod(b.dir, 0o777), b.listen()); err != nil { //nolint:gosec // programs of any user write
		t.Fatalf("open the case: %v", err)
	}
	b.kill = w.Start(b.url())
	t.Cleanup(func() {
		b.endAll()
		b.kill()
		b.close()
	})
	return b
}

// start begins the next life of the worker.
func (b *bench) start() { b.kill = b.worker.Start(b.url()) }

// endAll makes the worker remove everything, so that no program outlives the case.
func (b *bench) endAll() {
	b.set(func() { b.refuse = nil })
	b.release()
	for _, uuid := range b.uuids() {
		b.stop(uuid, cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonEnded, Ended: true})
	}
	err := yardstick.Eventually(context.Background(), Limit, func() error {
		for _, uuid := range b.uuids() {
			if b.wasBegun(uuid) && !b.newest(uuid).Gone {
				return fmt.Errorf("attempt %s is not gone after its end", uuid)
			}
		}
		return nil
	})
	if err != nil {
		b.Errorf("end all attempts: %v", err)
	}
}

// program assigns an attempt whose program appends a line to the file ran and then runs a script.
func (b *bench) program(script string) (uuid string) {
	return b.assign(b.worker.Node, "echo x >>"+b.dir+"/ran; "+script)
}

// until returns the script of a program that runs until proceed, or until the case ends if a broken worker has lost it.
// It then ends with code 7.
func (b *bench) until() string {
	return "while [ -d " + b.dir + " ] && ! [ -e " + b.dir + "/go ]; do echo x >>" + b.dir + "/tick; sleep 0.05; " +
		"done; exit 7"
}

// proceed ends the programs of until.
func (b *bench) proceed() {
	b.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, "go"), nil, 0o644); err != nil { //nolint:gosec // any user reads it
		b.Fatalf("let the program end: %v", err)
	}
}

// lines returns the number of lines that programs wrote to a file.
func (b *bench) lines(name string) int {
	text, _ := os.ReadFile(filepath.Join(b.dir, name)) // no file, no lines
	return strings.Count(string(text), "\n")
}

// ran fails the case unless the program began that many times.
func (b *bench) ran(want int) {
	b.Helper()
	if n := b.lines("ran"); n != want {
		b.Errorf("the program began %d times, want %d", n, want)
	}
}

// runsOn waits until the program of until, that of an attempt, has written three more lines. One line may be the last
// of a program that was stopped before.
func (b *bench) runsOn(uuid string) {
	b.Helper()
	before := b.lines("tick")
	suite.Eventually(b, Limit, func() error {
		if b.lines("tick") >= before+3 {
			return nil
		}
		if o := b.newest(uuid); o.State.Terminal() {
			b.Fatalf("the program has ended: the attempt is %s (%s: %s)", o.State, o.Reason, o.Message)
		}
		return errors.New("the program does not run")
	})
}

// reported waits for a state of an attempt and returns the report.
func (b *bench) reported(uuid string, state cluster.State) cluster.Observed {
	b.Helper()
	var o cluster.Observed
	suite.Eventually(b, Limit, func() error {
		o = b.newest(uuid)
		switch {
		case o.State == state:
			return nil
		case o.State.Terminal():
			b.Fatalf("the attempt has ended as %s (%s: %s), want %s", o.State, o.Reason, o.Message, state)
		}
		return fmt.Errorf("the attempt is %q (%s: %s), want %s", o.State, o.Reason, o.Message, state)
	})
	return o
}

// waitHandled waits until the worker has read all messages so far, and has begun with them: it has run an attempt that
// was assigned after them.
func (b *bench) waitHandled() {
	b.Helper()
	b.reported(b.assign(b.worker.Node, "exit 0"), cluster.StateSucceeded)
}

// registered waits for that many registrations and returns the newest.
func (b *bench) registered(n int) transport.Registration {
	b.Helper()
	var all []transport.Registration
	suite.Eventually(b, Limit, func() error {
		if all = b.registrations(); len(all) < n {
			return fmt.Errorf("%d registrations, want %d", len(all), n)
		}
		return nil
	})
	return all[len(all)-1]
}

// finish ends an attempt as the control plane does, and waits until the worker has removed it.
func (b *bench) finish(uuid string) {
	b.Helper()
	b.stop(uuid, cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonEnded, Ended: true})
	suite.Eventually(b, Limit, func() error {
		if !b.newest(uuid).Gone {
			return errors.New("the worker does not report the ended attempt as gone")
		}
		return nil
	})
}
