// Package diskuse counts the disk use of folders, slowly enough to leave the disk and the CPU to tasks.
package diskuse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/thread"
)

// Limits of the cost of a count. After each workSpan of work it rests for restSpans times as long. So it takes at most
// a twentieth of one CPU and of a disk's time. It runs at the kernel's lowest priorities.
const (
	workSpan  = 5 * time.Millisecond
	restSpans = 19
	batch     = 256
	// maxLinks limits how many files with several names are remembered, to count each once.
	maxLinks = 1 << 18
)

// Use is the use of the files below a folder.
type Use struct {
	Bytes cluster.Bytes // of blocks, as du counts them
	Files int           // folders included, except the first one
}

// Count counts the files below a folder, which may be a link; it follows no other link and enters no other file system.
// Files that disappear or cannot be read do not count. It occupies one thread while it works.
func Count(ctx context.Context, dir string) (use Use, err error) {
	err = thread.Apart(func() error {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 19)                     // of this thread only; it may be set already
		_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, ioprioThread, 0, idle) // best effort
		c := counter{links: map[uint64]bool{}, began: time.Now()}
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			c.device = s.Dev
		}
		err = c.folder(ctx, dir)
		use = c.use
		return err
	})
	if err != nil {
		return Use{}, fmt.Errorf("count the files below %s: %w", dir, err)
	}
	return use, nil
}

// Arguments of ioprio_set: the target kind and the idle class.
const (
	ioprioThread = 1
	idle         = 3 << 13
)

type counter struct {
	device uint64
	links  map[uint64]bool // inodes of counted files with several names
	use    Use
	began  time.Time // start of this span of work
}

// folder counts the contents of a folder: files first, so that few folders are open at a time.
func (c *counter) folder(ctx context.Context, dir string) error {
	var inner []string
	f, err := os.Open(dir)
	if err != nil {
		return ignoreMissing(err)
	}
	for {
		entries, err := f.ReadDir(batch)
		for _, e := range entries {
			c.add(e, &inner)
		}
		if stop := c.rest(ctx); stop != nil {
			return errors.Join(stop, f.Close())
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return errors.Join(ignoreMissing(err), f.Close())
		}
	}
	if err := f.Close(); err != nil {
		return err
	}
	for _, name := range inner {
		if err := c.folder(ctx, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// add counts one file, and collects folders to enter.
func (c *counter) add(e fs.DirEntry, inner *[]string) {
	info, err := e.Info()
	if err != nil {
		return // it disappeared
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok || s.Dev != c.device {
		return
	}
	if s.Nlink > 1 && !e.IsDir() {
		if c.links[s.Ino] {
			return
		}
		if len(c.links) < maxLinks {
			c.links[s.Ino] = true
		}
	}
	c.use.Bytes += cluster.Bytes(s.Blocks * 512)
	c.use.Files++
	if e.IsDir() {
		*inner = append(*inner, e.Name())
	}
}

// rest pauses after each span of work, and returns an error if ctx ended.
func (c *counter) rest(ctx context.Context) error {
	worked := time.Since(c.began)
	if worked < workSpan {
		return ctx.Err()
	}
	if err := pause.For(ctx, restSpans*worked); err != nil {
		return err
	}
	c.began = time.Now()
	return nil
}

// ignoreMissing drops errors of folders that disappeared or that this process may not read.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENAMETOOLONG) {
		return nil
	}
	return err
}

// Room returns the size of a folder's file system and its free space for programs. With a quota on the folder (a
// project quota of ext4 or XFS) the kernel returns the values of the quota.
func Room(dir string) (size, free cluster.Bytes, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, fmt.Errorf("file system of %s: %w", dir, err)
	}
	return cluster.Bytes(int64(s.Blocks) * s.Bsize), cluster.Bytes(int64(s.Bavail) * s.Bsize), nil
}
