package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/bench/busybox"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/freeport"
	"github.com/berthd/berth/internal/pause"
)

// Executors of the agents.
const (
	executorProcess    = "process"
	executorContainerd = "containerd"
)

// image is the name of the image that containers run.
const image = "berth.local/short:1"

// Limits of waits.
const (
	readyLimit = time.Minute
	clearLimit = 2 * time.Minute
	pollPause  = 50 * time.Millisecond
)

// domain is a server and its agents, with data folders below one folder.
type domain struct {
	berth, dir string
	messages   io.Writer // for the output of the processes
	server     *exec.Cmd
	agents     []*exec.Cmd
	client     *client.Client
	address    string
	env        []string
	jobs       []string
}

// startDomain starts the server and the agents and waits until the agents are ready.
func startDomain(ctx context.Context, o options, dir string, messages io.Writer) (d *domain, err error) {
	d = &domain{berth: o.berth, dir: dir, messages: messages}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.stop())
		}
	}()
	if err := d.startServer(ctx); err != nil {
		return nil, err
	}
	for i := range o.agents {
		if err := d.startAgent(ctx, o, fmt.Sprintf("n%d", i+1)); err != nil {
			return nil, err
		}
	}
	if o.executor != executorContainerd {
		return d, nil
	}
	archive, err := busybox.Image(dir, image)
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	if _, err := d.client.LoadImages(ctx, "", archive); err != nil {
		return nil, fmt.Errorf("load the image: %w", err)
	}
	return d, nil
}

// command returns berth with arguments. It does not end with the context: stop ends it.
func (d *domain) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), d.berth, args...)
	cmd.Env, cmd.Stderr = append(os.Environ(), d.env...), d.messages
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for this program
	return cmd
}

// startServer makes a server with an address for agents and starts it.
func (d *domain) startServer(ctx context.Context) error {
	reach, err := freeport.Address(ctx)
	if err != nil {
		return err
	}
	peer, err := freeport.Address(ctx)
	if err != nil {
		return err
	}
	data := filepath.Join(d.dir, "server")
	if err := d.command(ctx, "server", "init", "--name", "short", "--data-dir", data, "--advertise", reach,
		"--advertise-peers", peer).Run(); err != nil {
		return fmt.Errorf("make the server: %w", err)
	}
	d.address = "https://" + reach
	cmd := d.command(ctx, "server", "--data-dir", data, "--listen", "127.0.0.1:0", "--listen", d.address, "--log-level",
		"error", "--default-permissions", "all")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	d.server = cmd
	address := ""
	if _, err := fmt.Fscanf(out, "berth: ready at %s\n", &address); err != nil {
		return fmt.Errorf("the server did not become ready: %w", err)
	}
	tokenFile := filepath.Join(data, "token")
	token, err := os.ReadFile(tokenFile)
	if err != nil {
		return err
	}
	d.env = []string{
		"BERTH_ADDR=" + address, "BERTH_TOKEN_FILE=" + tokenFile, "XDG_CONFIG_HOME=" + d.dir, "HOME=" + d.dir,
	}
	d.client, err = client.New(client.Config{Addr: address, Token: strings.TrimSpace(string(token))})
	return err
}

// startAgent starts an agent with a join token and waits until its node is ready.
func (d *domain) startAgent(ctx context.Context, o options, name string) error {
	var token bytes.Buffer
	made := d.command(ctx, "token", "create", "--join", "--role", "node", "--for", name)
	var advice bytes.Buffer
	made.Stdout, made.Stderr = &token, &advice
	if err := made.Run(); err != nil {
		return fmt.Errorf("make a join token: %w: %s", err, advice.String())
	}
	file := filepath.Join(d.dir, name+".token")
	if err := os.WriteFile(file, token.Bytes(), 0o600); err != nil {
		return err
	}
	cmd := d.command(ctx, "agent", "--data-dir", filepath.Join(d.dir, name), "--name", name, "--executor", o.executor,
		"--process-isolation", o.isolation, "--join-token-file", file, "--server", d.address, "--dns-listen", "off",
		"--log-level", "error")
	if err := cmd.Start(); err != nil {
		return err
	}
	d.agents = append(d.agents, cmd)
	return until(ctx, readyLimit, func() error {
		n, err := d.client.Node(ctx, name)
		if err == nil && n.State != cluster.NodeReady {
			err = fmt.Errorf("the node %s is %s: %s", name, n.State, n.Reason)
		}
		return err
	})
}

// stop stops the jobs, waits until nothing is left of their tasks, and ends the agents and the server.
func (d *domain) stop() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), clearLimit)
	defer cancel()
	for _, job := range d.jobs {
		err = errors.Join(err, d.client.DeleteJob(ctx, cluster.DefaultCluster, job, client.Condition{}))
	}
	if len(d.jobs) > 0 {
		err = errors.Join(err, until(ctx, clearLimit, d.isClear))
	}
	for _, cmd := range append(d.agents, d.server) {
		if cmd != nil {
			_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
			_ = cmd.Wait()                          // it prints its own error
		}
	}
	return err
}

// isClear reports whether the agents have no folders of attempts left.
func (d *domain) isClear() error {
	left, err := filepath.Glob(filepath.Join(d.dir, "n*", "agent", "tasks", "*"))
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d attempts are left", len(left))
	}
	return err
}

// until waits until f returns no error. It returns the last error at the limit.
func until(ctx context.Context, limit time.Duration, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return nil
		}
		if pause.For(ctx, pollPause) != nil {
			return err
		}
	}
}
