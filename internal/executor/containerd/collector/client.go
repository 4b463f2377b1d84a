package collector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/outlive"
	"github.com/berthd/berth/internal/pause"
)

// Config says how the collector is started.
type Config struct {
	// Dir is the folder of the collector. It is made if it does not exist.
	Dir string
	// Executable is the program whose main calls Run, and Subcommand its first argument.
	Executable, Subcommand string
	// Cgroup is the cgroup below which the collector gets its own.
	Cgroup string
}

// Client is the agent's side of the node's collector: it starts the process when there is none. Safe for concurrent
// use.
type Client struct {
	Config

	starting sync.Mutex

	mu       sync.Mutex
	watchers int
	unwatch  context.CancelFunc
}

// New returns a client. It starts nothing.
func New(c Config) *Client { return &Client{Config: c} }

// retryAfter is the pause before the next watch of a collector that could not be started.
const retryAfter = 100 * time.Millisecond

// errNoCollector reports that no collector answers.
var errNoCollector = errors.New("no collector")

// Attach opens a container's pipes.
func (c *Client) Attach(ctx context.Context, a Attachment) error {
	return c.call(ctx, request{opAttach, a})
}

// Finish returns once the whole content of a container's pipes is in its log. Without pipes it does nothing.
func (c *Client) Finish(ctx context.Context, id executor.ID) error {
	if _, err := os.Stat(attachedFile(c.Dir, id)); os.IsNotExist(err) {
		return nil
	}
	return c.call(ctx, request{opFinish, Attachment{ID: id}})
}

// Stop ends the collector, if there is one.
func (c *Client) Stop(ctx context.Context) error {
	err := c.ask(ctx, request{Op: opStop})
	for err == nil && outlive.Locked(filepath.Join(c.Dir, collectorLock)) {
		err = pause.For(ctx, 2*time.Millisecond)
	}
	if errors.Is(err, errNoCollector) {
		return nil
	}
	return err
}

// call asks the collector, a new one if it must.
func (c *Client) call(ctx context.Context, req request) error {
	for {
		err := c.ask(ctx, req)
		if !errors.Is(err, errNoCollector) {
			return err
		}
		if err := c.start(ctx); err != nil {
			return err
		}
	}
}

// ask sends one request. The reply of a watch is the collector's end.
func (c *Client) ask(ctx context.Context, req request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	addr, folder, err := outlive.Address(c.Dir, collectorSocket)
	if err != nil {
		return errNoCollector
	}
	conn, err := net.DialUnix("unixpacket", nil, addr)
	_ = folder.Close()
	if err != nil {
		return errNoCollector
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	b, err := json.Marshal(req)
	if err != nil {
		return fmt.Errorf("ask collector: %w", err)
	}
	if _, err := conn.Write(b); err != nil {
		return errNoCollector
	}
	buf := make([]byte, 4<<10)
	n, err := conn.Read(buf)
	switch text := string(buf[:n]); {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil || n == 0:
		return errNoCollector
	case text != "ok":
		return fmt.Errorf("collect logs: %s", text)
	}
	return nil
}

// start starts a collector unless one holds the lock.
func (c *Client) start(ctx context.Context) error {
	c.starting.Lock()
	defer c.starting.Unlock()
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return fmt.Errorf("make collector's folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(c.Dir, collectorLock), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("lock collector: %w", err)
	}
	defer lock.Close()
	if err := outlive.Lock(lock); err != nil {
		return pause.For(ctx, 2*time.Millisecond) // it is about to listen, or to end
	}
	out, err := os.OpenFile(filepath.Join(c.Dir, collectorOutput), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("start collector: %w", err)
	}
	defer out.Close()
	ready, readyEnd, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start collector: %w", err)
	}
	defer ready.Close()
	cmd := exec.Command(c.Executable, c.Subcommand, c.Dir, c.Cgroup) //nolint:noctx // it outlives call and agent
	cmd.Dir, cmd.Env = "/", []string{"GOMAXPROCS=2", "GOTRACEBACK=single", "GOGC=50"}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.ExtraFiles = []*os.File{readyEnd, lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = readyEnd.Close()
	if err != nil {
		return fmt.Errorf("start collector: %w", err)
	}
	go func() { _ = cmd.Wait() }()
	if trouble, _ := io.ReadAll(ready); len(trouble) > 0 {
		return fmt.Errorf("start collector: %s", trouble)
	}
	return nil
}

// Watch keeps a collector running until the returned function was called as often as watch: when the
// collector dies, the pipes fill up, and programs wait for the next one.
func (c *Client) Watch(ctx context.Context) (unwatch func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watchers++; c.watchers == 1 {
		var watching context.Context
		watching, c.unwatch = context.WithCancel(context.WithoutCancel(ctx))
		go c.keep(watching)
	}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.watchers--; c.watchers == 0 {
			c.unwatch()
		}
	})
}

func (c *Client) keep(ctx context.Context) {
	for ctx.Err() == nil {
		err := c.call(ctx, request{Op: opWatch})
		if err != nil && pause.For(ctx, retryAfter) != nil {
			return
		}
	}
}
