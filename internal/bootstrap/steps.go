package bootstrap

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/setup"
	"github.com/berthd/berth/internal/ssh"
)

// DescribeRequest is what `berth machine describe` reads.
type DescribeRequest struct {
	Servers []string       `json:"servers,omitempty"`
	Request *setup.Request `json:"request,omitempty"`
}

// ApplyReply is a line that `berth machine apply` writes: a step, or at last that all is done.
type ApplyReply struct {
	Step *setup.Step `json:"step,omitempty"`
	Done bool        `json:"done,omitempty"`
}

// request returns what the machine should become. The token is for an agent that has not joined.
func (a *addition) request(token string) *setup.Request {
	if a.ProfileOnly {
		return &setup.Request{Profile: a.Profile}
	}
	arguments := []string{"--name", a.result.Name}
	if a.machine.Dial != "" {
		arguments = append(arguments, "--listen-for-servers", a.machine.Listen)
	} else {
		for _, s := range a.Servers {
			arguments = append(arguments, "--server", s)
		}
	}
	if p := a.Profile; p != nil {
		if p.Agent.Executor != "" {
			arguments = append(arguments, "--executor", string(p.Agent.Executor))
		}
		for _, k := range sortedKeys(p.Agent.Labels) {
			arguments = append(arguments, "--label", k+"="+p.Agent.Labels[k])
		}
		arguments = append(arguments, p.Agent.Flags...)
	}
	return &setup.Request{Profile: a.Profile, Agent: &setup.Agent{
		Standalone: a.Standalone, Arguments: arguments, JoinToken: token,
	}}
}

// routes returns the servers that the machine must reach. A passive node needs to reach none.
func (a *addition) routes() []string {
	if a.machine.Dial != "" {
		return nil
	}
	return a.Servers
}

// describe learns the facts of the machine and what differs from the profile.
func (a *addition) describe(ctx context.Context) (string, error) {
	var out bytes.Buffer
	sent := time.Now()
	err := a.runProgram(ctx, "machine describe --request -", DescribeRequest{a.routes(), a.request("")}, &out)
	if err != nil {
		return "", err
	}
	var report setup.Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		return "", fmt.Errorf("read the machine's facts: %w", err)
	}
	// The report began between the request and its answer, most likely soon after the request.
	half := time.Since(sent) / 2
	a.result.ClockSkew = report.Time.Sub(sent.Add(half)).Round(time.Millisecond)
	a.within = half
	if a.result.ClockSkew.Abs() <= half {
		a.result.ClockSkew = 0 // less than the error of the measurement
	}
	a.result.Facts, a.result.Routes, a.joined = &report.Facts, report.Routes, report.Joined
	a.result.Differences = report.Differences
	if a.Standalone {
		a.joined = report.Standalone
	}
	a.result.Joined = !a.ProfileOnly && !a.joined || a.result.Joined
	switch {
	case a.ProfileOnly:
	case a.Standalone && report.Joined && !report.Standalone:
		return "", errors.New("the machine is a node of a fleet: `berth node release` on the machine makes it a " +
			"standalone node")
	case !a.Standalone && report.Standalone:
		return "", errors.New("the machine is a standalone node: `berth node adopt` on the machine moves it to a fleet")
	}
	return factsText(&report.Facts), nil
}

// factsText describes a machine in a line.
func factsText(f *cluster.Facts) string {
	text := fmt.Sprintf("%s of memory, kernel %s", f.Memory, f.Kernel)
	if h := f.Hardware; h != nil {
		text = fmt.Sprintf("%d CPUs, ", h.Threads) + text
		if h.Distribution != "" {
			text += ", " + h.Distribution
		}
	}
	return text
}

// check compares the machine with what the profile requires, and its routes. All faults are reported together.
func (a *addition) check(context.Context) (string, error) {
	var faults []string
	if a.Profile != nil {
		faults = setup.Unmet(&a.Profile.Requires, a.result.Facts, a.result.ClockSkew, a.within)
	} else {
		faults = setup.Unmet(&cluster.MachineNeeds{}, a.result.Facts, a.result.ClockSkew, a.within)
	}
	reached := 0
	var problems []string
	for _, r := range a.result.Routes {
		if r.Problem == "" {
			reached++
			continue
		}
		problems = append(problems, fmt.Sprintf("the machine cannot reach the server %s: %s", r.Server, r.Problem))
	}
	noRoute := reached == 0 && len(problems) > 0
	if noRoute {
		faults = append(faults, problems...)
	}
	if len(faults) > 0 {
		return "", &UnfitError{faults, noRoute}
	}
	if a.machine.Dial != "" {
		return count(len(a.result.Differences), "difference"), nil
	}
	return fmt.Sprintf("%s, %d of %s in reach", count(len(a.result.Differences), "difference"), reached,
		count(len(a.result.Routes), "server")), nil
}

// UnfitError means that a machine lacks what it needs. Nothing was changed.
type UnfitError struct {
	Faults []string
	// NoRoute says that the machine reaches no server.
	NoRoute bool
}

// Error joins the faults.
func (e *UnfitError) Error() string { return strings.Join(e.Faults, "; ") }

