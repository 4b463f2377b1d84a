package process

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// nobody is the default user of programs, if the agent is root.
const nobody = "65534:65534"

// isolation separates a program from its node: by namespaces for its processes, mounts, shared memory and host name, by
// a mostly read-only file tree, and by Landlock if the kernel has it, which also contains faults of the others.
type isolation struct {
	// Temp is the folder that the program sees as /tmp and, below it, as /var/tmp.
	Temp string
	// Hidden are folders that it sees empty.
	Hidden []string
	// Devices are files of devices that it sees besides those that every program needs.
	Devices []executor.DeviceNode `json:",omitempty"`
	// Read and Write are the paths that Landlock lets the program read and execute, and write to.
	Read, Write []string
}

// readable returns the paths that Landlock lets every program read and execute, as far as they exist. The mounts make
// all of them read-only but devices and processes.
func readable() []string {
	return []string{
		"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/run", "/var/run",
		"/nix/store", "/sys",
	}
}

// writable returns the paths that Landlock lets every program write to, as far as the mounts do.
func writable() []string { return []string{"/dev", "/proc", "/tmp", "/var/tmp"} }

// ordinaryDevices are the device files that every program needs.
func ordinaryDevices() []string {
	return []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}
}

// homes are folders of people, which programs have no business in.
func homes() []string { return []string{"/root", "/home", "/run/user"} }

// isolate completes a plan whose program is kept apart.
func (p *plan) isolate(spec *executor.Spec, hidden []string) error {
	if os.Geteuid() != 0 {
		return unsupported("isolation", noRoot)
	}
	i := &isolation{
		Temp: filepath.Join(spec.Dir, "tmp"), Hidden: slices.Concat(homes(), hidden), Devices: spec.Devices,
		Read: readable(), Write: writable(),
	}
	if len(p.Args) > 0 && filepath.IsAbs(p.Args[0]) {
		i.Read = append(i.Read, filepath.Dir(filepath.Clean(p.Args[0])))
	}
	if !p.ownDir {
		i.Read = append(i.Read, filepath.Clean(p.Dir))
	}
	work := filepath.Join(spec.Dir, "work") // its folders above are hidden
	p.Attach = append(p.Attach, attachment{Field: "dir", Path: work, Source: work})
	slices.SortStableFunc(p.Attach, func(a, b attachment) int { return strings.Compare(a.Path, b.Path) })
	for _, at := range p.Attach {
		if at.ReadOnly {
			i.Read = append(i.Read, at.Path)
		} else {
			i.Write = append(i.Write, at.Path)
		}
	}
	p.Isolation, p.ReadOnlyRoot = i, true
	return nil
}

// noRoot is why an agent that is not root cannot keep programs apart.
const noRoot = "the agent is not root, and only root can keep programs apart: run it as root"

// isolates returns the isolation mechanisms of this machine, or what it lacks and how to get it.
func isolates() (by, lacks string) {
	if os.Geteuid() != 0 {
		return "", noRoot
	}
	for _, ns := range []struct{ name, option string }{
		{"mnt", ""},
		{"pid", "CONFIG_PID_NS"},
		{"ipc", "CONFIG_IPC_NS"},
		{"uts", "CONFIG_UTS_NS"},
	} {
		if _, err := os.Stat("/proc/self/ns/" + ns.name); err != nil {
			return "", fmt.Sprintf("the kernel has no namespaces of the kind %s: run one with %s", ns.name, ns.option)
		}
	}
	if err := tryNamespaces(); err != nil {
		return "", fmt.Sprintf("the agent may not make namespaces (%v): where it runs in a container, give "+
			"that the capability SYS_ADMIN", err)
	}
	by = "namespaces"
	if abi := landlockABI(); abi > 0 {
		by += fmt.Sprintf(", landlock %d", abi)
	}
	return by, ""
}

// tryNamespaces reports why a child cannot have namespaces of its own. The child is made, finds no program, and ends.
func tryNamespaces() error {
	_, err := syscall.ForkExec("/proc/self/no-such-program", []string{""},
		&syscall.ProcAttr{Sys: &syscall.SysProcAttr{Cloneflags: isolatedFlags}})
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return err
}

