// Package bootstrap makes nodes of machines with an SSH server.
//
// An addition has steps: connect, identify, copy, describe, check, apply, wait. Most work happens on the machine
// itself, by the copied binary (package setup): this package copies it, runs it, and talks to the control plane. Each
// step may run twice, so a step whose connection was lost is repeated, and an addition that failed is repeated as a
// whole with the same command. An upgrade of the agent has steps of the same kind.
package bootstrap

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/setup"
	"github.com/berthd/berth/internal/ssh"
)

// Names of the steps, in their order.
const (
	StepConnect  = "connect"
	StepIdentify = "identify"
	StepCopy     = "copy"
	StepDescribe = "describe"
	StepCheck    = "check"
	StepApply    = "apply"
	StepUpgrade  = "upgrade"
	StepWait     = "wait"
	StepGate     = "gate"
	StepConfirm  = "confirm"
	StepRevert   = "revert"
)

// Steps returns the names of the steps in their order.
func Steps() []string {
	return []string{
		StepConnect, StepIdentify, StepCopy, StepDescribe, StepCheck, StepApply, StepUpgrade, StepWait, StepGate,
		StepConfirm, StepRevert,
	}
}

const (
	// maxTries is how often a step begins whose connection is lost, and maxConnects how often the first connection is
	// tried.
	maxTries    = 6
	maxConnects = 3
	// shortestPause and longestPause bound the time between two tries.
	shortestPause = 500 * time.Millisecond
	longestPause  = 8 * time.Second
)

// Control is the control plane that a machine joins.
type Control interface {
	// JoinToken returns a token with which only the node may join, once, for a short time.
	JoinToken(ctx context.Context, node string) (string, error)
	// Record writes how the machine was added, and where servers dial its agent, unless that is "". It returns the
	// present session of the node's agent; 0 without one.
	Record(ctx context.Context, node string, s cluster.HostSetup, dial string) (session uint64, err error)
	// Session returns the present session of the node's agent; 0 without one.
	Session(ctx context.Context, node string) (uint64, error)
	// WaitReady waits until the node is ready with a later session. The error says what the node is instead.
	WaitReady(ctx context.Context, node string, after uint64) error
}

// Binary returns the program for an architecture of Go.
type Binary interface {
	For(arch string) (*Program, error)
}

// Config is what all machines of an addition share.
type Config struct {
	// Servers are the https addresses of the servers.
	Servers []string
	// Profile, unless nil, is applied.
	Profile *cluster.Profile
	// Standalone makes nodes that need no servers. Servers and Control are not used.
	Standalone bool
	// Control is nil for a dry run and for standalone nodes only.
	Control Control
	Binary  Binary
	// SudoPassword, unless empty, is for a user other than root whose sudo asks for it.
	SudoPassword string
	// DryRun changes nothing on the machine, but copies the binary into the user's cache folder and deletes it again.
	DryRun bool
	// ProfileOnly leaves the agent and the installed program alone.
	ProfileOnly bool
	// ReadyLimit bounds the time until the node is ready.
	ReadyLimit time.Duration
	// Progress, unless nil, is called when a step begins and when it ends. It is called by several goroutines.
	Progress func(Event)
	Log      *slog.Logger
}

// Event is the progress of one machine.
type Event struct {
	Machine string // as the user named it
	Step    string
	// Ended says that the step has ended after Took.
	Ended bool
	Took  time.Duration
	// Text says what was found or done.
	Text string
}

// Machine is a machine to add.
type Machine struct {
	// Name of the node. Default: the host name that the machine gives itself.
	Name string
	Conn *ssh.Conn
	Jump []string
	// Dial, unless empty, makes a passive node: the agent listens on Listen, "host:port", and servers dial it at Dial.
	Dial, Listen string
}

// Result is the end of an addition.
type Result struct {
	Name    string        `json:"name"`
	Address string        `json:"address"`
	Took    time.Duration `json:"took"`
	// Facts of the machine, if they were determined.
	Facts *cluster.Facts `json:"facts,omitempty"`
	// ClockSkew is how far the clock of the machine is ahead of this one's.
	ClockSkew time.Duration   `json:"clock_skew,omitempty"`
	Routes    []cluster.Route `json:"routes,omitempty"`
	// Differences are what a dry run found; Changes are what was changed.
	Differences []setup.Difference `json:"differences,omitempty"`
	Changes     []setup.Step       `json:"changes,omitempty"`
	// Joined says that the agent of the machine had no certificate before.
	Joined bool `json:"joined,omitempty"`
	// Reverted says that a failed upgrade went back, and that the agent before is ready.
	Reverted bool `json:"reverted,omitempty"`
	// Version is the shortened checksum of the program for the machine, if its architecture is known.
	Version string `json:"version,omitempty"`
	// Skipped says that the machine was not tried.
	Skipped bool `json:"skipped,omitempty"`
	// Step is where the addition failed, and Err why.
	Step string `json:"step,omitempty"`
	Err  error  `json:"-"`
}

