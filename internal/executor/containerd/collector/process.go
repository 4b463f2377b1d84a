// Package collector collects the output of a node's containers. One process for all containers, the collector, reads
// their pipes and writes their logs. It outlives the agent, which starts it and talks to it through a Client.
package collector

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/outlive"
	"github.com/berthd/berth/internal/logs"
)

// Subcommand is the hidden subcommand of the default Config: when os.Args[1] is it, main must
// return Run(os.Args[2:]) before it does anything else.
const Subcommand = "collect-logs"

// Files of the collector's folder.
const (
	collectorLock   = "lock"
	collectorSocket = "control"
	collectorOutput = "collector.log"
	attachedSuffix  = ".attached" // one for each container whose pipes are read
)

// Attachment is a container whose pipes are read.
type Attachment struct {
	ID     executor.ID `json:"id"`
	Dir    string      `json:"dir"`     // holds the pipes
	LogDir string      `json:"log_dir"` // takes the log
	// Secrets and SecretEnv locate the values that the log must not contain.
	Secrets   []executor.Mount `json:"secrets,omitempty"`
	SecretEnv string           `json:"secret_env,omitempty"`
}

// Requests to the collector, a packet each. The reply is an error's text or nothing.
const (
	opAttach = "attach" // returns once the pipes are open, and will be opened again by a later collector
	opFinish = "finish" // returns once the content of the pipes is in the log
	opStop   = "stop"
	opWatch  = "watch" // returns with the collector's end
)

type request struct {
	Op         string     `json:"op"`
	Attachment Attachment `json:"attachment"`
}

// Named pipes in a container's folder.
const (
	StdoutFile = "stdout"
	StderrFile = "stderr"
)

// ValidID reports whether an id is one, which names files.
func ValidID(id executor.ID) bool {
	return id != "" && len(id) <= 76 && !strings.ContainsAny(string(id), "/\x00") && id[0] != '.'
}

// drainLimit is the most that is read from a pipe after finish while programs still write to it, in bytes.
const drainLimit = 16 << 20

// Run is the hidden subcommand of the log collector: the process that reads the output of all containers of a
// node and writes their logs. It opens pipes for reading and writing, so that programs neither fail nor wait while it
// lives. When it is killed, an agent starts the next one, which opens the same pipes. args follow the subcommand; the
// result is the exit code of the process.
func Run(args []string) int {
	if len(args) != 2 {
		fmt.Fprintln(os.Stderr, "this subcommand is berth's own, for the containerd executor")
		return 2
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE)
	outlive.LeaveCgroup(filepath.Join(args[1], "collector"))
	c := &server{
		dir: args[0], open: map[executor.ID]*reading{}, stopped: make(chan struct{}),
		buffers: make(bufferList, 4),
	}
	starter := os.NewFile(3, "starter")
	lock := os.NewFile(4, "lock")
	unix.CloseOnExec(3)
	unix.CloseOnExec(4)
	if err := c.begin(lock); err != nil {
		_, _ = io.WriteString(starter, err.Error())
		return 1
	}
	_ = starter.Close()
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	go c.serve()
	select {
	case <-terminated:
	case <-c.stopped:
	}
	c.end()
	_ = lock.Close()
	return 0
}

// server is the collector in its own process.
type server struct {
	dir     string
	listen  *net.UnixListener
	stopped chan struct{}
	once    sync.Once

	buffers bufferList

	mu   sync.Mutex
	open map[executor.ID]*reading
}

// bufferSize is the most that is read from a pipe in one call, in bytes.
const bufferSize = 32 << 10

// bufferList is a free list of a few read buffers.
type bufferList chan []byte

func (l bufferList) take() []byte {
	select {
	case b := <-l:
		return b
	default:
		return make([]byte, bufferSize)
	}
}

func (l bufferList) give(b []byte) {
	select {
	case l <- b:
	default:
	}
}

// begin opens the pipes that an earlier collector read, then the socket.
func (c *server) begin(lock *os.File) error {
	if err := outlive.Lock(lock); err != nil {
		return fmt.Errorf("lock collector: %w", err)
	}
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return fmt.Errorf("list attached containers: %w", err)
	}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), attachedSuffix) {
			continue
		}
		name := filepath.Join(c.dir, entry.Name())
		var a Attachment
		if err = outlive.Read(name, &a); err == nil {
			err = c.attach(a)
		}
		if err != nil { // its folder is gone, say
			fmt.Fprintln(os.Stderr, entry.Name(), err)
			_ = os.Remove(name)
		}
	}
	addr, folder, err := outlive.Address(c.dir, collectorSocket)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer folder.Close()
	_ = os.Remove(filepath.Join(c.dir, collectorSocket))
	if c.listen, err = net.ListenUnix("unixpacket", addr); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	c.listen.SetUnlinkOnClose(false)
	return nil
}

