package harness

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berthd/berth/internal/testkit"
)

// readyLimit is how long a server may take to serve; containerd's start is in it.
const readyLimit = 40 * time.Second

// stopLimit is how long a process may take to end after SIGTERM.
const stopLimit = 20 * time.Second

// Daemon is a berth process that serves: dev, server or agent.
type Daemon struct {
	tb    testing.TB
	args  []string // without the prefix
	cmd   *exec.Cmd
	out   Output
	ended chan struct{}
}

// Output holds the output of a process so far. It is safe for concurrent use.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// commands runs berth in the folder of a site, against its servers.
type commands struct {
	// Dir holds all of the site.
	Dir string
	// Socket is the server's.
	Socket string
	// Program is the berth that is started from now on, commands included; empty is the one that is tested.
	Program string

	tb    testing.TB
	fleet *Fleet // whose site it is; nil for a site of one server
}

// environment is the test's own without anything that leads to another Berth.
func (c *commands) environment() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "BERTH_") || strings.HasPrefix(v, "XDG_") || strings.HasPrefix(v, "HOME=")
	})
	return append(env, "NO_COLOR=1", "HOME="+filepath.Join(c.Dir, "home"),
		"XDG_RUNTIME_DIR="+filepath.Join(c.Dir, "run"),
		"BERTH_ADDR="+c.address())
}

// address is where commands and clients find the site's servers.
func (c *commands) address() string {
	if c.fleet != nil {
		return c.fleet.address()
	}
	return "unix://" + c.Socket
}

// start starts berth with arguments; its two streams are joined.
func (c *commands) start(args ...string) *Daemon {
	c.tb.Helper()
	return c.startOn(nil, args...)
}

// startOn is start with a prefix before the command, such as "ip netns exec n1". The prefix must replace its process by
// berth, as exec does.
func (c *commands) startOn(prefix []string, args ...string) *Daemon {
	c.tb.Helper()
	words := slices.Concat(prefix, []string{cmp.Or(c.Program, Binary())}, args)
	// the site ends it
	d := &Daemon{tb: c.tb, args: args, cmd: exec.Command(words[0], words[1:]...), ended: make(chan struct{})}
	d.cmd.Env, d.cmd.Dir = c.environment(), c.Dir
	d.cmd.Stdout, d.cmd.Stderr = &d.out, &d.out
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the tests
	d.cmd.WaitDelay = time.Second                           // what outlives it may hold its output
	if err := d.cmd.Start(); err != nil {
		c.tb.Fatalf("start berth %s: %v", args[0], err)
	}
	go func() {
		_ = d.cmd.Wait() // the state has the result
		close(d.ended)
	}()
	return d
}

// ready waits for the line that reports that the process serves.
func (d *Daemon) ready() {
	d.tb.Helper()
	testkit.Eventually(d.tb, readyLimit, func() error {
		if strings.Contains(d.Output(), "berth: ready at ") {
			return nil
		}
		if !d.Alive() {
			d.tb.Fatalf("berth %s ended before it was ready:\n%s", d.args[0], d.Output())
		}
		return fmt.Errorf("berth %s does not serve:\n%s", d.args[0], d.Output())
	})
}

// URL returns the address in the ready line.
func (d *Daemon) URL() string {
	_, rest, _ := strings.Cut(d.Output(), "berth: ready at ")
	url, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(url)
}

// Pid returns the process's id.
func (d *Daemon) Pid() int { return d.cmd.Process.Pid }

// Output returns the output of the process so far.
func (d *Daemon) Output() string { return d.out.String() }

// Alive reports whether the process has not ended.
func (d *Daemon) Alive() bool {
	select {
	case <-d.ended:
		return false
	default:
		return true
	}
}

// Kill ends the process as kill -9 does, and returns when it is gone.
func (d *Daemon) Kill() {
	d.tb.Helper()
	if !d.Alive() {
		d.tb.Errorf("berth %s ended by itself:\n%s", d.args[0], d.Output())
		return
	}
	_ = d.cmd.Process.Kill() // it may end just now
	<-d.ended
}

// Signal sends the process a signal.
func (d *Daemon) Signal(sig os.Signal) {
	d.tb.Helper()
	if err := d.cmd.Process.Signal(sig); err != nil {
		d.tb.Errorf("signal %v to berth %s: %v", sig, d.args[0], err)
	}
}

// Stop ends the process as Ctrl-C does and returns its exit code.
func (d *Daemon) Stop() int { return d.stop(os.Interrupt) }

// Terminate ends the process as a service manager does and returns its exit code.
func (d *Daemon) Terminate() int { return d.stop(syscall.SIGTERM) }

func (d *Daemon) stop(sig os.Signal) int {
	d.tb.Helper()
	_ = d.cmd.Process.Signal(sig) // it may have ended
	limit, cancel := testkit.WithLimit(context.Background(), stopLimit)
	defer cancel()
	select {
	case <-d.ended:
	case <-limit.Done():
		_ = d.cmd.Process.Signal(syscall.SIGQUIT) // the runtime prints the goroutines, and ends the process
		select {
		case <-d.ended:
		case <-time.After(stopLimit):
			_ = d.cmd.Process.Kill() // as above
			<-d.ended
		}
		d.tb.Errorf("berth %s did not end within %v of %v:\n%s", d.args[0], stopLimit, sig, d.Output())
	}
	return d.cmd.ProcessState.ExitCode()
}

// Exit waits until the process has ended without a signal from the test, and returns its exit code.
func (d *Daemon) Exit(limit time.Duration) int {
	d.tb.Helper()
	select {
	case <-d.ended:
	case <-testkit.Context(d.tb, limit).Done():
		d.tb.Fatalf("berth %s still runs after %v:\n%s", strings.Join(d.args, " "), limit, d.Output())
	}
	return d.cmd.ProcessState.ExitCode()
}