// Changed reports whether the machine was changed, or in a dry run would be.
func (r *Result) Changed() bool { return len(r.Differences)+len(r.Changes) > 0 }

// ReplacedAgent reports whether another process of the agent was started.
func (r *Result) ReplacedAgent() bool {
	return slices.ContainsFunc(r.Changes, func(s setup.Step) bool { return s.ReplacesAgent() })
}

// addition is one machine on its way.
type addition struct {
	*Config

	machine Machine
	begun   time.Time
	result  *Result
	home    string // of the user on the machine
	sudo    string // before a command that needs root; "" for root
	asks    bool   // sudo asks for the password
	arch    string
	program *Program
	path    string        // of the program on the machine
	joined  bool          // the agent has a certificate
	within  time.Duration // the error of ClockSkew
	token   string        // for the agent to join
	session uint64        // of the agent that the setup replaces; 0 if it replaces none
}

// Add makes a node of a machine. The result always tells how far it came.
func Add(ctx context.Context, c Config, m Machine) *Result {
	a := newAddition(&c, m)
	defer a.end(ctx, c.DryRun || c.ProfileOnly)
	steps := []step{
		{StepConnect, a.connect},
		{StepIdentify, a.identify},
		{StepCopy, a.copy},
		{StepDescribe, a.describe},
		{StepCheck, a.check},
		{StepApply, a.apply},
		{StepWait, a.wait},
	}
	if c.Standalone {
		steps[len(steps)-1].run = a.waitStandalone
	}
	switch {
	case c.DryRun:
		steps = steps[:5]
	case c.ProfileOnly:
		steps = steps[:6]
	}
	a.runSteps(ctx, steps)
	return a.result
}

func newAddition(c *Config, m Machine) *addition {
	return &addition{
		Config: c, machine: m, begun: time.Now(),
		result: &Result{Name: m.Name, Address: m.Conn.Target().String()},
	}
}

// end closes the connection to the machine. The copy of the program serves another try, unless it is removed.
func (a *addition) end(ctx context.Context, removeCopy bool) {
	if removeCopy {
		a.removeCopy(ctx)
	}
	a.machine.Conn.Close()
	a.result.Took = time.Since(a.begun)
}

// step is one step of an addition. Its function returns what was found or done.
type step struct {
	name string
	run  func(context.Context) (string, error)
}

// runSteps runs steps until one fails, and reports whether none did.
func (a *addition) runSteps(ctx context.Context, steps []step) bool {
	for _, s := range steps {
		if a.result.Err = a.runStep(ctx, s.name, s.run); a.result.Err != nil {
			a.result.Step = s.name
			return false
		}
	}
	return true
}

// runStep runs a step, and again if its connection was lost.
func (a *addition) runStep(ctx context.Context, name string, run func(context.Context) (string, error)) error {
	begun := time.Now()
	a.report(Event{Step: name})
	between := pause.Backoff{Shortest: shortestPause, Longest: longestPause}
	for tries := 1; ; tries++ {
		text, err := run(ctx)
		switch {
		case err == nil:
			a.report(Event{Step: name, Ended: true, Took: time.Since(begun), Text: text})
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !repeats(name, tries, err):
			return err
		}
		a.Log.Debug("a step is repeated", "machine", a.name(), "step", name, "error", err)
		if err := between.Wait(ctx); err != nil {
			return err
		}
	}
}

func (a *addition) name() string {
	if a.result.Name != "" {
		return a.result.Name
	}
	return a.result.Address
}

func (a *addition) report(e Event) {
	if a.Progress != nil {
		e.Machine = a.name()
		a.Progress(e)
	}
}

func (a *addition) connect(ctx context.Context) (string, error) {
	return "", a.machine.Conn.Connect(ctx)
}

// repeats reports whether a step is tried again after a failure.
func repeats(step string, tries int, err error) bool {
	if step == StepConnect {
		return tries < maxConnects && !isFinal(err)
	}
	return tries < maxTries && errors.Is(err, ssh.ErrLost)
}

