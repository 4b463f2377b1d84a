package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// supervisorFile is held by the supervisor, and has its process.
	supervisorFile = "/run/berth-supervisor.pid"
	// startLimit bounds the time until a started supervisor holds its lock.
	startLimit = 10 * time.Second
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
	s := supervisor{m}
	lock, err := s.hold()
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if u := NewUpgrades(m); u.isWaiting() { // the machine was booted, or another supervisor ended
		if err := u.startWatch(context.Background(), binaryAt(m.installedSum())); err != nil {
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
		got, err := s.runAgent(signals)
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

// supervisor is our own supervisor of the agent, on a machine without systemd. It holds a lock while it runs.
type supervisor struct{ machine *Machine }

// pid returns the process of the supervisor; 0 if none runs.
func (s supervisor) pid() int {
	f, err := os.Open(s.machine.path(supervisorFile))
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
		return 0 // its holder has ended
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return pid
}

// restart makes the supervisor and the agent run the binary that BinaryLink leads to, with the arguments of
// ArgumentsFile.
func (s supervisor) restart(ctx context.Context, b *binary) error {
	if pid := s.pid(); pid > 0 {
		// it starts again with the new binary and the new arguments
		if err := unix.Kill(pid, unix.SIGHUP); err != nil {
			return fmt.Errorf("signal the supervisor: %w", err)
		}
		return s.await(ctx, b)
	}
	if err := startDetached(s.machine.path(BinaryLink), s.machine.path(LogFile), "machine", "supervise"); err != nil {
		return fmt.Errorf("start the supervisor: %w", err)
	}
	return s.await(ctx, b)
}

// await waits until the supervisor runs the binary.
func (s supervisor) await(ctx context.Context, b *binary) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		if runsBinary(s.machine, s.pid(), b) {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("the supervisor of the agent does not run: see " + LogFile)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// hold makes this process the supervisor of the machine, until the file is closed.
func (s supervisor) hold() (*os.File, error) {
	f, err := s.machine.openRunFile(supervisorFile)
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
func (s supervisor) runAgent(signals <-chan os.Signal) (os.Signal, error) {
	b, err := os.ReadFile(s.machine.path(ArgumentsFile))
	if err != nil {
		return nil, err
	}
	var arguments []string
	if err := json.Unmarshal(b, &arguments); err != nil {
		return nil, fmt.Errorf("read %s: %w", ArgumentsFile, err)
	}
	out, err := openLog(s.machine.path(LogFile))
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	command := exec.CommandContext(context.Background(), s.machine.path(BinaryLink), arguments...)
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
