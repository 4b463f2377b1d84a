// Command agent measures what an agent costs its node: a real `berth server` and a real `berth agent` with many tasks
// that are idle, or that all write to their logs. It prints the figures of the agent's own process. The supervisors,
// which read the containers' outputs, are listed separately.
//
//	agent -berth bin/berth -tasks 200 -for 1m
//
// It runs the tasks with the executor process, whose supervisors read the outputs: each container has one.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berthd/berth/internal/pause"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

// node is a server and an agent of this machine, with a data folder of their own.
type node struct {
	berth, dir string
	env        []string
	out        io.Writer // for their output
	server     *exec.Cmd
	agent      *exec.Cmd
	loaded     bool // there is a service
}

func run(ctx context.Context, args []string, out, messages io.Writer) (err error) {
	flags := flag.NewFlagSet("agent", flag.ContinueOnError)
	berth := flags.String("berth", "bin/berth", "the berth binary")
	tasks := flags.Int("tasks", 200, "how many tasks")
	length := flags.Duration("for", time.Minute, "how long to measure each")
	settle := flags.Duration("settle", 20*time.Second, "how long to wait before")
	total := flags.Int("bytes", 1<<20, "how much the chatty tasks write in a second, all of them")
	metrics := flags.Bool("metrics", false, "the agent shows the metrics of its tasks")
	if err := flags.Parse(args); err != nil {
		return err
	}
	binary, err := filepath.Abs(*berth)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "berth-agent-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	n := &node{
		berth: binary, dir: dir, out: messages,
		env: append(os.Environ(), "XDG_CONFIG_HOME="+dir, "HOME="+dir, "BERTH_ADDR=unix://"+dir+"/api.sock"),
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	if err := n.start(ctx, *metrics); err != nil {
		return err
	}
	fmt.Fprintf(out, "| %d tasks, %v each | agent, %% of a core | agent, resident | without pages of files "+
		"| supervisors, %% of a core |\n|---|---|---|---|---|\n", *tasks, *length)
	for version, load := range []struct{ name, command string }{
		{"none", ""},
		{"idle", "exec sleep 100000"},
		{fmt.Sprintf("chatty: %d KiB of logs a second in all", *total>>10), chatter(*total / *tasks)},
	} {
		if err := n.load(ctx, version, *tasks, load.command); err != nil {
			return err
		}
		if err := pause.For(ctx, *settle); err != nil {
			return err
		}
		pid := n.agent.Process.Pid
		before, others := worked(pid), supervisors(dir)
		began := time.Now()
		if err := pause.For(ctx, *length); err != nil {
			return err
		}
		past := time.Since(began).Seconds()
		after, then := worked(pid), supervisors(dir)
		sum := 0.0
		for pid, cpu := range then { // order-free: a sum
			sum += cpu - others[pid]
		}
		fmt.Fprintf(out, "| %s | %.2f | %d MB | %d MB | %.1f |\n", load.name, (after-before)/past*100,
			status(pid, "VmRSS:")>>20, status(pid, "RssAnon:")>>20, sum/past*100)
	}
	return nil
}

// chatter returns a program that writes that many bytes a second in lines of 100 bytes. It writes every four seconds,
// since each sleep is a process of its own.
func chatter(bytes int) string {
	const seconds = 4
	text := strings.Repeat(strings.Repeat("x", 99)+"\n", max(bytes*seconds/100, 1))
	return "while :; do printf '%s' '" + text + "'; sleep " + strconv.Itoa(seconds) + "; done"
}

// command returns berth with arguments.
func (n *node) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, n.berth, args...)
	cmd.Env, cmd.Stderr = n.env, n.out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for this program
	return cmd
}

// start starts the server and the agent.
func (n *node) start(ctx context.Context, metrics bool) error {
	background := context.WithoutCancel(ctx) // stop ends them
	n.server = n.command(background, "server", "--data-dir", n.dir+"/server", "--listen", "unix://"+n.dir+"/api.sock",
		"--log-level", "warn", "--default-permissions", "all")
	stdout, err := n.server.StdoutPipe()
	if err != nil {
		return err
	}
	if err := n.server.Start(); err != nil {
		return err
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || !strings.HasPrefix(line, "berth: ready") {
		return errors.Join(fmt.Errorf("berth server did not become ready: %q", line), err)
	}
	args := []string{
		"agent", "--data-dir", n.dir + "/node", "--server", "unix://" + n.dir + "/api.sock", "--name", "bench",
		"--executor", "process", "--process-isolation", "none", "--log-level", "warn",
	}
	if metrics {
		args = append(args, "--metrics-listen", "127.0.0.1:0")
	}
	n.agent = n.command(background, args...)
	return n.agent.Start()
}

// load replaces the node's tasks by that many tasks of a program, or none.
func (n *node) load(ctx context.Context, version, tasks int, program string) error {
	if program == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	if err := n.empty(ctx); err != nil {
		return err
	}
	manifest := fmt.Sprintf(`kind: TaskDefinition
name: load
version: %d
containers:
  - name: main
    command: [sh, -c, %q]
    resources: {cpu: 1m, memory: 1MiB}
min_healthy_time: 100ms
grace: 1s
---
kind: Service
name: load
definition: load@%d
count: %d
`, version, program, version, tasks)
	file := filepath.Join(n.dir, "load.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		return err
	}
	n.loaded = true
	return n.command(ctx, "run", file).Run()
}

// empty deletes what runs.
func (n *node) empty(ctx context.Context) error {
	if !n.loaded {
		return nil
	}
	n.loaded = false
	return n.command(ctx, "delete", "service/load").Run()
}

// stop ends all that was started, the tasks first.
func (n *node) stop() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	err = n.empty(ctx)
	for _, cmd := range []*exec.Cmd{n.agent, n.server} {
		if cmd != nil && cmd.Process != nil {
			_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
			_ = cmd.Wait()                          // it prints its own error
		}
	}
	return err
}
