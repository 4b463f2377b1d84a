// Package unixsocket opens listening unix sockets that only their intended users can open at any moment, and names the
// users at the other end of connections.
package unixsocket

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// NoGroup leaves the group of a socket as the system sets it.
const NoGroup = -1

// Listen listens on a socket at a path, with the mode and the group. The socket is made under a temporary name and
// renamed once its mode is set, so that others can never open it. A socket file without a listener is replaced; another
// file is not. Close removes the socket.
func Listen(path string, mode fs.FileMode, group int) (net.Listener, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := clearSocket(path); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".berth-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) // it is empty, or does no harm
	first := filepath.Join(dir, "s")
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", first)
	if err != nil {
		return nil, err
	}
	ul, _ := l.(*net.UnixListener)
	ul.SetUnlinkOnClose(false)
	if group != NoGroup {
		err = os.Chown(first, -1, group)
	}
	if err == nil {
		err = errors.Join(os.Chmod(first, mode), os.Rename(first, path))
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &listener{UnixListener: ul, path: path}, nil
}

// listener removes its socket when it is closed.
type listener struct {
	*net.UnixListener
	path string
}

// Close ends the listener and removes its socket.
func (l *listener) Close() error {
	if err := l.UnixListener.Close(); err != nil {
		return err
	}
	return os.Remove(l.path)
}

// clearSocket removes a socket file without a listener.
func clearSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return errors.New("the file exists and is not a socket")
	}
	d := net.Dialer{Timeout: time.Second}
	c, err := d.DialContext(context.Background(), "unix", path)
	if err == nil {
		_ = c.Close() // it was opened only to find a listener
		return syscall.EADDRINUSE
	}
	return os.Remove(path)
}
