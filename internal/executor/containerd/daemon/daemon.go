// Package daemon starts a containerd of Berth's own and ends it.
package daemon

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/client"

	"github.com/berthd/berth/internal/executor/outlive"
	"github.com/berthd/berth/internal/pause"
)

// Config says where a containerd of Berth's own lives.
type Config struct {
	// Dir holds all of it: images, containers, configuration and log.
	Dir string
	// Executable is the daemon, by default "containerd" of the PATH.
	Executable string
}

// Daemon is a containerd that Berth started. It outlives the process that launched it.
type Daemon struct {
	// Address is its socket.
	Address string
	dir     string
}

// daemonRecord names the process of a daemon.
type daemonRecord struct {
	Pid   int    `json:"pid"`
	Start uint64 `json:"start"`
}

const (
	daemonFile = "daemon.json"
	daemonLog  = "containerd.log"
	// longestSocket is the longest path that a socket may have.
	longestSocket = 107
)

// Launch returns the containerd in cfg.Dir, and starts it if it does not run. It returns once the daemon serves. It
// needs root; two calls for a folder must not overlap.
func Launch(ctx context.Context, cfg Config) (*Daemon, error) {
	if cfg.Executable == "" {
		cfg.Executable = "containerd"
	}
	exe, err := exec.LookPath(cfg.Executable)
	if err != nil {
		return nil, fmt.Errorf("find containerd: %w", err)
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("find folder of containerd: %w", err)
	}
	d := &Daemon{dir: dir, Address: filepath.Join(dir, "containerd.sock")}
	if len(d.Address)+len(".ttrpc") > longestSocket {
		sum := sha256.Sum256([]byte(dir))
		d.Address = fmt.Sprintf("/run/berth/%x/containerd.sock", sum[:8])
	}
	if _, ok := d.running(); !ok {
		if err := d.start(exe); err != nil {
			return nil, err
		}
	}
	return d, d.serves(ctx)
}

// running returns the pid of the daemon, if it runs.
func (d *Daemon) running() (int, bool) {
	var r daemonRecord
	if err := outlive.Read(filepath.Join(d.dir, daemonFile), &r); err != nil || r.Pid <= 0 || r.Start == 0 {
		return 0, false
	}
	return r.Pid, outlive.StartOf(r.Pid) == r.Start
}

func (d *Daemon) start(exe string) error {
	for _, dir := range []string{d.dir, filepath.Dir(d.Address)} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return fmt.Errorf("make folder of containerd: %w", err)
		}
	}
	// On a busy machine containerd's own limits of five seconds pass. It then leaves file systems mounted, or
	// takes a container for dead whose shim has not answered yet.
	config := fmt.Sprintf(`version = 2
root = %q
state = %q
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime"]
[grpc]
  address = %q
[timeouts]
  "io.containerd.timeout.shim.cleanup" = "1m"
  "io.containerd.timeout.shim.load" = "1m"
`, filepath.Join(d.dir, "root"), filepath.Join(d.dir, "state"), d.Address)
	name := filepath.Join(d.dir, "config.toml")
	if err := os.WriteFile(name, []byte(config), 0o600); err != nil {
		return fmt.Errorf("configure containerd: %w", err)
	}
	out, err := os.OpenFile(filepath.Join(d.dir, daemonLog), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	defer out.Close()
	cmd := exec.Command(exe, "--config", name) //nolint:noctx // it outlives the call and the agent
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	r := daemonRecord{cmd.Process.Pid, outlive.StartOf(cmd.Process.Pid)}
	err = outlive.Write(filepath.Join(d.dir, daemonFile), r)
	if err != nil {
		_ = cmd.Process.Kill()
	}
	go func() { _ = cmd.Wait() }()
	return err
}

// serves returns once the daemon answers, or died.
func (d *Daemon) serves(ctx context.Context) error {
	cl, err := client.New(d.Address, client.WithTimeout(time.Second))
	if err != nil {
		return fmt.Errorf("connect to containerd: %w", err)
	}
	defer cl.Close()
	for {
		if _, err := os.Stat(d.Address); err == nil {
			if ok, err := cl.IsServing(ctx); err == nil && ok {
				return nil
			}
		}
		if _, ok := d.running(); !ok {
			return fmt.Errorf("containerd died at its start; see %s", filepath.Join(d.dir, daemonLog))
		}
		if err := pause.For(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("start containerd: %w", err)
		}
	}
}

// Stop ends the daemon and returns after its exit. Containers run on without it.
func (d *Daemon) Stop(ctx context.Context) error {
	pid, ok := d.running()
	if !ok {
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop containerd: %w", err)
	}
	for {
		if _, ok := d.running(); !ok {
			return nil
		}
		if err := pause.For(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("stop containerd: %w", err)
		}
	}
}
