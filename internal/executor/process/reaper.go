package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/outlive"
)

// reaper collects every child of the supervisor, those it started and the orphans that the kernel
// gives to it.
type reaper struct {
	mu       sync.Mutex
	children map[int]*child

	entering sync.Mutex
	// to the thread whose children are born in the program's own namespace of processes; nil until one is
	among chan<- func()
}

// child is a process that the supervisor started by a launcher.
type child struct {
	pid    int
	ended  chan unix.WaitStatus // gets the status once
	order  *os.File             // a byte here lets the program run
	status *os.File             // carries errors until the program runs
	reaper *reaper
}

func newReaper() *reaper {
	r := &reaper{children: map[int]*child{}}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGCHLD)
	go func() {
		for range signals {
			r.collect()
		}
	}()
	return r
}

func (r *reaper) collect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid == 0 {
			return
		}
		if c := r.children[pid]; c != nil {
			delete(r.children, pid)
			c.ended <- status
		}
	}
}

// signal sends a signal to a child. Under the lock the pid is still the child's own.
func (r *reaper) signal(pid int, sig syscall.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.children[pid] == nil {
		return executor.ErrNotRunning
	}
	err := syscall.Kill(pid, sig)
	if errors.Is(err, syscall.ESRCH) {
		return executor.ErrNotRunning
	}
	if err != nil {
		return fmt.Errorf("signal program: %w", err)
	}
	return nil
}

// launch starts a launcher with an order and returns once it is ready before the program's first instruction.
func (r *reaper) launch(order launchOrder, subcommand string, stdio [3]*os.File) (*child, error) {
	orderIn, orderOut, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("launch: %w", err)
	}
	defer orderIn.Close()
	statusIn, statusOut, err := os.Pipe()
	if err != nil {
		_ = orderOut.Close()
		return nil, fmt.Errorf("launch: %w", err)
	}
	defer statusOut.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		_, _ = orderOut.Close(), statusIn.Close()
		return nil, fmt.Errorf("launch: %w", err)
	}
	defer null.Close()
	order.Parent = os.Getpid()
	fds := make([]uintptr, 0, 5)
	for _, f := range []*os.File{stdio[0], stdio[1], stdio[2], orderIn, statusOut} {
		if f == nil {
			f = null
		}
		fds = append(fds, f.Fd())
	}
	c := &child{ended: make(chan unix.WaitStatus, 1), order: orderOut, status: statusIn, reaper: r}
	fork := func() (err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		c.pid, err = syscall.ForkExec("/proc/self/exe", []string{os.Args[0], subcommand, modeLaunch}, &syscall.ProcAttr{
			Dir: "/", Env: []string{"GOMAXPROCS=1", "GOGC=off"}, Files: fds, Sys: order.attributes(),
		})
		if err == nil {
			r.children[c.pid] = c
		}
		return err
	}
	if order.Isolation != nil && order.Join != 0 {
		err = r.forkAmong(order.Join, fork)
	} else {
		err = fork()
	}
	if err != nil {
		_, _ = orderOut.Close(), statusIn.Close()
		return nil, order.refused(fmt.Errorf("launch: %w", err))
	}
	_ = statusOut.Close()
	_ = orderIn.Close()
	if err = json.NewEncoder(orderOut).Encode(order); err == nil {
		err = c.readStatus()
	}
	if err := c.hearError(err); err != nil {
		_ = c.signal(syscall.SIGKILL)
		return nil, err
	}
	return c, nil
}

// forkAmong forks a child into the process namespace of another program, always the same one. The forking thread is the
// child's parent: it never ends, because its end would kill its children.
func (r *reaper) forkAmong(pid int, fork func() error) error {
	r.entering.Lock()
	defer r.entering.Unlock()
	if r.among == nil {
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/pid", pid))
		if err != nil {
			return fmt.Errorf("%w: %w", executor.ErrNotRunning, err)
		}
		defer ns.Close()
		work, entered := make(chan func()), make(chan error)
		go func() {
			runtime.LockOSThread()
			err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWPID) // of its children alone
			entered <- err
			for do := range work {
				do()
			}
		}()
		if err := <-entered; err != nil {
			return fmt.Errorf("join the processes of the program: %w", err)
		}
		r.among = work
	}
	done := make(chan error)
	r.among <- func() { done <- fork() }
	return <-done
}

// readStatus reads one status from the launcher.
func (c *child) readStatus() error {
	var rep reply
	dec := json.NewDecoder(oneByte{c.status})
	if err := dec.Decode(&rep); err != nil {
		return err
	}
	return rep.err()
}

func (c *child) hearError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the launcher died")
	}
	return err
}

// oneByte reads no further than asked, so that a decoder leaves what follows.
type oneByte struct{ r io.Reader }

func (o oneByte) Read(p []byte) (int, error) { return o.r.Read(p[:min(len(p), 1)]) }

// release lets the program run and returns once it does, or why it could not.
func (c *child) release() error {
	defer c.order.Close()
	defer c.status.Close()
	if _, err := c.order.Write([]byte{'\n'}); err != nil {
		return fmt.Errorf("start program: %w", err)
	}
	if err := c.readStatus(); !errors.Is(err, io.EOF) {
		return err
	}
	return nil // the status pipe was closed by the program's exec
}

func (c *child) signal(sig syscall.Signal) error { return c.reaper.signal(c.pid, sig) }

// killDescendants kills all processes below this one and returns how many there were.
func killDescendants() int {
	if !hasChildren() {
		return 0 // orphans would be children of this process, which is a subreaper
	}
	root := os.Getpid()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	stats := map[int]outlive.Stat{}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if st, ok := outlive.StatOf(pid); ok {
				stats[pid] = st
			}
		}
	}
	killed := 0
	for pid, st := range stats {
		if st.State == 'Z' || !below(stats, pid, root) {
			continue
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
		killed++
	}
	return killed
}

// hasChildren reports whether this process has children, ended ones that were not waited for among them.
func hasChildren() bool {
	for {
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil)
		if !errors.Is(err, unix.EINTR) {
			return !errors.Is(err, unix.ECHILD)
		}
	}
}

func below(stats map[int]outlive.Stat, pid, root int) bool {
	for range stats { // no chain of parents is longer
		st, ok := stats[pid]
		if !ok || pid == root {
			return false
		}
		if st.Parent == root {
			return true
		}
		pid = st.Parent
	}
	return false
}
