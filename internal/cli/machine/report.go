package machine

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/internal/bootstrap"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/setup"
	"github.com/berthd/berth/internal/ssh"
	"github.com/berthd/berth/internal/wording"
)

// progress shows the progress of machines on standard error: a line for each step of each machine, and on a terminal
// below them a line with what all machines do.
type progress struct {
	sess  *session.Session
	total int
	live  bool // a terminal

	mu      sync.Mutex
	now     map[string]string // the step of each machine that has begun and not ended
	done    int
	failed  int
	printed bool // the line below is there
}

func newProgress(sess *session.Session, total int) *progress {
	return &progress{
		sess: sess, total: total, now: map[string]string{},
		live: sess.Env("TERM") != "dumb" && output.TerminalWidth(sess.Stderr) > 0,
	}
}

// event prints the end of a step. It is safe for concurrent use.
func (p *progress) event(e bootstrap.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !e.Ended {
		p.now[e.Machine] = e.Step
		p.draw("")
		return
	}
	line := fmt.Sprintf("%s: %s in %s", e.Machine, e.Step, seconds(e.Took))
	if e.Text != "" {
		line += ": " + e.Text
	}
	p.draw(line)
}

// ended counts a machine.
func (p *progress) ended(r *bootstrap.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.now, r.Name)
	delete(p.now, r.Address)
	p.done++
	if r.Err == nil {
		p.draw("")
		return
	}
	p.failed++
	p.draw(fmt.Sprintf("%s: %s failed: %s", machineName(r), r.Step, firstLine(session.ErrorText(r.Err))))
}

// draw prints a line, unless it is empty, and the line below.
func (p *progress) draw(line string) {
	if p.live && p.printed {
		fmt.Fprint(p.sess.Stderr, "\r\x1b[K")
		p.printed = false
	}
	if line != "" {
		p.sess.Messagef("%s", line)
	}
	if !p.live || p.total == 1 || p.done == p.total {
		return
	}
	counts := map[string]int{}
	for _, step := range p.now { // order-free: a map is filled
		counts[step]++
	}
	parts := []string{fmt.Sprintf("%d of %d machines done", p.done, p.total)}
	if p.failed > 0 {
		parts = append(parts, fmt.Sprintf("%d failed", p.failed))
	}
	for _, step := range bootstrap.Steps() {
		if counts[step] > 0 {
			parts = append(parts, fmt.Sprintf("%d: %s", counts[step], step))
		}
	}
	fmt.Fprint(p.sess.Stderr, output.Truncate(strings.Join(parts, ", "), output.TerminalWidth(p.sess.Stderr)-1))
	p.printed = true
}

// seconds shows a time with the accuracy that people need.
func seconds(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

func machineName(r *bootstrap.Result) string {
	if r.Name != "" {
		return r.Name
	}
	return r.Address
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// addedMachine is the end of one addition for programs.
type addedMachine struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	// Result is "added", "changed", "unchanged", "would-change" or "failed". An upgrade may be "reverted" or "skipped".
	Result      string             `json:"result"`
	Seconds     float64            `json:"seconds"`
	Step        string             `json:"step,omitempty"`
	Error       string             `json:"error,omitempty"`
	Hint        string             `json:"hint,omitempty"`
	Facts       *cluster.Facts     `json:"facts,omitempty"`
	ClockSkew   cluster.Duration   `json:"clock_skew,omitempty"`
	Routes      []cluster.Route    `json:"routes,omitempty"`
	Differences []setup.Difference `json:"differences,omitempty"`
	Changes     []setup.Step       `json:"changes,omitempty"`
}

// finish prints the summary, and what to do about failures.
func (r *remote) finish(results []*bootstrap.Result) error {
	all := make([]addedMachine, len(results))
	failed := 0
	for i, one := range results {
		all[i] = addedMachine{
			Name: one.Name, Address: one.Address, Result: r.resultOf(one), Seconds: one.Took.Seconds(), Step: one.Step,
			Facts: one.Facts, ClockSkew: cluster.Duration(one.ClockSkew), Routes: one.Routes, Changes: one.Changes,
		}
		if r.dryRun {
			all[i].Differences = one.Differences
		}
		if one.Err != nil {
			failed++
			all[i].Error, all[i].Hint = session.ErrorText(one.Err), hintFor(one)
		}
	}
	if err := r.printAll(all); err != nil {
		return err
	}
	if failed == 0 {
		return nil
	}
	return &session.ExitError{Code: session.ExitNo, Err: fmt.Errorf("%d of %d machines failed; the same command "+
		"continues with them", failed, len(results))}
}

func (r *remote) printAll(all []addedMachine) error {
	if r.WantsData() {
		return r.PrintData(all)
	}
	t := output.Table{StateColumn: 2, Titles: []string{"NODE", "ADDRESS", "RESULT", "TIME>", "MESSAGE"}}
	for _, m := range all {
		message := wording.Count(len(m.Changes), "change")
		switch {
		case m.Result == "skipped":
			message = "not tried, because another machine failed"
		case m.Error != "":
			message = m.Step + ": " + m.Error
		case r.dryRun:
			message = wording.Count(len(m.Differences), "difference")
		}
		t.Add(m.Name, m.Address, m.Result, seconds(time.Duration(m.Seconds*float64(time.Second))), message)
	}
	if err := r.PrintTable(t); err != nil {
		return err
	}
	for _, m := range all {
		if r.dryRun && len(m.Differences) > 0 {
			r.Printf("\n%s:", m.Name)
			if err := printDifferences(r.Session, m.Differences); err != nil {
				return err
			}
		}
	}
	for _, m := range all {
		if m.Hint != "" {
			r.Messagef("%s: %s", m.Address, m.Hint)
		}
	}
	return nil
}

// resultOf names the end of an addition.
func (r *remote) resultOf(one *bootstrap.Result) string {
	switch {
	case one.Skipped:
		return "skipped"
	case one.Reverted:
		return "reverted"
	case one.Err != nil:
		return "failed"
	case r.dryRun && one.Changed():
		return "would-change"
	case one.Changed() && one.Joined:
		return "added"
	case one.Changed():
		return "changed"
	}
	return "unchanged"
}

// isKeyError reports whether a connection failed by a key; the text then says what to do.
func isKeyError(err error) bool {
	_, host := errors.AsType[*ssh.HostKeyError](err)
	return host || errors.Is(err, ssh.ErrNoKey)
}

// hintFor says what to do about a failure, if its text does not.
func hintFor(r *bootstrap.Result) string {
	unfit, isUnfit := errors.AsType[*bootstrap.UnfitError](r.Err)
	switch {
	case isUnfit && unfit.NoRoute:
		return "nothing was changed on the machine; open its way to the servers, name addresses that it reaches with " +
			"--server, or let the servers dial it with --passive"
	case isUnfit:
		return "nothing was changed on the machine; change the machine, or its profile"
	case errors.Is(r.Err, ssh.ErrRefused):
		return "add the public key to ~/.ssh/authorized_keys on the machine, or use another --identity or --user"
	case r.Step == bootstrap.StepConnect && !isKeyError(r.Err):
		return "check the address, and that the machine runs and its SSH server is reached from here"
	case errors.Is(r.Err, ssh.ErrLost):
		return "check the network; the same command continues"
	}
	return ""
}
