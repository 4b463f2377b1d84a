// Package setup makes a machine what a profile says, and starts its agent. It runs on that machine, as root.
//
// A machine consists of items: packages, modules of the kernel, settings of the kernel, users, files, the binary, and
// the service of the agent. An item compares the machine with what it should be, and is applied if they differ. Both
// are safe to repeat, so an interrupted setup continues where it was. Setups of one machine wait for each other.
package setup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/cluster"
)

// Names of the files of a setup, below the root of the machine.
const (
	// BinaryLink is the link to the binary of the present version, and VersionsDir the folder of all versions.
	BinaryLink  = "/usr/local/bin/berth"
	VersionsDir = "/usr/local/lib/berth"
	// StateDir holds the profile that was applied last, the arguments of the agent, and the lock of setups.
	StateDir = "/var/lib/berth-setup"

	lockFile    = StateDir + "/lock"
	restartFile = StateDir + "/restart"
)

// Request is what a machine should become.
type Request struct {
	// Profile, unless nil, is the profile of the machine.
	Profile *cluster.Profile `json:"profile,omitempty"`
	// Agent, unless nil, is the agent of the machine.
	Agent *Agent `json:"agent,omitempty"`
}

// Agent is the agent of a machine.
type Agent struct {
	// Standalone says that the machine needs no servers: `berth standalone` takes the place of `berth agent`.
	Standalone bool `json:"standalone,omitempty"`
	// Arguments are those of the command, without --data-dir and --join-token-file.
	Arguments []string `json:"arguments"`
	// JoinToken, unless empty, is for an agent without a certificate. It is deleted when the agent has joined.
	JoinToken string `json:"join_token,omitempty"`
}

// Difference is one item of a machine that is not what it should be.
type Difference struct {
	// Item names the item, such as "package runc" or "file /etc/motd".
	Item string `json:"item"`
	// Is and Want describe the item, and what it should be.
	Is   string `json:"is"`
	Want string `json:"want"`
}

// Step is the progress of a setup: an item that was changed.
type Step struct {
	Difference

	Took time.Duration `json:"took"`
	// Problem says why the item is not what it should be after all; it is empty if it is.
	Problem string `json:"problem,omitempty"`
}

// item is one thing of a machine.
type item interface {
	// compare returns what differs; nothing if the item is what it should be.
	compare(ctx context.Context, m *Machine) ([]Difference, error)
	// apply makes the item what it should be.
	apply(ctx context.Context, m *Machine) error
}

// Machine is the machine that is set up.
type Machine struct {
	// Root is the folder of the machine's files: "/" but in tests.
	Root string
	// Run runs a program and returns its output. Default: RunProgram.
	Run func(ctx context.Context, name string, arguments ...string) (string, error)
}

// New returns this machine.
func New() *Machine { return &Machine{Root: "/", Run: RunProgram} }

// RunProgram runs a program in the C locale and returns its standard output. The error has the end of its error output.
func RunProgram(ctx context.Context, name string, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, name, arguments...)
	command.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	out, err := command.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		lines := strings.Split(strings.TrimSpace(string(exit.Stderr)), "\n")
		err = fmt.Errorf("%s: %w: %s", filepath.Base(name), err, strings.Join(lines[max(0, len(lines)-5):], "; "))
	}
	return string(out), err
}

// path returns the place of a file of the machine.
func (m *Machine) path(name string) string { return filepath.Join(m.Root, name) }

// has reports whether a file exists on the machine.
func (m *Machine) has(name string) bool {
	_, err := os.Stat(m.path(name))
	return err == nil
}

// hasProgram reports whether the machine has a program.
func (m *Machine) hasProgram(name string) bool {
	for _, folder := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
		if info, err := os.Stat(m.path(filepath.Join(folder, name))); err == nil && info.Mode()&0o111 != 0 {
			return true
		}
	}
	return false
}

// HasSystemd reports whether systemd starts the services of the machine.
func (m *Machine) HasSystemd() bool { return m.has("/run/systemd/system") }

// items returns the items of a request in the order in which they are applied: what later items need comes first.
func (m *Machine) items(r *Request) (all []item, err error) {
	if p := r.Profile; p != nil {
		all = append(all, packages{p}, &modules{p}, &sysctls{p})
		for i := range p.Users {
			all = append(all, &user{p.Users[i]})
		}
		for i := range p.Files {
			all = append(all, &file{p.Files[i]})
		}
		all = append(all, services{})
	}
	if r.Agent != nil {
		binary, err := ownBinary()
		if err != nil {
			return nil, err
		}
		all = append(all, binary, m.agentService(r.Agent, binary))
	}
	return all, nil
}

// Compare returns what differs from the request. The error joins all failures; the differences are valid nevertheless.
func (m *Machine) Compare(ctx context.Context, r *Request) (all []Difference, err error) {
	items, err := m.items(r)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, i := range items {
		found, err := i.compare(ctx, m)
		all = append(all, found...)
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// Apply makes the machine what the request says, and reports each item that it changed. It stops at the first failure.
func (m *Machine) Apply(ctx context.Context, r *Request, report func(Step)) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	items, err := m.items(r)
	if err != nil {
		return err
	}
	for _, i := range items {
		if err := m.applyItem(ctx, i, report); err != nil {
			return err
		}
	}
	return nil
}

// applyItem applies one item, unless it is what it should be.
func (m *Machine) applyItem(ctx context.Context, i item, report func(Step)) error {
	found, err := i.compare(ctx, m)
	if err != nil || len(found) == 0 {
		return err
	}
	begun := time.Now()
	if err = i.apply(ctx, m); err != nil {
		err = fmt.Errorf("%s: %w", found[0].Item, err)
	}
	for n, d := range found {
		step := Step{Difference: d}
		if n == 0 {
			step.Took = time.Since(begun)
		}
		if err != nil {
			step.Problem = err.Error()
		}
		report(step)
	}
	return err
}

// lock makes other setups of the machine wait, until the result is called or the process ends.
func (m *Machine) lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(m.path(StateDir), 0o700); err != nil {
		return nil, fmt.Errorf("create the folder of the setup: %w", err)
	}
	f, err := os.OpenFile(m.path(lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the setup: %w", err)
	}
	err = awaitLock(ctx, f)
	switch {
	case err == nil:
		return func() { _ = f.Close() }, nil
	case ctx.Err() != nil:
		err = errors.New("another setup of the machine runs")
	default:
		err = fmt.Errorf("lock the setup: %w", err)
	}
	return nil, errors.Join(err, f.Close())
}

// awaitLock locks a file, until it is closed. It returns the cause of the end of ctx if others hold the lock until
// then.
func awaitLock(ctx context.Context, f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
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

// replaceFile writes a file so that a crash leaves either the old or the new content.
func (m *Machine) replaceFile(name string, content []byte, mode fs.FileMode, uid, gid int) error {
	return m.replaceFrom(name, bytes.NewReader(content), mode, uid, gid)
}

// replaceFrom is replaceFile for content that is not in memory.
func (m *Machine) replaceFrom(name string, content io.Reader, mode fs.FileMode, uid, gid int) (err error) {
	path := m.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // as the folders of a system are
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".berth-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = io.Copy(f, content)
	if err == nil && (uid >= 0 || gid >= 0) {
		err = f.Chown(uid, gid)
	}
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
