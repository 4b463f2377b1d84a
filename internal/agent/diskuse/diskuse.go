// Package diskuse finds out what folders take of their disks, slowly enough that nobody notices.
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
	"github.com/berthd/berth/internal/thread"
)

// What a count may cost: after each workSpan of work it rests for restSpans times as long, so that it takes a twentieth
// of one CPU and of a disk's time at the most, and it works at the lowest priorities that the kernel has.
const (
	workSpan  = 5 * time.Millisecond
	restSpans = 19
	batch     = 256
	// mostLinks bounds how many files with several names are remembered, not to count them twice.
	mostLinks = 1 << 18
)

// Use is what the files below a folder take.
type Use struct {
	Bytes cluster.Bytes // of blocks, as du counts them
	Files int           // folders included, the first one not
}

// Count counts the files below a folder, which may be a link itself; it follows no other link and enters no other file
// system. What goes away meanwhile, or may not be read, counts for nothing. It takes a thread of its own while it
// works.
func Count(ctx context.Context, dir string) (use Use, err error) {
	err = thread.Apart(func() error {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 19)                     // of this thread alone; it may be so already
		_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, ioprioThread, 0, idle) // where the kernel knows it
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

// Of ioprio_set: whom it is about, and the class that is served when nobody else asks.
const (
	ioprioThread = 1
	idle         = 3 << 13
)

type counter struct {
	device uint64
	links  map[uint64]bool // inodes of files with several names that were counted
	use    Use
	began  time.Time // this span of work
}

// folder counts what is in a folder: its files first, so that few folders are open at a time.
func (c *counter) folder(ctx context.Context, dir string) error {
	var inner []string
	f, err := os.Open(dir)
	if err != nil {
		return gone(err)
	}
	for {
		entries, err := f.ReadDir(batch)
		for _, e := range entries {
			c.take(e, &inner)
		}
		if stop := c.rest(ctx); stop != nil {
			return errors.Join(stop, f.Close())
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return errors.Join(gone(err), f.Close())
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

// take counts one file, and notes folders that are to be entered.
func (c *counter) take(e fs.DirEntry, inner *[]string) {
	info, err := e.Info()
	if err != nil {
		return // it went away
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok || s.Dev != c.device {
		return
	}
	if s.Nlink > 1 && !e.IsDir() {
		if c.links[s.Ino] {
			return
		}
		if len(c.links) < mostLinks {
			c.links[s.Ino] = true
		}
	}
	c.use.Bytes += cluster.Bytes(s.Blocks * 512)
	c.use.Files++
	if e.IsDir() {
		*inner = append(*inner, e.Name())
	}
}

// rest waits once there was work enough, and returns an error if nobody wants the count any more.
func (c *counter) rest(ctx context.Context) error {
	worked := time.Since(c.began)
	if worked < workSpan {
		return ctx.Err()
	}
	timer := time.NewTimer(restSpans * worked)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	}
	c.began = time.Now()
	return nil
}

// gone takes it as no error that a folder is not there any more, or that this process may not look into it.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENAMETOOLONG) {
		return nil
	}
	return err
}

// Room returns the size of the file system of a folder and what is free of it for programs. Where a quota is set for
// the folder (a project quota of ext4 or XFS), the kernel answers with that.
func Room(dir string) (size, free cluster.Bytes, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, fmt.Errorf("file system of %s: %w", dir, err)
	}
	return cluster.Bytes(int64(s.Blocks) * s.Bsize), cluster.Bytes(int64(s.Bavail) * s.Bsize), nil
}