// apply records the machine, hands out a token, and makes the machine what it should be.
func (a *addition) apply(ctx context.Context) (string, error) {
	if a.ProfileOnly || a.Standalone {
		return a.applyRequest(ctx)
	}
	setupOf := cluster.HostSetup{
		Address: a.machine.Conn.Target().String(), Jump: a.machine.Jump, Binary: a.program.Version(),
		At: time.Now().UTC().Truncate(time.Second), ClockSkew: cluster.Duration(a.result.ClockSkew),
		Routes: a.result.Routes,
	}
	if a.Profile != nil {
		ref := a.Profile.Ref()
		setupOf.Profile = &ref
	}
	session, err := a.Control.Record(ctx, a.result.Name, setupOf, a.machine.Dial)
	if err != nil {
		return "", err
	}
	if a.session == 0 && slices.ContainsFunc(a.result.Differences, setup.Difference.ReplacesAgent) {
		a.session = session // of the first try: a later one may find the new agent
	}
	if !a.joined && a.token == "" {
		if a.token, err = a.Control.JoinToken(ctx, a.result.Name); err != nil {
			return "", fmt.Errorf("create the join token: %w", err)
		}
	}
	return a.applyRequest(ctx)
}

// applyRequest makes the machine what it should be.
func (a *addition) applyRequest(ctx context.Context) (string, error) {
	if len(a.result.Differences) == 0 && (a.joined || a.ProfileOnly) {
		return "nothing to change", nil
	}
	err := a.runChanges(ctx, "machine apply --request -", a.request(a.token))
	return count(len(a.result.Changes), "change"), err
}

// runChanges runs the program for a request, and collects what it changes.
func (a *addition) runChanges(ctx context.Context, arguments string, request any) error {
	var out bytes.Buffer
	err := a.runProgram(ctx, arguments, request, &out)
	done := false
	for line := range bytes.Lines(out.Bytes()) {
		var reply ApplyReply
		if json.Unmarshal(line, &reply) != nil {
			continue // a lost connection cut the line
		}
		done = done || reply.Done
		if reply.Step != nil && reply.Step.Problem == "" {
			a.result.Changes = append(a.result.Changes, *reply.Step)
		}
	}
	if err == nil && !done {
		err = ssh.ErrLost
	}
	return err
}

// wait waits until the node is ready, and removes what only the addition needed.
func (a *addition) wait(ctx context.Context) (string, error) {
	if err := a.waitReady(ctx, a.session); err != nil {
		return "", err
	}
	err := a.machine.Conn.Run(ctx, ssh.Command{
		Line:  a.sudo + "rm -f " + ssh.Quote(setup.TokenFile),
		Stdin: strings.NewReader(a.passwordLine()),
	})
	if err != nil {
		return "", fmt.Errorf("delete the join token on the machine: %w", err)
	}
	a.removeCopy(ctx)
	return "", nil
}

// waitStandalone waits until the node's own server says that the node is ready.
func (a *addition) waitStandalone(ctx context.Context) (string, error) {
	within, cancel := context.WithTimeoutCause(ctx, a.ReadyLimit, errNotReady)
	defer cancel()
	line := a.sudo + setup.BinaryLink + " wait --timeout 5s " + ssh.Quote("node/"+a.result.Name)
	between := pause.Backoff{Shortest: shortestPause, Longest: shortestPause}
	for {
		err := a.machine.Conn.Run(within, ssh.Command{Line: line, Stdin: strings.NewReader(a.passwordLine())})
		if err == nil {
			a.removeCopy(ctx)
			return "", nil
		}
		if between.Wait(within) == nil {
			continue
		}
		err = fmt.Errorf("%w: %w", context.Cause(within), err)
		if log := a.agentLog(ctx); log != "" {
			err = fmt.Errorf("%w; the end of its log:\n%s", err, log)
		}
		return "", err
	}
}

// waitReady waits until the node is ready with a later session. The error has the end of the agent's log.
func (a *addition) waitReady(ctx context.Context, after uint64) error {
	within, cancel := context.WithTimeoutCause(ctx, a.ReadyLimit, errNotReady)
	defer cancel()
	err := a.Control.WaitReady(within, a.result.Name, after)
	if err != nil {
		if log := a.agentLog(ctx); log != "" {
			err = fmt.Errorf("%w; the end of its log:\n%s", err, log)
		}
	}
	return err
}

// errNotReady is the cause of the end of the wait.
var errNotReady = errors.New("the node is not ready in time")

// agentLog returns the last lines of the agent's log on the machine.
func (a *addition) agentLog(ctx context.Context) string {
	line := "if test -d /run/systemd/system; then " + a.sudo +
		"journalctl --no-pager -o cat -n 5 -u berth-agent -u berth-standalone; else " + a.sudo + "tail -n 5 " +
		setup.LogFile + "; fi"
	var out bytes.Buffer
	if a.machine.Conn.Run(ctx, ssh.Command{
		Line: line, Stdin: strings.NewReader(a.passwordLine()), Stdout: &out,
	}) != nil {
		return ""
	}
	return strings.TrimSpace(out.String())
}

func (a *addition) passwordLine() string {
	if a.asks {
		return a.SudoPassword + "\n"
	}
	return ""
}
