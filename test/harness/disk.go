package harness

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/berthd/berth/internal/testkit"
)

// Disk is a small file system, for tests of what happens when it is full. Its folder is unmounted when
// the test ends: make it before the site that uses it.
type Disk struct {
	Dir string
	tb  testing.TB
}

// NewDisk mounts a file system of a size in bytes. It needs root.
func NewDisk(tb testing.TB, size int64) *Disk {
	tb.Helper()
	testkit.NeedRoot(tb)
	dir, err := os.MkdirTemp("", "berth-disk-") //nolint:usetesting // it is unmounted before it can be removed
	if err != nil {
		tb.Fatal(err)
	}
	if err := syscall.Mount("berth-test", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", size)); err != nil {
		tb.Fatalf("mount a small file system: %v", err)
	}
	d := &Disk{dir, tb}
	tb.Cleanup(func() {
		err := syscall.Unmount(dir, 0)
		if err != nil {
			_ = syscall.Unmount(dir, syscall.MNT_DETACH) // the test fails already
		}
		if err := errors.Join(err, os.Remove(dir)); err != nil {
			tb.Errorf("unmount the small file system: %v", err)
		}
	})
	return d
}

// Fill uses all free space, up to the last byte. The space is freed before the site is cleared, also when the test
// fails.
func (d *Disk) Fill() {
	d.tb.Helper()
	d.tb.Cleanup(func() { _ = os.Remove(d.filler()) }) // Free may have done so
	f, err := os.OpenFile(d.filler(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		d.tb.Fatalf("fill the disk: %v", err)
	}
	defer f.Close()
	for chunk := make([]byte, 1<<20); len(chunk) > 0; {
		if _, err = f.Write(chunk); err != nil {
			chunk = chunk[:len(chunk)/2]
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		d.tb.Fatalf("fill the disk: %v", err)
	}
}

// Free gives back what Fill took.
func (d *Disk) Free() {
	d.tb.Helper()
	if err := os.Remove(d.filler()); err != nil {
		d.tb.Fatalf("free the disk: %v", err)
	}
}

func (d *Disk) filler() string { return filepath.Join(d.Dir, "filler") }

// ReadOnly makes a folder read-only by a bind mount over itself, and returns a function that makes it writable again.
// It needs root. No process may have a file of the folder open for writing.
func ReadOnly(tb testing.TB, dir string) (undo func()) {
	tb.Helper()
	testkit.NeedRoot(tb)
	err := syscall.Mount(dir, dir, "", syscall.MS_BIND, "")
	if err == nil {
		err = syscall.Mount("", dir, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
	}
	if err != nil {
		tb.Fatalf("make %s read-only: %v", dir, err)
	}
	return func() {
		tb.Helper()
		if err := syscall.Unmount(dir, 0); err != nil {
			tb.Errorf("make %s writable again: %v", dir, err)
		}
	}
}