func (c *server) end() {
	_ = c.listen.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.open {
		r.finish()
	}
}

func (c *server) serve() {
	for {
		conn, err := c.listen.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of files, say
			continue
		}
		go c.answer(conn)
	}
}

func (c *server) answer(conn *net.UnixConn) {
	defer conn.Close()
	b := make([]byte, 16<<10)
	n, err := conn.Read(b)
	if err != nil {
		return
	}
	req, err := decodeRequest(b[:n])
	if err != nil {
		_, _ = conn.Write([]byte(err.Error()))
		return
	}
	switch req.Op {
	case opAttach:
		err = c.attach(req.Attachment)
	case opFinish:
		err = c.finish(req.Attachment.ID)
	case opStop:
		defer c.once.Do(func() { close(c.stopped) })
	case opWatch:
		_, _ = conn.Read(b) // until either side ends
		return
	default:
		err = fmt.Errorf("%q is not a request", req.Op)
	}
	text := "ok"
	if err != nil {
		text = err.Error()
	}
	_, _ = conn.Write([]byte(text))
}

// decodeRequest reads a request. The id of its container must be a valid file name.
func decodeRequest(b []byte) (request, error) {
	var req request
	if err := json.Unmarshal(b, &req); err != nil {
		return request{}, fmt.Errorf("understand request: %w", err)
	}
	if (req.Op == opAttach || req.Op == opFinish) && !ValidID(req.Attachment.ID) {
		return request{}, fmt.Errorf("%q is not the id of a container", req.Attachment.ID)
	}
	return req, nil
}

// attachedFile remembers a container whose pipes are read.
func attachedFile(dir string, id executor.ID) string {
	return filepath.Join(dir, string(id)+attachedSuffix)
}

func (c *server) attach(a Attachment) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[a.ID] != nil {
		return nil
	}
	r, err := newReading(a, c.buffers)
	if err != nil {
		return err
	}
	// Not durable: after a crash of the machine there is no program to collect from.
	b, err := json.Marshal(a)
	if err == nil {
		err = os.WriteFile(attachedFile(c.dir, a.ID), b, 0o600)
	}
	if err != nil {
		r.finish()
		return fmt.Errorf("remember attached container: %w", err)
	}
	c.open[a.ID] = r
	return nil
}

func (c *server) finish(id executor.ID) error {
	c.mu.Lock()
	r := c.open[id]
	delete(c.open, id)
	c.mu.Unlock()
	if r != nil {
		r.finish()
	}
	if err := os.Remove(attachedFile(c.dir, id)); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("forget container: %w", err)
	}
	return nil
}

// reading is one container whose pipes are read.
type reading struct {
	log   *logs.Writer
	pipes []*os.File
	done  sync.WaitGroup
}

func newReading(a Attachment, buffers bufferList) (*reading, error) {
	r := &reading{log: logs.NewWriter(
		logs.Config{Dir: a.LogDir, Mask: executor.NewMasker(a.Secrets, a.SecretEnv).Func()})}
	for name, stream := range map[string]logs.Stream{StdoutFile: logs.Stdout, StderrFile: logs.Stderr} {
		pipe, err := os.OpenFile(filepath.Join(a.Dir, name), os.O_RDWR|syscall.O_NONBLOCK, 0)
		if err != nil {
			r.finish()
			return nil, fmt.Errorf("open pipe: %w", err)
		}
		r.pipes = append(r.pipes, pipe)
		r.done.Go(func() { follow(pipe, r.log.Stream(stream), buffers) })
	}
	return r, nil
}

// finish reads the content of the pipes and closes them.
func (r *reading) finish() {
	for _, p := range r.pipes {
		_ = p.SetReadDeadline(time.Unix(1, 0))
	}
	r.done.Wait()
	for _, p := range r.pipes {
		_ = p.Close()
	}
	_ = r.log.Close()
}

// follow copies a pipe to a log until the pipe's deadline passes, then the remaining content. It holds a buffer only
// while there is something to read.
func follow(pipe *os.File, out io.Writer, buffers bufferList) {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return
	}
	read := func(fd uintptr) (n int, err error) {
		buf := buffers.take()
		defer buffers.give(buf)
		for {
			n, err = unix.Read(int(fd), buf)
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
		if n > 0 {
			_, _ = out.Write(buf[:n])
		}
		return n, err
	}
	for {
		failed := false
		err := raw.Read(func(fd uintptr) bool {
			_, err := read(fd)
			failed = err != nil && !errors.Is(err, unix.EAGAIN)
			return !errors.Is(err, unix.EAGAIN)
		})
		if err != nil || failed {
			break
		}
	}
	_ = raw.Control(func(fd uintptr) {
		for left := drainLimit; left > 0; {
			n, err := read(fd)
			if err != nil || n <= 0 {
				return
			}
			left -= n
		}
	})
}