const isolatedFlags = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS

// cover gives the program a file tree without the temporary files, processes and devices of others, before anything is
// attached. Attached files were cloned before, because they may be in covered folders.
func (a *arranger) cover(i *isolation) error {
	if err := a.ownTemp(i.Temp); err != nil {
		return err
	}
	if err := a.ownDevices(i.Devices); err != nil {
		return fmt.Errorf("give it a /dev of its own: %w", err)
	}
	for _, dir := range i.Hidden {
		dir, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue // it is not there
		}
		if info, err := os.Stat(dir); err != nil || !info.IsDir() || dir == "/" {
			continue
		}
		if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV,
			"mode=0755,size=1m"); err != nil {
			return fmt.Errorf("hide %s: %w", dir, err)
		}
		a.own = append(a.own, dir)
	}
	return ownProcesses()
}

// ownTemp covers the folders for temporary files by those of the container. The node's own folder may hold the
// container's.
func (a *arranger) ownTemp(temp string) error {
	places := []string{"/tmp", "/var/tmp"}
	sources := make([]*os.File, len(places))
	for i, name := range []string{temp, temp + ".var"} {
		fd, err := unix.OpenTree(unix.AT_FDCWD, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return fmt.Errorf("open %s: %w", name, err)
		}
		sources[i] = os.NewFile(uintptr(fd), name)
		defer sources[i].Close()
	}
	for i, dir := range places {
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
			continue // of those that are links, one leads to the other
		}
		if err := unix.MoveMount(int(sources[i].Fd()), "", unix.AT_FDCWD, dir,
			unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("give it a %s of its own: %w", dir, err)
		}
		a.own = append(a.own, dir)
	}
	return nil
}

// ownProcesses shows the processes of this namespace alone, and of the kernel's settings nothing that can be written
// to.
func ownProcesses() error {
	if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC,
		""); err != nil {
		return fmt.Errorf("show it its own processes: %w", err)
	}
	for _, name := range []string{"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"} {
		if _, err := os.Stat(name); err != nil {
			continue
		}
		err := syscall.Mount(name, name, "", syscall.MS_BIND|syscall.MS_REC, "")
		if err == nil {
			err = setReadOnly(name, true, unix.AT_RECURSIVE)
		}
		if err != nil {
			return fmt.Errorf("protect %s: %w", name, err)
		}
	}
	return nil
}

// ownDevices covers /dev with memory that holds what every program needs, and the devices that the container holds.
func (a *arranger) ownDevices(own []executor.DeviceNode) error {
	nodes := make([]executor.DeviceNode, 0, len(own)+6)
	for _, name := range ordinaryDevices() {
		nodes = append(nodes, executor.DeviceNode{Host: name, Path: name})
	}
	nodes = append(nodes, own...)
	sources := make([]*os.File, len(nodes))
	for i, n := range nodes {
		fd, err := unix.OpenTree(unix.AT_FDCWD, n.Host, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil && i < len(ordinaryDevices()) {
			continue // a small machine
		}
		if err != nil {
			return fmt.Errorf("device %s: %w", n.Host, err)
		}
		sources[i] = os.NewFile(uintptr(fd), n.Host)
		defer sources[i].Close()
	}
	if err := syscall.Mount("tmpfs", "/dev", "tmpfs", syscall.MS_NOSUID|syscall.MS_NOEXEC,
		"mode=0755,size=1m"); err != nil {
		return err
	}
	for i, source := range sources {
		if source == nil || !strings.HasPrefix(nodes[i].Path, "/dev/") {
			continue
		}
		if err := place(source, nodes[i].Path); err != nil {
			return fmt.Errorf("device %s: %w", nodes[i].Path, err)
		}
	}
	for link, to := range map[string]string{ // order-free: each by itself
		"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0", "/dev/stdout": "/proc/self/fd/1",
		"/dev/stderr": "/proc/self/fd/2", "/dev/ptmx": "pts/ptmx",
	} {
		if err := os.Symlink(to, link); err != nil {
			return err
		}
	}
	// order-free: the same
	for dir, mount := range map[string][2]string{
		"/dev/pts": {"devpts", "newinstance,ptmxmode=0666,mode=0620"},
		"/dev/shm": {"tmpfs", "mode=1777,size=64m"},
	} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		if err := syscall.Mount(mount[0], dir, mount[0], syscall.MS_NOSUID|syscall.MS_NOEXEC, mount[1]); err != nil &&
			mount[0] != "devpts" {
			return err // without terminals of its own it does
		}
	}
	return nil
}

