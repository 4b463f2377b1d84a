package node

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/berthd/berth/internal/testkit"
)

// dialAs opens a socket as another user, on a thread of its own.
func dialAs(path string, uid, gid int) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		// They return the former ids, not an error; the refusals of the test show that they had an effect.
		syscall.RawSyscall(syscall.SYS_SETFSGID, uintptr(gid), 0, 0)
		syscall.RawSyscall(syscall.SYS_SETFSUID, uintptr(uid), 0, 0)
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
		if err != nil {
			done <- err
			return
		}
		err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: path})
		done <- errors.Join(err, syscall.Close(fd))
	}()
	return <-done
}

// TestHostSocketIsForItsGroup checks that only root, the agent's user and the group may open the socket of the API.
func TestHostSocketIsForItsGroup(t *testing.T) {
	testkit.NeedRoot(t)
	const group, other, user = 64001, 64002, 64003
	base := t.TempDir()
	for at := base; at != "/"; at = filepath.Dir(at) { // others may reach the folder, so that the socket decides
		info, err := os.Stat(at)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode()&0o001 == 0 {
			if !strings.HasPrefix(at, os.TempDir()) || at == os.TempDir() {
				t.Fatalf("%s does not let others in", at)
			}
			if err := os.Chmod(at, 0o711); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, test := range []struct {
		name    string
		group   string
		gid     int
		refused bool
	}{
		{"a member", "64001", group, false},
		{"another group", "64001", other, true},
		{"no group is let in", "", group, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(base, strings.ReplaceAll(test.name, " ", "-"), "host.sock")
			l, err := listenHost(path, test.group)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
				if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("the socket is left behind: %v", err)
				}
			}()
			err = dialAs(path, user, test.gid)
			if refused := errors.Is(err, syscall.EACCES); refused != test.refused || !refused && err != nil {
				t.Errorf("the user got %v, want a refusal: %v", err, test.refused)
			}
			if c, err := net.Dial("unix", path); err != nil {
				t.Errorf("root got %v", err)
			} else if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestHostSocketFaults checks what is said about settings that cannot work.
func TestHostSocketFaults(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	closed := filepath.Join(dir, "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, path, group, want string }{
		{"an unknown group", filepath.Join(dir, "s"), "no-such-group", "this machine has no such group"},
		{"a file in the way", file, "", "the file exists and is not a socket"},
		{"a closed folder", filepath.Join(closed, "s"), "64001", "keeps the members of the group out"},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, err := listenHost(test.path, test.group)
			if err == nil {
				_ = l.Close() // the test has failed
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
