package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/testkit"
)

// mount puts a file system of a size, in MiB, on a new directory.
func mount(t *testing.T, size int) string {
	t.Helper()
	testkit.NeedRoot(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", size)); err != nil {
		testkit.Skip(t, "cannot mount: "+err.Error())
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// occupy leaves so many bytes free under a directory, by a file that it returns.
func occupy(t *testing.T, dir string, leave int64) string {
	t.Helper()
	path := filepath.Join(dir, "occupied")
	testkit.Eventually(t, 5*time.Second, func() error { // etcd may be allocating too
		free, _, err := statfs(dir)
		if err != nil {
			return err
		}
		file, err := os.Create(path)
		if err != nil {
			return err
		}
		defer file.Close()
		if err := syscall.Fallocate(int(file.Fd()), 0, 0, free-leave); err != nil {
			return errors.Join(fmt.Errorf("occupy %d bytes: %w", free-leave, err), os.Remove(path))
		}
		return nil
	})
	return path
}

func write(ctx context.Context, engine store.Engine, key string) error {
	_, err := engine.Commit(ctx, []store.Group{{Ops: []store.Op{{Key: key, Value: []byte("1")}}}})
	return err
}

// TestFullDisk fills a real file system, to the low-water mark and to the last byte.
func TestFullDisk(t *testing.T) {
	disk := mount(t, 500)
	engine := openWith(t, Config{Dir: filepath.Join(disk, "store"), Ballast: 32 << 20})
	ballast := filepath.Join(disk, "store", "ballast")
	if info, err := os.Stat(ballast); err != nil || info.Size() != 32<<20 {
		t.Fatalf("ballast: got %v and error %v, want 32 MiB", info, err)
	}
	if err := write(t.Context(), engine, "a"); err != nil {
		t.Fatalf("write with room: %v", err)
	}
	for _, leave := range []int64{DefaultLowWater - 1<<20, 0} {
		occupied := occupy(t, disk, leave)
		testkit.Eventually(t, 5*time.Second, func() error {
			if err := write(t.Context(), engine, "b"); !errors.Is(err, store.ErrNoSpace) {
				return errors.Join(fmt.Errorf("write with %d bytes free: want ErrNoSpace", leave), err)
			}
			return nil
		})
		if _, err := engine.Read(t.Context(), "a"); err != nil {
			t.Errorf("read with %d bytes free: %v", leave, err)
		}
		_, err := os.Stat(ballast)
		if dropped := errors.Is(err, fs.ErrNotExist); dropped != (leave == 0) {
			t.Errorf("with %d bytes free: ballast dropped: %v", leave, dropped)
		}
		if err := os.Remove(occupied); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, 5*time.Second, func() error { return write(t.Context(), engine, "b") })
	}
	testkit.Eventually(t, 5*time.Second, func() error {
		if err := write(t.Context(), engine, "c"); err != nil {
			return err
		}
		_, err := os.Stat(ballast)
		return err
	})
}

// TestStartOnFullDisk starts where there is no room: an existing store serves reads, a new
// one is refused.
func TestStartOnFullDisk(t *testing.T) {
	disk := mount(t, 400)
	dir := filepath.Join(disk, "store")
	engine := open(t, Config{Dir: dir})
	if err := write(t.Context(), engine, "a"); err != nil {
		t.Fatal(err)
	}
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	occupied := occupy(t, disk, 4<<20)
	if _, err := Open(t.Context(), Config{Dir: filepath.Join(disk, "new")}); !errors.Is(err, store.ErrNoSpace) {
		t.Errorf("a new store without room: got error %v, want ErrNoSpace", err)
	}
	engine = open(t, Config{Dir: dir})
	if _, err := engine.Read(t.Context(), "a"); err != nil {
		t.Errorf("read: %v", err)
	}
	if err := write(t.Context(), engine, "b"); !errors.Is(err, store.ErrNoSpace) {
		t.Errorf("write: got error %v, want ErrNoSpace", err)
	}
	if err := os.Remove(occupied); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 5*time.Second, func() error { return write(t.Context(), engine, "b") })
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	engine = open(t, Config{Dir: dir}) // the next segment is reserved again
	if info, err := os.Lstat(filepath.Join(dir, "member", "wal", "0.tmp")); err == nil && info.IsDir() {
		t.Error("the next segment of the log cannot be made, though there is room")
	}
	if err := write(t.Context(), engine, "c"); err != nil {
		t.Errorf("write: %v", err)
	}
}

