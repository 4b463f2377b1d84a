// Package inside enters the surroundings of a running program: its files, with its rights, and its network. No file of
// the container is needed for that, so it also works where an image holds nothing but its program.
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

// dialLimit is how long one address of a program may take to answer.
const dialLimit = 10 * time.Second

// errNotThere says that the program is not a process of this machine any more.
var errNotThere = fmt.Errorf("%w: its program is gone", executor.ErrNotRunning)

func proc(pid int, file string) string { return path.Join("/proc", strconv.Itoa(pid), file) }

// of returns errNotThere unless a process is still the program's own: what was opened of it until now is the program's.
func of(p executor.Process) error {
	if p.Pid <= 0 || outlive.StartOf(p.Pid) != p.PidStart {
		return errNotThere
	}
	return nil
}

// Files calls do with the root that a path begins at for a program: that of its files, or for a path that does not
// begin with / the folder that it stands in, out of which nothing leads then. do runs on a thread of its own, to which
// the program's user, groups and capabilities apply, none of them beyond the agent's own; it must do itself all that it
// does with files.
func Files(p executor.Process, name string, do func(*os.Root) error) error {
	at := proc(p.Pid, "cwd")
	if strings.HasPrefix(name, "/") {
		at = proc(p.Pid, "root")
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		return errors.Join(of(p), fmt.Errorf("look into the container: %w", err))
	}
	defer root.Close()
	r, err := rightsOf(p.Pid)
	if err == nil {
		err = of(p)
	}
	if err != nil {
		return err
	}
	return thread.Apart(func() error {
		if err := r.take(); err != nil {
			return fmt.Errorf("take the rights of the container's program: %w", err)
		}
		return do(root)
	})
}

// rights are what a process may do with files.
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

// parseRights reads the lines of /proc/<pid>/status that tell of rights: of four users and groups the last is the one
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

// take gives the rights to this thread, for good. An agent that is not root has its programs run with its own, or less.
func (r rights) take() error {
	if os.Geteuid() == 0 {
		if err := unix.Setgroups(r.groups); err != nil { // of this thread alone, unlike syscall.Setgroups
			return err
		}
		// order-free: neither takes the right to the other
		for call, id := range map[uintptr]int{unix.SYS_SETFSGID: r.gid, unix.SYS_SETFSUID: r.uid} {
			_, _, _ = unix.RawSyscall(call, uintptr(id), 0, 0)
			if now, _, _ := unix.RawSyscall(call, ^uintptr(0), 0, 0); int(now) != id { // it tells, and changes nothing
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

// Dial connects to a port on which a program listens, in the program's own network: at its loopback addresses, or the
// others that are there. Own is the machine's address, for programs in the machine's network.
func Dial(ctx context.Context, p executor.Process, port int, own string) (net.Conn, error) {
	ours, err := os.Readlink("/proc/self/ns/net")
	theirs, err2 := os.Readlink(proc(p.Pid, "ns/net"))
	if err := errors.Join(err, err2, of(p)); err != nil {
		return nil, errNotThere
	}
	if ours == theirs {
		return dial(ctx, port, []string{own})
	}
	ns, err := os.Open(proc(p.Pid, "ns/net"))
	if err == nil {
		defer ns.Close()
		err = of(p)
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

// addresses are those of this thread's network that a program may listen on.
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

// dial tries the loopback addresses, then others, one after the other. A single address is dialled on the caller's own
// thread.
func dial(ctx context.Context, port int, others []string) (net.Conn, error) {
	var refused error
	for _, host := range append([]string{"127.0.0.1", "::1"}, others...) {
		if host == "" {
			continue
		}
		dialer := net.Dialer{Timeout: dialLimit}
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
