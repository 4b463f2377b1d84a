package process

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// await waits for the end of a started command, without a thread of its own. pidfd is the descriptor of
// SysProcAttr.PidFD, below 0 if the kernel gave none. An agent waits for hundreds of supervisors for days, and Wait
// alone would hold a thread for each.
func await(cmd *exec.Cmd, pidfd int) {
	if pidfd >= 0 {
		_ = unix.SetNonblock(pidfd, true) // so that it is polled; else Wait does it all
		f := os.NewFile(uintptr(pidfd), "pidfd")
		if raw, err := f.SyscallConn(); err == nil {
			_ = raw.Read(func(fd uintptr) bool { // the same
				var info unix.Siginfo
				err := unix.Waitid(unix.P_PIDFD, int(fd), &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
				return err != nil && !errors.Is(err, unix.EINTR) || info.Signo != 0
			})
		}
		_ = f.Close() // it was only read
	}
	_ = cmd.Wait() // its files hold the exit
}

// receive waits for a message, and only then allocates memory for it, because most callers wait as long as a container
// runs. It returns an empty message if the other end is gone.
func receive(conn *net.UnixConn) ([]byte, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var n int
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		n, _, failed = syscall.Recvfrom(int(fd), nil, syscall.MSG_PEEK|syscall.MSG_TRUNC|syscall.MSG_DONTWAIT)
		return !errors.Is(failed, syscall.EAGAIN) && !errors.Is(failed, syscall.EINTR)
	})
	if err == nil {
		err = failed
	}
	if err != nil || n == 0 {
		return nil, err
	}
	b := make([]byte, n)
	n, err = conn.Read(b)
	return b[:max(n, 0)], err
}
