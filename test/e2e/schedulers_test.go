package e2e_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// placedOutside is a domain with an external scheduler and a cluster. The test waits for the take-over in full. It is
// five times the beat of the schedulers, as in the suite for them.
const placedOutside = `
kind: Domain
name: ci
silence: {suspect: 5s, down: 6s, services: 6s}
scheduler: {type: external, name: %s, token: robot, take_over: scaled(5s)}
---
kind: Cluster
name: build
domain: ci
`

// binpack is the folder of the scheduler that is written in Go.
const binpack = "./examples/schedulers/binpack"

// schedulerProgram is a scheduler that a test runs.
type schedulerProgram struct {
	out  harness.Output
	cmd  *exec.Cmd
	done chan error
}

// startProgram starts a scheduler over HTTP, which ends with the test.
func startProgram(t *testing.T, f *harness.Fleet, token, instance string, command ...string) *schedulerProgram {
	t.Helper()
	authority := filepath.Join(f.Servers[0].Dir, "pki", "ca.crt")
	return runProgram(t, instance, append(command, "--server", strings.Join(f.URLs(), ","), "--domain", "ci",
		"--token-file", token, "--ca-file", authority, "--instance", instance)...)
}

// runProgram starts a scheduler, which ends with the test.
func runProgram(t *testing.T, instance string, command ...string) *schedulerProgram {
	t.Helper()
	p := &schedulerProgram{done: make(chan error, 1)}
	p.cmd = exec.Command(command[0], command[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); p.done <- p.cmd.Wait() }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("the scheduler %s:\n%s", instance, p.out.String())
		}
	})
	return p
}

// TestSchedulerInPython runs examples/schedulers/spread.py, and TestSchedulerInGo examples/schedulers/binpack.
func TestSchedulerInPython(t *testing.T) {
	t.Parallel()
	python := testkit.NeedPython(t)
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	testScheduler(t, "spread", python, filepath.Join(root, "examples", "schedulers", "spread.py"), "--beat", "1")
}

// testScheduler has a scheduler outside of Berth place a service in a domain of two nodes, on a fleet of three servers.
// Nothing is placed before it claims the domain. It replaces the tasks of a node that dies, and goes on when the leader
// of the domain is killed. A second instance fences it off. When that one dies, Berth's own scheduler takes over, until
// a third one claims the domain.
func testScheduler(t *testing.T, name string, command ...string) {
	f := harness.NewFleet(t)
	hosts := harness.Loopback(7)
	f.Start(hosts[:3]...)
	agents := map[string]*harness.Agent{}
	for _, h := range hosts[3:] {
		a := f.Agent(h)
		agents[a.Name] = a
	}
	nodes := readyNodes(t, f)
	f.Berth("run", f.Write("domain.yaml", fmt.Sprintf(placedOutside, name))).Want(t, 0)
	for _, n := range nodes[:3] {
		f.Berth("node", "domain", n, "ci").Want(t, 0)
	}
	inDomain(t, f, "ci", nodes[:3])
	secret := f.Berth("token", "create", "--role", "viewer", "--name", "robot")
	secret.Want(t, 0)
	token := f.Write("token-of-the-scheduler", secret.Stdout)

	f.Berth("run", f.Write("hello.yaml", fmt.Sprintf(hello, 1, 1))).Want(t, 0, "1/1") // the definition, in default
	f.Berth("run", "--detach", f.Write("builds.yaml", fmt.Sprintf(builds, 6))).Want(t, 0)
	f.Eventually(soon, func() error {
		r := f.Berth("explain", "-n", "build", "service/cache")
		if !strings.Contains(r.Stdout, "the scheduler "+name+" has not claimed the domain yet") {
			return fmt.Errorf("the reason is missing:\n%s%s", r.Stdout, r.Stderr)
		}
		return nil
	})

	first := startProgram(t, f, token, "one", command...)
	healthyOn(t, f, "build/cache", 6, nodes[:3])
	f.Berth("domain", "status", "ci").Want(t, 0, name+" (one)")

	agents[nodes[0]].Kill()
	healthyOn(t, f, "build/cache", 6, nodes[1:3])

	leader := leaderOf(t, f, "ci")
	for _, s := range f.Servers {
		if serverID(t, f, s.Host.Address) == leader {
			s.Kill()
			defer s.Start()
		}
	}
	f.Berth("scale", "-n", "build", "service/cache", "8", "--detach").Want(t, 0)
	healthyOn(t, f, "build/cache", 8, nodes[1:3])

	second := startProgram(t, f, token, "two", command...)
	select {
	case <-first.done:
	case <-time.After(time.Minute):
		t.Fatal("the first instance goes on")
	}
	if out := first.out.String(); !strings.Contains(out, "fenced off: two holds the domain") {
		t.Errorf("the first instance says:\n%s", out)
	}
	f.Berth("scale", "-n", "build", "service/cache", "9", "--detach").Want(t, 0)
	healthyOn(t, f, "build/cache", 9, nodes[1:3])
	if err := second.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}

	// The proposal of the dead one is refused with the name of the new owner.
	v, err := f.Client().Domain(t.Context(), "ci")
	if err != nil {
		t.Fatal(err)
	}
	f.Berth("scale", "-n", "build", "service/cache", "10", "--detach").Want(t, 0)
	healthyOn(t, f, "build/cache", 10, nodes[1:3])
	_, err = f.Client().Propose(context.Background(), "ci", api.Proposal{DomainRevision: v.Revision}, false)
	if err == nil || !strings.Contains(err.Error(), "placed by the scheduler "+cluster.BuiltinScheduler) {
		t.Errorf("the proposal of an old claim: %v", err)
	}
	types := []string{"domain.claimed", "domain.scheduler-silent", "domain.taken-over"}
	f.Berth("events", "--type", strings.Join(types, ",")).Want(t, 0, types...)
	f.Berth("domain", "ls").Want(t, 0, "builtin")

	startProgram(t, f, token, "three", command...)
	f.Eventually(soon, func() error {
		v, err := f.Client().Domain(t.Context(), "ci")
		if err == nil && (v.Claim == nil || v.Claim.Instance != "three") {
			return fmt.Errorf("the claim is %+v", v.Claim)
		}
		return err
	})
	f.Berth("scale", "-n", "build", "service/cache", "11", "--detach").Want(t, 0)
	healthyOn(t, f, "build/cache", 11, nodes[1:3])
}
