// Package outlive holds what executors share for processes and files that outlive an agent: durable records, locks that
// end with their process, sockets in folders with long names, and process identities of pid and start time.
package outlive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Write writes v as JSON into a file and makes it durable: after a crash the file is there whole, or as it was
// before.
func Write(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(name), err)
	}
	f, err := os.OpenFile(name+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err == nil {
		err = syncDir(filepath.Dir(name))
	}
	if err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	return nil
}

func syncDir(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// Read reads a record of Write. Without a file the error is os.ErrNotExist.
func Read(name string, v any) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("read record %s: %w", name, err)
	}
	return nil
}

// Lock takes the lock of a file without waiting, or returns syscall.EWOULDBLOCK. A process that inherits the file holds
// the lock too; it ends with the last of them.
func Lock(f *os.File) error { return flock(f, syscall.LOCK_EX|syscall.LOCK_NB) }

// Locked reports whether a process holds the lock of the file.
func Locked(name string) bool {
	f, err := os.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(flock(f, syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

func flock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// Address returns the address of a packet socket in a folder. It goes through the open folder, which must be closed
// after use, because a socket's path may not be longer than 107 bytes.
func Address(dir, name string) (*net.UnixAddr, *os.File, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, nil, err
	}
	return &net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d/%s", f.Fd(), name), Net: "unixpacket"}, f, nil
}

// Stat is the kernel's state of a process.
type Stat struct {
	Parent int
	State  byte
	// Start is in clock ticks since boot.
	Start uint64
}

// StatOf returns the state of a process, if it exists.
func StatOf(pid int) (Stat, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Stat{}, false
	}
	return ParseStat(string(b))
}

// ParseStat reads fields 3, 4 and 22 of /proc/<pid>/stat. Field 2 is a name in parentheses that may hold
// anything.
func ParseStat(s string) (Stat, bool) {
	i := strings.LastIndexByte(s, ')')
	if i < 0 {
		return Stat{}, false
	}
	f := strings.Fields(s[i+1:])
	if len(f) < 20 || len(f[0]) != 1 {
		return Stat{}, false
	}
	parent, err := strconv.Atoi(f[1])
	start, err2 := strconv.ParseUint(f[19], 10, 64)
	return Stat{parent, f[0][0], start}, err == nil && err2 == nil
}

// StartOf returns the start of a running process in ticks since boot, or 0 if it is gone.
func StartOf(pid int) uint64 {
	st, ok := StatOf(pid)
	if !ok || st.State == 'Z' || st.State == 'X' {
		return 0
	}
	return st.Start
}

// LeaveCgroup moves this process out of the agent's cgroup into one of its own. So a stop of the agent by its cgroup,
// as systemd does it, does not stop this process. Failures are ignored.
func LeaveCgroup(path string) {
	const root = "/sys/fs/cgroup"
	roots := []string{root}
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err != nil {
		roots = []string{filepath.Join(root, "systemd"), filepath.Join(root, "unified")}
	}
	for _, r := range roots {
		dir := filepath.Join(r, path)
		if os.MkdirAll(dir, 0o755) == nil {
			_ = os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
		}
	}
}

// KeyedLock lets one caller at a time work on a key. The zero value is ready.
type KeyedLock[K comparable] struct {
	mu   sync.Mutex
	held map[K]chan struct{}
}

// Lock waits for the key and returns how to give it back, or the context's error.
func (k *KeyedLock[K]) Lock(ctx context.Context, key K) (unlock func(), err error) {
	for {
		k.mu.Lock()
		busy, taken := k.held[key]
		if !taken {
			if k.held == nil {
				k.held = map[K]chan struct{}{}
			}
			mine := make(chan struct{})
			k.held[key] = mine
			k.mu.Unlock()
			return func() {
				k.mu.Lock()
				delete(k.held, key)
				k.mu.Unlock()
				close(mine)
			}, nil
		}
		k.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-busy:
		}
	}
}

// Held reports whether someone works on the key just now.
func (k *KeyedLock[K]) Held(key K) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, held := k.held[key]
	return held
}
