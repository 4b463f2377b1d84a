package network

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/thread"
)

// inNewSpace calls do on a thread in a new network namespace. The namespace ends with the thread unless do keeps it.
func inNewSpace(do func() error) error {
	return thread.Apart(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		return do()
	})
}

// makeSpace creates a namespace with a loopback and keeps it by a mount over the file.
func makeSpace(file string) error {
	f, err := os.OpenFile(file, os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	_ = f.Close() // nothing was written
	return inNewSpace(func() error {
		if err := ready(); err != nil {
			return err
		}
		if err := unix.Mount(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), file, "", unix.MS_BIND,
			""); err != nil {
			return fmt.Errorf("keep a network namespace: %w", err)
		}
		return nil
	})
}

// ready brings up the loopback, and allows unprivileged programs to listen on any port, because all ports are the
// task's own.
func ready() error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("bring up the loopback: %w", err)
	}
	err = os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0o600)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // an old kernel: such programs get ports from 1024 on
		return fmt.Errorf("open all ports to programs: %w", err)
	}
	return nil
}

// isSpace reports whether the file keeps a namespace. After a reboot it does not.
func isSpace(file string) bool {
	var st unix.Statfs_t
	return unix.Statfs(file, &st) == nil && st.Type == unix.NSFS_MAGIC
}

// removeSpace releases the namespace, which ends with the last program in it.
func removeSpace(file string) error {
	for isSpace(file) { // a mount may cover another
		if err := unix.Unmount(file, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("release a network namespace: %w", err)
		}
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("release a network namespace: %w", err)
	}
	return nil
}

// inUse reports whether a program is in the namespace.
func inUse(file string) bool {
	if !isSpace(file) {
		return false
	}
	space, err := os.Stat(file)
	if err != nil {
		return false
	}
	programs, _ := filepath.Glob("/proc/[0-9]*/ns/net") // the pattern is valid
	for _, p := range programs {
		if other, err := os.Stat(p); err == nil && os.SameFile(space, other) {
			return true
		}
	}
	return false
}