// Result is how a command ended.
type Result struct {
	Args           []string
	Stdout, Stderr string
	Code           int
	Took           time.Duration
}

// commandLimit bounds a command that the tests wait for.
const commandLimit = 2 * time.Minute

// Berth runs a command to its end.
func (c *commands) Berth(args ...string) Result {
	c.tb.Helper()
	return c.BerthWith(nil, args...)
}

// Prints runs a command again and again until it prints the text: a program on a busy machine may be healthy before its
// first line.
func (c *commands) Prints(text string, args ...string) {
	c.tb.Helper()
	testkit.Eventually(c.tb, commandLimit, func() error {
		if r := c.Berth(args...); r.Code != 0 || !strings.Contains(r.Stdout, text) {
			return fmt.Errorf("want %q in what it prints:\n%v", text, r)
		}
		return nil
	})
}

// BerthWith runs a command that reads from stdin.
func (c *commands) BerthWith(stdin io.Reader, args ...string) Result {
	c.tb.Helper()
	return c.berthOn(nil, stdin, args...)
}

// BerthOn runs a command on a host, with a standard input unless it is nil.
func (c *commands) BerthOn(h Host, stdin io.Reader, args ...string) Result {
	c.tb.Helper()
	return c.berthOn(h.Prefix, stdin, args...)
}

func (c *commands) berthOn(prefix []string, stdin io.Reader, args ...string) Result {
	c.tb.Helper()
	if CommandLine != nil && len(prefix) == 0 && c.Program == "" && onlyCallsAPI(args) {
		return c.berthHere(stdin, args)
	}
	words := slices.Concat(prefix, []string{cmp.Or(c.Program, Binary())}, args)
	limit, cancel := testkit.WithLimit(c.tb.Context(), commandLimit)
	defer cancel()
	cmd := exec.CommandContext(limit, words[0], words[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdin = c.environment(), c.Dir, stdin
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	began := time.Now()
	err := cmd.Run()
	if cmd.ProcessState == nil {
		c.tb.Fatalf("berth %s: %v", strings.Join(args, " "), err)
	}
	return Result{args, stdout.String(), stderr.String(), cmd.ProcessState.ExitCode(), time.Since(began)}
}

// berthHere runs a command in this process.
func (c *commands) berthHere(stdin io.Reader, args []string) Result {
	c.tb.Helper()
	limit, cancel := testkit.WithLimit(c.tb.Context(), commandLimit)
	defer cancel()
	env := map[string]string{}
	for _, v := range c.environment() {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	if stdin == nil {
		stdin = strings.NewReader("")
	}
	var stdout, stderr Output
	began := time.Now()
	ended := make(chan int, 1)
	go func() {
		code := 2 // as that of a process that panics
		defer func() {
			if fault := recover(); fault != nil {
				fmt.Fprintf(&stderr, "panic: %v\n%s", fault, debug.Stack())
			}
			ended <- code
		}()
		code = CommandLine(limit, Command{
			Args: args, Env: func(name string) string { return env[name] },
			Stdin: stdin, Stdout: &stdout, Stderr: &stderr,
		})
	}()
	code := -1
	select {
	case code = <-ended:
	case <-limit.Done():
		select {
		case code = <-ended:
		case <-time.After(stopLimit):
			c.tb.Fatalf("berth %s does not end with its context: %s", strings.Join(args, " "), stderr.String())
		}
	}
	return Result{args, stdout.String(), stderr.String(), code, time.Since(began)}
}

// Command is a command for CommandLine.
type Command struct {
	Args           []string
	Env            func(string) string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// CommandLine runs a command in this process and returns its exit code; TestMain may set it. Commands of a Site that
// only call the API then start no process, which costs ten times as much as most of them. The working directory and the
// folder of contexts are those of the test, so files need absolute paths, and each command gets BERTH_ADDR. If it is
// nil, each command is a process.
var CommandLine func(context.Context, Command) int

// onlyCallsAPI reports whether a command needs nothing of the machine but the API of servers and files that it is
// given. Others work on data directories, machines, terminals or signals.
func onlyCallsAPI(args []string) bool {
	if len(args) == 0 {
		return false
	}
	switch args[0] {
	case "node":
		onMachines := []string{"add", "adopt", "drift", "release", "repair", "upgrade"}
		return len(args) > 1 && !slices.Contains(onMachines, args[1])
	case "cron", "definition", "delete", "diff", "domain", "down", "endpoint", "events", "explain", "hold",
		"image", "inspect", "logs", "plan", "pool", "priority", "promote", "ps", "queue", "rebalance", "release",
		"reservation", "restart", "retry", "rollout", "run", "scale", "secret", "start", "status", "stop", "token",
		"top", "volume", "wait":
		return true
	}
	return false
}

// String shows the command and all that came of it.
func (r Result) String() string {
	return fmt.Sprintf("$ berth %s\n%s%s(exit code %d after %v)", strings.Join(r.Args, " "), r.Stdout, r.Stderr, r.Code,
		r.Took.Round(time.Millisecond))
}

// Want fails the test unless the command ended with a code and its two streams hold all of the words.
func (r Result) Want(tb testing.TB, code int, words ...string) {
	tb.Helper()
	if r.Code != code {
		tb.Fatalf("want exit code %d:\n%v", code, r)
	}
	for _, w := range words {
		if !strings.Contains(r.Stdout+r.Stderr, w) {
			tb.Errorf("want %q in what it prints:\n%v", w, r)
		}
	}
}
