package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berthd/berth/internal/freeport"
)

// berth is a running `berth dev`, and the command line that talks to it.
type berth struct {
	demo   *demo
	server *exec.Cmd
	ended  chan error // gets the server's end, once
	log    *os.File
	url    string
	names  string // where names of services are answered
}

// readyLimit bounds the time until the server is ready. Most of it is the start of containerd.
const readyLimit = 30 * time.Second

// startBerth starts the server in a process group of its own, so that Ctrl-C reaches only
// the demo, which then stops the tasks first.
func startBerth(ctx context.Context, d *demo, executor string) (*berth, error) {
	log, err := os.Create(filepath.Join(d.data, "berth.log"))
	if err != nil {
		return nil, fmt.Errorf("open the server's log: %w", err)
	}
	b := &berth{demo: d, ended: make(chan error, 1), log: log}
	if b.names, err = freeport.Address(ctx); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	args := append([]string{
		"dev", "--data-dir", b.dataDir(), "--http", "127.0.0.1:0", "--dns-listen", b.names,
		"--executor", executor,
	}, d.flags...)
	b.server = exec.Command(b.demo.binary, args...) //nolint:noctx // it outlives Ctrl-C, until the tasks are gone
	// The user's own settings do not change.
	b.server.Env = append(os.Environ(), "XDG_CONFIG_HOME="+filepath.Join(d.data, "config"))
	b.server.Stderr = log
	b.server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := b.server.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start berth dev: %w", err)
	}
	if err := b.server.Start(); err != nil {
		return nil, fmt.Errorf("start berth dev: %w", err)
	}
	ready := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if _, url, ok := strings.Cut(lines.Text(), "berth: ready at "); ok && len(ready) == 0 {
				ready <- strings.TrimSpace(url)
				continue
			}
			d.print("berth dev: %s", lines.Text())
		}
		b.ended <- b.server.Wait()
	}()
	select {
	case b.url = <-ready:
		return b, nil
	case err := <-b.ended:
		return nil, fmt.Errorf("berth dev ended before it was ready: %w: %s", orExit(err), b.lastWords())
	case <-time.After(d.limit(readyLimit)):
		err = fmt.Errorf("berth dev was not ready after %v: %s", d.limit(readyLimit), b.lastWords())
	case <-ctx.Done():
		err = ctx.Err()
	}
	return nil, errors.Join(err, b.stopServer(context.WithoutCancel(ctx)))
}

func orExit(err error) error {
	if err == nil {
		return errors.New("exit code 0")
	}
	return err
}

func (b *berth) dataDir() string { return filepath.Join(b.demo.data, "data") }

// addr is the server's socket, which only this user can open: no token is needed.
func (b *berth) addr() string { return "unix://" + filepath.Join(b.dataDir(), "api.sock") }

// command returns a call of the command line, in the folder of the manifests.
func (b *berth) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.demo.binary, args...)
	cmd.Dir = b.demo.data
	cmd.Env = append(os.Environ(), "BERTH_ADDR="+b.addr())
	return cmd
}

// show runs a command whose output is for people.
func (b *berth) show(ctx context.Context, args ...string) error {
	fmt.Fprintf(b.demo.stdout, "\n$ berth %s\n", strings.Join(args, " "))
	cmd := b.command(ctx, args...)
	cmd.Stdout, cmd.Stderr = b.demo.stdout, b.demo.stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("berth %s: %w", args[0], err)
	}
	return nil
}

// keep makes a secret of a text, which goes through standard input only.
func (b *berth) keep(ctx context.Context, name, text string) error {
	fmt.Fprintf(b.demo.stdout, "\n$ berth secret set %s --keep-newline\n", name)
	cmd := b.command(ctx, "secret", "set", name, "--keep-newline")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), b.demo.stdout, b.demo.stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("berth secret set: %w", err)
	}
	return nil
}

// read runs a command and returns its output.
func (b *berth) read(ctx context.Context, args ...string) ([]byte, error) {
	cmd := b.command(ctx, args...)
	var messages bytes.Buffer
	cmd.Stderr = &messages
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("berth %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(messages.String()))
	}
	return out, nil
}

// task holds the fields of `berth ps -o json` that the demo reads.
type task struct {
	ID    string `json:"id"`
	Owner struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
	} `json:"owner"`
	Step       string         `json:"step"`
	Index      int            `json:"index"`
	Attempt    int            `json:"attempt"`
	Definition string         `json:"definition"`
	Address    string         `json:"address"`
	Ports      map[string]int `json:"ports"`
	State      string         `json:"state"`
	Health     string         `json:"health"`
	Placed     *time.Time     `json:"placed"`
	Started    *time.Time     `json:"started"`
	Exit       *struct {
		Code int `json:"code"`
	} `json:"exit"`
	Containers []struct {
		Name string `json:"name"`
		Pid  int    `json:"pid"`
	} `json:"containers"`
}

