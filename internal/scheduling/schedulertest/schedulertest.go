// Package schedulertest is the conformance suite of external schedulers: it runs a scheduler against a domain that it
// models, over the real protocol, and checks what the scheduler claims and proposes. `berth operator test-scheduler`
// runs it. A scheduler that passes places what can be placed, follows the state, sends signs of life, and leaves the
// domain to another instance.
package schedulertest

import (
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/suite"
)

const (
	// Domain is the domain of all cases.
	Domain = "proof"
	// Name is the name of its scheduler.
	Name = "tested"
	// Token is the access token that the scheduler sends.
	Token = "token-of-the-tested-scheduler" //nolint:gosec // a token of a model
	// TakeOver is the silence after which the scheduler loses the domain.
	TakeOver = 6 * time.Second
	// Limit is how long a scheduler may take for what it has to do.
	Limit = 15 * time.Second
	// absence is how long a case watches that something does not happen.
	absence = 3 * time.Second
	// lastAnswers is how long a case waits for requests of a scheduler that has ended.
	lastAnswers = time.Second
	// maxRefusals is how often a case refuses a placement before its repetition is a fault.
	maxRefusals = 5
	// maxProposals is the number of proposals in absence beyond which a scheduler proposes in a busy loop.
	maxProposals = 60
)

// Scheduler is a scheduler under test.
type Scheduler struct {
	// Start starts an instance of it for the domain at the address of a server, such as "http://127.0.0.1:4711".
	Start func(server, instance string) Instance
}

// Instance is a running scheduler. It may end by itself.
type Instance struct {
	// Kill ends the instance at once and returns when it has ended. It is called once, also if the instance has ended.
	Kill func()
	// Ended is closed once the instance has ended.
	Ended <-chan struct{}
}

// Cases returns the cases of the suite.
func Cases() []suite.Case[Scheduler] {
	all := []struct {
		name string
		run  func(*bench)
	}{
		{"claim", claim},
		{"place", place},
		{"follow", follow},
		{"order", order},
		{"unready", unready},
		{"full", full},
		{"refused", refused},
		{"stale", stale},
		{"node-death", nodeDeath},
		{"reset", reset},
		{"beats", beats},
		{"take-over", takeOver},
		{"fenced", fenced},
		{"unavailable", unavailable},
	}
	cases := make([]suite.Case[Scheduler], 0, len(all))
	for _, c := range all {
		cases = append(cases, suite.Case[Scheduler]{Name: c.name, Run: func(t suite.T, s Scheduler) {
			b := newBench(t, s)
			defer b.noFaults()
			c.run(b)
		}})
	}
	return cases
}

// room is CPUs and GiB of memory.
func room(cpus, gib int64) cluster.Room {
	return cluster.Room{CPU: 1000 * cpus, Memory: gib << 30}
}