// isFinal reports whether a failure to connect stays: the machine refuses the keys, or its own key is a wrong one.
func isFinal(err error) bool {
	_, wrongKey := errors.AsType[*ssh.HostKeyError](err)
	return wrongKey || errors.Is(err, ssh.ErrRefused) || errors.Is(err, ssh.ErrNoKey)
}

// identifyScript prints what the first steps need, each line after a word that no greeting of a shell has.
const identifyScript = `for f in "os $(uname -s)" "arch $(uname -m)" "name $(uname -n)" "uid $(id -u)" "home $HOME" ` +
	`"sudo $(command -v sudo)"; do echo "berth-machine $f"; done`

// identify learns the kind of the machine, and how the user becomes root.
func (a *addition) identify(ctx context.Context) (string, error) {
	out, err := a.machine.Conn.Output(ctx, identifyScript)
	if err != nil {
		return "", err
	}
	is := map[string]string{}
	for line := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "berth-machine "); ok {
			name, value, _ := strings.Cut(rest, " ")
			is[name] = value
		}
	}
	if is["os"] != "Linux" {
		return "", fmt.Errorf("the machine runs %q, and nodes run Linux", is["os"])
	}
	arch, ok := map[string]string{"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}[is["arch"]]
	if !ok {
		return "", fmt.Errorf("there is no build for the machine's architecture %q", is["arch"])
	}
	a.arch, a.home = arch, is["home"]
	if a.result.Name == "" {
		a.result.Name = strings.ToLower(is["name"])
		if !cluster.ValidNodeName(a.result.Name) {
			return "", fmt.Errorf("the machine's name %q cannot name a node: give one with NAME=%s", is["name"],
				a.result.Address)
		}
	}
	if a.program, err = a.Binary.For(arch); err != nil {
		return "", err
	}
	a.result.Version = a.program.Version()
	if is["uid"] != "0" {
		err = a.findSudo(ctx, is["sudo"])
	}
	return "linux/" + arch, err
}

// findSudo determines how sudo is used. A wrong password is found here, so that nothing else is sent as one.
func (a *addition) findSudo(ctx context.Context, program string) error {
	user := a.machine.Conn.Target().User
	if program == "" {
		return fmt.Errorf("the user %s is not root, and the machine has no sudo: use root@, or install sudo", user)
	}
	err := a.machine.Conn.Run(ctx, ssh.Command{Line: "sudo -n true"})
	exit, failed := errors.AsType[*ssh.ExitError](err)
	if !failed {
		a.sudo = "sudo -n "
		return err
	}
	if a.SudoPassword == "" {
		return fmt.Errorf("sudo of the user %s wants a password (%s): use --ask-sudo-password or "+
			"--sudo-password-file", user, lastLine(exit.Text))
	}
	a.sudo, a.asks = "sudo -k -S -p '' ", true
	err = a.machine.Conn.Run(ctx, ssh.Command{Line: a.sudo + "true", Stdin: strings.NewReader(a.SudoPassword + "\n")})
	if exit, failed := errors.AsType[*ssh.ExitError](err); failed {
		return fmt.Errorf("sudo does not accept the password of the user %s (%s)", user, lastLine(exit.Text))
	}
	return err
}

// runProgram runs the copied program as root with a request on its standard input.
func (a *addition) runProgram(ctx context.Context, arguments string, request any, stdout io.Writer) error {
	b, err := json.Marshal(request)
	if err != nil {
		return err
	}
	var in bytes.Buffer
	if a.asks {
		in.WriteString(a.SudoPassword + "\n")
	}
	in.Write(append(b, '\n'))
	err = a.machine.Conn.Run(ctx, ssh.Command{
		Line: a.sudo + ssh.Quote(a.path) + " " + arguments, Stdin: &in, Stdout: stdout,
	})
	if exit, ok := errors.AsType[*ssh.ExitError](err); ok && exit.Text != "" {
		return &programError{programText(exit.Text)}
	}
	return err
}

// programText returns what the program said in its error output. sudo and the login shell may have written warnings
// before, such as that of a host name without an address.
func programText(output string) string {
	const start = "berth: "
	if i := strings.LastIndex("\n"+output, "\n"+start); i >= 0 {
		output = output[i+len(start):]
	}
	return strings.TrimSpace(output)
}

// programError is the failure of the copied program, in its own words.
type programError struct{ text string }

// Error returns the words.
func (e *programError) Error() string { return e.text }

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func sortedKeys(labels cluster.Labels) []string { return slices.Sorted(maps.Keys(labels)) }

// count returns a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
