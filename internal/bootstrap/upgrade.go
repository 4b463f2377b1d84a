package bootstrap

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/setup"
)

// Gate decides whether a node is as well after its upgrade as before.
type Gate interface {
	// Begin remembers what runs on a node, and returns the session of its agent. The error says why the node cannot be
	// upgraded now.
	Begin(ctx context.Context, node string) (session uint64, err error)
	// Pass waits until what ran before runs as well again, and has done so for a while. The error says what does not.
	Pass(ctx context.Context, node string) error
}

// UpgradeConfig is what all machines of an upgrade share. Control.Record is not called.
type UpgradeConfig struct {
	Config

	Gate Gate
	// Confirmation is the time after which a machine goes back by itself. It is longer than all waits of an upgrade.
	Confirmation time.Duration
}

// UpgradeRequest is what `berth machine upgrade` reads.
type UpgradeRequest struct {
	// Confirmation is the time after which the machine goes back by itself.
	Confirmation time.Duration `json:"confirmation"`
}

// Upgrade replaces the agent of a machine that Add made a node, without touching its tasks. If the node does not return
// or does not pass the gate, the machine goes back to the agent before. It also does so by itself, if this function
// ends without telling.
func Upgrade(ctx context.Context, c UpgradeConfig, m Machine) *Result {
	u := &upgrading{addition: newAddition(&c.Config, m), gate: c.Gate, confirmation: c.Confirmation}
	defer u.end(ctx, true)
	if !u.runSteps(ctx, []step{
		{StepConnect, u.connect},
		{StepIdentify, u.identify},
		{StepCopy, u.copy},
		{StepCheck, u.check},
	}) || c.DryRun || u.current {
		return u.result
	}
	u.result.Differences = nil
	if !u.runSteps(ctx, []step{
		{StepUpgrade, u.replace},
		{StepWait, u.wait},
		{StepGate, u.pass},
		{StepConfirm, u.confirm},
	}) {
		u.revert(ctx)
	}
	return u.result
}

// upgrading is one machine on its way.
type upgrading struct {
	*addition

	gate         Gate
	confirmation time.Duration
	current      bool // the machine runs the program, and its upgrade was confirmed
}

// check learns what runs on the node, and whether it runs the program already.
func (u *upgrading) check(ctx context.Context) (string, error) {
	var out bytes.Buffer
	err := u.runProgram(ctx, "machine describe --request -", DescribeRequest{}, &out)
	if err != nil {
		return "", err
	}
	var report setup.Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		return "", fmt.Errorf("read the machine's facts: %w", err)
	}
	want := u.program.Version()
	u.current = report.Binary == want && !report.Unconfirmed
	if report.Binary != want {
		is := setup.Difference{Item: "binary", Is: "sha256 " + report.Binary, Want: "sha256 " + want}
		u.result.Differences = []setup.Difference{is}
	}
	u.session, err = u.gate.Begin(ctx, u.result.Name)
	return count(len(u.result.Differences), "difference"), err
}

// replace makes the machine run the new agent.
func (u *upgrading) replace(ctx context.Context) (string, error) {
	err := u.runChanges(ctx, "machine upgrade --request -", UpgradeRequest{u.confirmation})
	return count(len(u.result.Changes), "change"), err
}

func (u *upgrading) wait(ctx context.Context) (string, error) {
	after := u.session
	if !u.result.ReplacedAgent() {
		after = 0 // an interrupted upgrade goes on, or nothing is to do
	}
	return "", u.waitReady(ctx, after)
}

func (u *upgrading) pass(ctx context.Context) (string, error) {
	return "", u.gate.Pass(ctx, u.result.Name)
}

func (u *upgrading) confirm(ctx context.Context) (string, error) {
	return "", u.runProgram(ctx, "machine confirm", struct{}{}, nil)
}

// revert goes back, unless the machine did so itself, and waits for the agent before. The result tells what became of
// the node.
func (u *upgrading) revert(ctx context.Context) {
	begun := time.Now()
	u.report(Event{Step: StepRevert})
	replaced, err := u.goBack(ctx)
	u.result.Reverted = replaced && err == nil
	text := "the node runs the agent before"
	if err != nil {
		text = err.Error()
		u.result.Err = fmt.Errorf("%w; going back: %w", u.result.Err, err)
	}
	u.report(Event{Step: StepRevert, Ended: true, Took: time.Since(begun), Text: text})
}

// goBack reports whether an agent had been replaced.
func (u *upgrading) goBack(ctx context.Context) (replaced bool, err error) {
	// The machine may be out of reach until it went back by itself.
	ctx, cancel := context.WithTimeoutCause(ctx, u.confirmation+u.ReadyLimit, errUnreachable)
	defer cancel()
	after, err := u.Control.Session(ctx, u.result.Name)
	if err != nil {
		return false, err
	}
	between := pause.Backoff{Shortest: shortestPause, Longest: longestPause}
	u.ReadyLimit = max(u.ReadyLimit, minRevertLimit) // the agent before worked
	for {
		err := u.runProgram(ctx, "machine revert", struct{}{}, nil)
		if err == nil {
			return true, u.waitReady(ctx, after)
		}
		if refusal, ok := errors.AsType[*programError](err); ok {
			if refusal.text != setup.ErrNoUpgrade.Error() {
				return false, err
			}
			if !u.result.ReplacedAgent() {
				return false, nil // the machine refused the upgrade
			}
			return true, u.waitReady(ctx, u.session) // the machine went back by itself
		}
		if between.Wait(ctx) != nil {
			return false, context.Cause(ctx)
		}
	}
}

// minRevertLimit bounds the wait for the agent before from below.
const minRevertLimit = time.Minute

// errUnreachable is the cause of the end of the tries to go back.
var errUnreachable = errors.New("the machine cannot be reached; it goes back by itself")
