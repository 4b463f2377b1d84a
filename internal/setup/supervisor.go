package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// restartDelay is the time until an agent that has ended is started again. It doubles with each start up to
	// maxRestartDelay, and starts anew after an agent that ran for steadyTime.
	restartDelay    = time.Second
	maxRestartDelay = 30 * time.Second
	steadyTime      = time.Minute
	// maxLog is the size of the agent's log at which a start of the agent moves it to a second file.
	maxLog = 16 << 20
)

// startDetached starts a program that outlives this process and its terminal. Its output is added to a log.
func startDetached(program, log string, arguments ...string) error {
	out, err := openLog(log)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	command := exec.Command(program, arguments...) //nolint:noctx // it outlives this process
	command.Dir, command.Stdout, command.Stderr = "/", out, out
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return err
	}
	return command.Process.Release()
}

// openLog opens the log for a new line at its end. A large log is moved away first.
func openLog(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > maxLog {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // as /var/log is
		return nil, err
	}
	return os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
}

// ErrSupervised means that another supervisor of the machine's agent runs.
var ErrSupervised = errors.New("another supervisor of the agent runs on this machine")

// Supervise runs the agent of a machine without systemd, and starts it again whenever it ends. SIGHUP replaces this
// process and the agent by those of the installed binary. SIGTERM and SIGINT end both; tasks continue.
func Supervise(m *Machine, log *slog.Logger) error {
	lock, err := m.holdSupervisor()
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if m.has(upgradeFile) { // the machine was booted, or another supervisor ended
		if err := m.startWatch(context.Background(), binaryAt(m.installedSum())); err != nil {
			log.Error("the unconfirmed upgrade is not watched", "error", err)
		}
	}
	// The kernel ends the agent when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGHUP, unix.SIGTERM, unix.SIGINT)
	for delay := restartDelay; ; delay = min(2*delay, maxRestartDelay) {
		begun := time.Now()
		got, err := m.runAgent(signals)
		if got == nil {
			log.Error("the agent has ended", "error", err, "next_start", delay)
			if time.Since(begun) > steadyTime {
				delay = restartDelay
			}
			select {
			case got = <-signals:
			case <-time.After(delay):
				continue
			}
		}
		if got != unix.SIGHUP {
			return nil
		}
		program := m.path(BinaryLink)
		target, err := filepath.EvalSymlinks(program)
		if err != nil {
			return err
		}
		return unix.Exec(target, append([]string{program}, os.Args[1:]...), os.Environ())
	}
}

// openRunFile opens a file of /run that a process locks while it runs.
func (m *Machine) openRunFile(name string) (*os.File, error) {
	path := m.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // as /run is
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
}

// holdSupervisor makes this process the supervisor of the machine, until the file is closed.
func (m *Machine) holdSupervisor() (*os.File, error) {
	f, err := m.openRunFile(supervisorFile)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(ErrSupervised, f.Close())
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// runAgent runs the agent until it ends, or until a signal, which it returns once the agent has ended.
func (m *Machine) runAgent(signals <-chan os.Signal) (os.Signal, error) {
	b, err := os.ReadFile(m.path(ArgumentsFile))
	if err != nil {
		return nil, err
	}
	var arguments []string
	if err := json.Unmarshal(b, &arguments); err != nil {
		return nil, fmt.Errorf("read %s: %w", ArgumentsFile, err)
	}
	out, err := openLog(m.path(LogFile))
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	command := exec.CommandContext(context.Background(), m.path(BinaryLink), arguments...)
	command.Dir, command.Stdout, command.Stderr = "/", out, out
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGTERM}
	if err := command.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	select {
	case err := <-ended:
		return nil, err
	case got := <-signals:
		_ = command.Process.Signal(unix.SIGTERM) // it may have ended
		return got, <-ended
	}
}