// addr is where a port of the task is reached.
func (t task) addr(port string) string {
	return net.JoinHostPort(t.Address, strconv.Itoa(t.Ports[port]))
}

// healthy reports whether the task may be sent work.
func (t task) healthy() bool { return t.State == "running" && t.Health == "healthy" }

// tasks lists the tasks that have not ended.
func (b *berth) tasks(ctx context.Context) ([]task, error) {
	out, err := b.read(ctx, "ps", "-o", "json")
	if err != nil {
		return nil, err
	}
	tasks, err := items[task](out)
	if err != nil {
		return nil, fmt.Errorf("read berth ps: %w", err)
	}
	return tasks, nil
}

// healthyTasks lists the healthy tasks of a service by index.
func (b *berth) healthyTasks(ctx context.Context, service string) ([]task, error) {
	all, err := b.tasks(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(t task) bool {
		return t.Owner.Kind != "Service" || t.Owner.Name != service || !t.healthy()
	})
	slices.SortFunc(all, func(x, y task) int { return x.Index - y.Index })
	return all, nil
}

// items reads a list: an array, or a page that holds one.
func items[T any](out []byte) ([]T, error) {
	var list []T
	if json.Unmarshal(out, &list) == nil {
		return list, nil
	}
	var page struct {
		Items []T `json:"items"`
	}
	if err := json.Unmarshal(out, &page); err != nil {
		return nil, fmt.Errorf("decode a list: %w", err)
	}
	return page.Items, nil
}

// runsProcesses reports whether the node's default executor runs plain processes.
func (b *berth) runsProcesses(ctx context.Context) (bool, error) {
	type node struct {
		Facts struct {
			Executors []struct {
				Name string `json:"name"`
			} `json:"executors"`
		} `json:"facts"`
	}
	var first string
	err := until(ctx, b.demo.limit(readyLimit), func() error {
		out, err := b.read(ctx, "node", "ls", "-o", "json")
		if err != nil {
			return err
		}
		nodes, err := items[node](out)
		if err != nil {
			return err
		}
		if len(nodes) == 0 || len(nodes[0].Facts.Executors) == 0 {
			return errors.New("no node with an executor has registered")
		}
		first = nodes[0].Facts.Executors[0].Name
		return nil
	})
	return first == "process", err
}

// end deletes what was deployed, waits until no task is left, and stops the server.
func (b *berth) end(ctx context.Context) error {
	pids := b.pids(ctx)
	var deleted, gone error
	if files := b.demo.deployed(); len(files) > 0 {
		_, deleted = b.read(ctx, append([]string{"down"}, files...)...)
	}
	if deleted == nil {
		gone = until(ctx, b.demo.limit(time.Minute), func() error {
			left, err := b.tasks(ctx)
			if err == nil && len(left) > 0 {
				err = fmt.Errorf("%d tasks are left, such as %s, which is %s", len(left), left[0].ID, left[0].State)
			}
			return err
		})
	}
	err := errors.Join(deleted, gone, b.stopServer(ctx))
	for _, pid := range pids {
		if processLives(pid) {
			err = errors.Join(err, fmt.Errorf("process %d of a task outlived it", pid))
		}
	}
	if err != nil {
		err = fmt.Errorf("take down: %w: %s", err, b.lastWords())
	}
	return errors.Join(err, b.log.Close())
}

// pids returns the processes of all tasks, or none if they cannot be read.
func (b *berth) pids(ctx context.Context) (pids []int) {
	tasks, err := b.tasks(ctx)
	if err != nil {
		return nil
	}
	for _, t := range tasks {
		for _, c := range t.Containers {
			if c.Pid > 0 {
				pids = append(pids, c.Pid)
			}
		}
	}
	return pids
}

// processLives reports whether a process runs. A zombie does not count.
func processLives(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, ok := strings.Cut(string(stat), ") ")
	return ok && !strings.HasPrefix(after, "Z")
}

// stopServer sends TERM and waits; a server that does not end is killed, which is an error.
func (b *berth) stopServer(ctx context.Context) error {
	if err := b.server.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("berth dev had ended before: %w", err)
	}
	select {
	case err := <-b.ended:
		if err != nil {
			return fmt.Errorf("berth dev: %w", err)
		}
		return nil
	case <-time.After(b.demo.limit(30 * time.Second)):
	case <-ctx.Done():
	}
	return errors.Join(errors.New("berth dev did not end after TERM"), b.server.Process.Kill())
}

// lastWords is the end of the server's log.
func (b *berth) lastWords() string {
	const most = 2000
	text, err := os.ReadFile(b.log.Name())
	if err != nil || len(text) == 0 {
		return "it logged nothing"
	}
	return "the end of its log:\n" + string(text[max(0, len(text)-most):])
}

// until polls until check returns nil; after the limit it returns check's last error.
func until(ctx context.Context, limit time.Duration, check func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := check()
		switch {
		case err == nil:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("after %v: %w", limit, err)
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