// TestFatalIsOneLine lets etcd run into a full disk, which ends its process, and checks the cause.
func TestFatalIsOneLine(t *testing.T) {
	disk := mount(t, 160) // room for the log that etcd begins with, and not for much more
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), childDir+"="+filepath.Join(disk, "store"), careless+"=1")
	var said strings.Builder
	command.Stderr = &said
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = command.Wait() // it ends with an error, as it must
	}()
	encoder := json.NewEncoder(in)
	value := make([]byte, 1<<20)
	for i := 0; err == nil && i < 200; i++ {
		err = encoder.Encode(question{
			ID:     i,
			Groups: []store.Group{{Ops: []store.Op{{Key: fmt.Sprint("k", i), Value: value}}}},
		})
	}
	select {
	case <-ended:
	case <-testkit.Context(t, time.Minute).Done():
		_ = command.Process.Kill()
		t.Fatalf("etcd lived on with a full disk; it said:\n%s", &said)
	}
	lines := 0
	for line := range strings.Lines(said.String()) {
		if strings.Contains(line, "etcd cannot continue") && strings.Contains(line, "no space left") {
			lines++
			t.Log(strings.TrimSpace(line))
		}
	}
	if lines != 1 {
		t.Errorf("%d lines name the cause, want 1; it said:\n%s", lines, &said)
	}
}

// TestQuota fills the database to its quota, deletes, and continues.
func TestQuota(t *testing.T) {
	engine := open(t, Config{Dir: filepath.Join(t.TempDir(), "store"), Quota: 32 << 20, NoSync: true})
	value := make([]byte, 1<<20)
	key := func(i int) string { return fmt.Sprintf("k/%d", i) }
	written := 0
	var err error
	for ; err == nil && written < 100; written++ {
		_, err = engine.Commit(t.Context(), []store.Group{{Ops: []store.Op{{Key: key(written), Value: value}}}})
	}
	if !errors.Is(err, store.ErrNoSpace) {
		t.Fatalf("after %d MiB: got error %v, want ErrNoSpace", written, err)
	}
	if _, err := engine.Read(t.Context(), key(0)); err != nil {
		t.Errorf("read at the quota: %v", err)
	}
	for i := range written {
		if _, err := engine.Commit(t.Context(),
			[]store.Group{{Ops: []store.Op{{Key: key(i), Delete: true}}}}); err != nil {
			t.Fatalf("delete at the quota: %v", err)
		}
	}
	testkit.Eventually(t, 30*time.Second, func() error { return write(t.Context(), engine, "after") })
}

// TestDirectoryRefused opens what cannot be opened: the error says why.
func TestDirectoryRefused(t *testing.T) {
	t.Run("read-only", func(t *testing.T) {
		disk := mount(t, 16)
		dir := filepath.Join(disk, "store")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
		for _, d := range []string{dir, filepath.Join(disk, "new")} {
			wantRefusal(t, d, "read-only file system")
		}
	})
	t.Run("a file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		wantRefusal(t, path, "not a directory")
	})
	t.Run("in use", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "store")
		open(t, Config{Dir: dir})
		wantRefusal(t, dir, "it is in use by another process")
	})
}

func wantRefusal(t *testing.T, dir, why string) {
	t.Helper()
	engine, err := Open(t.Context(), Config{Dir: dir})
	if err == nil {
		engine.Close()
		t.Fatalf("open %s: no error, want %q", dir, why)
	}
	if !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), dir) {
		t.Errorf("open: got error %q, want one with the directory and %q", err, why)
	}
}
