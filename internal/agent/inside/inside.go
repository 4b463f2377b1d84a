// Package inside accesses the files of a running program, with the program's rights, and its network. It needs no file
// of the container, so it also works with images that hold nothing but their program.
package inside

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/outlive"
	"github.com/berthd/berth/internal/thread"
)

// dialTimeout limits the connection to one address of a program.
const dialTimeout = 10 * time.Second

// errNotThere means that the program is no longer a process of this machine.
var errNotThere = fmt.Errorf("%w: its program is gone", executor.ErrNotRunning)

func proc(pid int, file string) string { return path.Join("/proc", strconv.Itoa(pid), file) }

// stillOwned returns errNotThere unless the process still belongs to the program: then all that was opened so far is
// the program's.
func stillOwned(p executor.Process) error {
	if p.Pid <= 0 || outlive.StartOf(p.Pid) != p.PidStart {
		return errNotThere
	}
	return nil
}

// Files calls do with the root folder of a path as the program sees it. For an absolute path that is the root of the
// program's files. For a relative path it is the program's working directory, and the path cannot leave it. do runs on
// its own thread, with the program's user, groups and capabilities but none beyond the agent's. It must access files
// only on that thread.
func Files(p executor.Process, name string, do func(*os.Root) error) error {
	at := proc(p.Pid, "cwd")
	if strings.HasPrefix(name, "/") {
		at = proc(p.Pid, "root")
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		return errors.Join(stillOwned(p), fmt.Errorf("inspect the container: %w", err))
	}
	defer root.Close()
	r, err := rightsOf(p.Pid)
	if err == nil {
		err = stillOwned(p)
	}
	if err != nil {
		return err
	}
	return thread.Apart(func() error {
		if err := r.apply(); err != nil {
			return fmt.Errorf("take the rights of the container's program: %w", err)
		}
		return do(root)
	})
}

// rights are the rights of a process on files.
type rights struct {
	uid, gid     int
	groups       []int
	capabilities uint64
}

// rightsOf reads the rights of a process.
func rightsOf(pid int) (r rights, err error) {
	b, err := os.ReadFile(proc(pid, "status"))
	if err != nil {
		return r, errNotThere
	}
	return parseRights(string(b))
}

// parseRights reads the rights from the lines of /proc/<pid>/status. The last of the four users and groups is the one
// for files.
func parseRights(status string) (r rights, err error) {
	found := 0
	for line := range strings.Lines(status) {
		name, rest, _ := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		switch {
		case (name == "Uid" || name == "Gid") && len(fields) == 4:
			var id int
			id, err = strconv.Atoi(fields[3])
			if name == "Uid" {
				r.uid = id
			} else {
				r.gid = id
			}
		case name == "Groups":
			for _, f := range fields {
				var id int
				if id, err = strconv.Atoi(f); err == nil {
					r.groups = append(r.groups, id)
				}
			}
		case name == "CapEff" && len(fields) == 1:
			r.capabilities, err = strconv.ParseUint(fields[0], 16, 64)
		default:
			continue
		}
		if err != nil {
			return rights{}, fmt.Errorf("read the rights of a process: %w", err)
		}
		found++
	}
	if found != 4 {
		return rights{}, errors.New("read the rights of a process: lines are missing")
	}
	return r, nil
}

// apply gives the rights to this thread permanently. An agent without root keeps its user and groups, because its
// programs have the same ones.
func (r rights) apply() error {
	if os.Geteuid() == 0 {
		if err := unix.Setgroups(r.groups); err != nil { // of this thread only, unlike syscall.Setgroups
			return err
		}
		// order-free: the two calls are independent
		for call, id := range map[uintptr]int{unix.SYS_SETFSGID: r.gid, unix.SYS_SETFSUID: r.uid} {
			_, _, _ = unix.RawSyscall(call, uintptr(id), 0, 0)
			if now, _, _ := unix.RawSyscall(call, ^uintptr(0), 0, 0); int(now) != id { // a query that changes nothing
				return fmt.Errorf("user or group %d: %w", id, unix.EPERM)
			}
		}
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return err
	}
	for i := range data {
		data[i].Effective = data[i].Permitted & uint32(r.capabilities>>(32*i))
	}
	return unix.Capset(&head, &data[0])
}

// Dial connects to a port of a program in the program's own network: at a loopback address, or at another address
// there. Own is the machine's address, for programs in the machine's network.
func Dial(ctx context.Context, p executor.Process, port int, own string) (net.Conn, error) {
	ours, err := os.Readlink("/proc/self/ns/net")
	theirs, err2 := os.Readlink(proc(p.Pid, "ns/net"))
	if err := errors.Join(err, err2, stillOwned(p)); err != nil {
		return nil, errNotThere
	}
	if ours == theirs {
		return dial(ctx, port, []string{own})
	}
	ns, err := os.Open(proc(p.Pid, "ns/net"))
	if err == nil {
		defer ns.Close()
		err = stillOwned(p)
	}
	if err != nil {
		return nil, errNotThere
	}
	var conn net.Conn
	err = thread.Apart(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the container's network: %w", err)
		}
		conn, err = dial(ctx, port, addresses())
		return err
	})
	return conn, err
}

// addresses returns the addresses of this thread's network that a program may listen on.
func addresses() (all []string) {
	found, _ := net.InterfaceAddrs()
	for _, a := range found {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLinkLocalUnicast() &&
			!p.Addr().IsLoopback() {
			all = append(all, p.Addr().String())
		}
	}
	return all
}

// dial tries the loopback addresses, then the others, one after the other. A single address is dialled on the caller's
// own thread.
func dial(ctx context.Context, port int, others []string) (net.Conn, error) {
	var refused error
	for _, host := range append([]string{"127.0.0.1", "::1"}, others...) {
		if host == "" {
			continue
		}
		dialer := net.Dialer{Timeout: dialTimeout}
		conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err == nil {
			return conn, nil
		}
		if refused == nil {
			refused = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	if op, ok := errors.AsType[*net.OpError](refused); ok {
		refused = op.Err
	}
	return nil, fmt.Errorf("port %d does not answer: %w", port, refused)
}