// place moves a cloned mount to a path, and makes the path.
func place(source *os.File, path string) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(source.Fd()), &st); err != nil {
		return err
	}
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	switch {
	case err != nil:
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		err = os.MkdirAll(path, 0o755)
	default:
		err = os.WriteFile(path, nil, 0o600)
	}
	if err != nil {
		return err
	}
	return unix.MoveMount(int(source.Fd()), "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// makeTemp makes the folders that the program has for temporary files.
func (p *plan) makeTemp() error {
	if p.Isolation == nil {
		return nil
	}
	for _, dir := range []string{p.Isolation.Temp, p.Isolation.Temp + ".var"} {
		err := os.MkdirAll(dir, 0o700)
		if err == nil {
			err = os.Chmod(dir, os.ModeSticky|0o777) // as /tmp is
		}
		if err != nil {
			return fmt.Errorf("make folder for temporary files: %w", err)
		}
	}
	return nil
}

// UserOf implements executor.UserNamer.
func (e *Executor) UserOf(c *cluster.Container) (uid, gid int, err error) {
	id, err := e.userOf(c)
	return id.UID, id.GID, err
}

// isApart reports whether a container's program is kept apart.
func (e *Executor) isApart(c *cluster.Container) bool {
	return cmp.Or(c.Isolation, e.cfg.Isolation, cluster.IsolationRequired) == cluster.IsolationRequired
}

// userOf returns the user of a container's program.
func (e *Executor) userOf(c *cluster.Container) (identity, error) {
	id, err := resolveUser(e.userText(c))
	if err != nil || c.User == "" || os.Geteuid() != 0 {
		return id, err
	}
	return notRoot(c.User, id)
}

// notRoot refuses a user that a container names and that is root, or in root's group, by another name: the servers know
// root and 0 alone for root, and let them in with a permission only.
func notRoot(user string, id identity) (identity, error) {
	if cluster.NamesRoot(user) {
		return id, nil
	}
	if id.UID == 0 || id.GID == 0 || slices.Contains(id.Groups, 0) {
		return identity{}, unsupported("user",
			fmt.Sprintf("%q has the rights of root on this node by another name: name root itself, which "+
				"needs the permission root", user))
	}
	return id, nil
}

// userText returns the user of a container's program in the form that resolveUser reads.
func (e *Executor) userText(c *cluster.Container) string {
	switch {
	case c.User != "":
		return c.User
	case e.cfg.User != "":
		return e.cfg.User
	case os.Geteuid() == 0 && (e.isApart(c) || e.cfg.Isolation != cluster.IsolationNone):
		return nobody
	}
	return ""
}

// settle applies the settings of every program: no core dumps unless it requests them, and the kernel's OOM killer
// prefers it to the agent. Failures are ignored.
func settle() {
	var core syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_CORE, &core) == nil {
		core.Cur = 0
		_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &core)
	}
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(killFirst)), 0)
}

// limitOpenFiles limits the open files of this process and of those that it becomes, unless n is 0. Only root may raise
// the limit of the agent.
func limitOpenFiles(n int) error {
	if n == 0 {
		return nil
	}
	err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: uint64(n), Max: uint64(n)})
	if !errors.Is(err, syscall.EPERM) {
		return err
	}
	var most syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &most); err != nil {
		return fmt.Errorf("open_files: %w", err)
	}
	return unsupported("open_files", fmt.Sprintf("the node allows at most %d, and the task requests %d", most.Max, n))
}

// killFirst is the penalty for the kernel's OOM killer, in thousandths of the memory.
const killFirst = 200
