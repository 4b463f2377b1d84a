package process

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/executor"
)

// launchOrder is the supervisor's description of the program for a launcher.
type launchOrder struct {
	Args, Env    []string
	Dir          string
	User         identity
	Capabilities []int
	Cgroups      []string // files that take its pid
	CPUs         []int    `json:",omitempty"` // none: all
	OpenFiles    int      `json:",omitempty"` // 0: as many as the agent
	Attach       []attachment
	ReadOnlyRoot bool
	Scratch      string
	Join         int // the pid whose mounts it shares
	Parent       int
	Terminal     bool   `json:",omitempty"` // its files are a terminal, which becomes that of its session
	Network      string `json:",omitempty"` // the file of the network namespace that it enters
	// Isolation, unless nil, isolates the program; with Join its namespaces are those of the joined program.
	Isolation *isolation `json:",omitempty"`
}

// privateMounts reports whether the program sees mounts of its own.
func (p *plan) privateMounts() bool { return len(p.Attach) > 0 || p.ReadOnlyRoot }

func (o *launchOrder) mounts() bool { return len(o.Attach) > 0 || o.ReadOnlyRoot }

// attributes returns the attributes of the fork: a session of its own and, if needed, namespaces.
func (o *launchOrder) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true, Setctty: o.Terminal} // by file 0
	if !o.mounts() {
		return attr
	}
	attr.Cloneflags = syscall.CLONE_NEWNS
	if o.Isolation != nil {
		attr.Cloneflags = isolatedFlags
	}
	if os.Geteuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: o.User.UID, HostID: o.User.UID, Size: 1}}
		// In its own namespace the launcher may mount; what it becomes may not.
		attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: o.User.GID, HostID: o.User.GID, Size: 1}}
	}
	return attr
}

// refused names the field that made the kernel refuse the fork.
func (o *launchOrder) refused(err error) error {
	if !o.mounts() || !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.EINVAL) &&
		!errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EACCES) {
		return err
	}
	field := "read_only_root"
	if o.Isolation != nil {
		return unsupported("isolation", "the kernel gives the agent no namespaces: "+err.Error())
	}
	if len(o.Attach) > 0 {
		field = o.Attach[0].Field
	}
	return unsupported(field, "the agent is not root, and this machine gives it no user namespace for mounts")
}

// launch is the launcher: it reads its order from file 3, makes everything ready, says so on file 4, waits for a
// byte, and becomes the program.
func launch() int {
	// Credentials, capabilities and mounts are the thread's: everything happens on this one, until exec makes it the
	// process.
	runtime.LockOSThread()
	unix.CloseOnExec(3)
	unix.CloseOnExec(4)
	status := os.NewFile(4, "status")
	var order launchOrder
	in := bufio.NewReader(os.NewFile(3, "order"))
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &order)
	}
	var program string
	if err == nil {
		program, err = order.ready()
	}
	if err != nil {
		_ = json.NewEncoder(status).Encode(failed(err))
		return 127
	}
	env, args := order.Env, order.Args
	_ = json.NewEncoder(status).Encode(reply{})
	if _, err := in.ReadByte(); err != nil {
		return 127 // the supervisor is gone
	}
	err = syscall.Exec(program, args, env)
	_ = json.NewEncoder(status).Encode(failed(fmt.Errorf("run %s: %w", program, err)))
	return 126
}

// ready applies the order to this thread and returns the program's file.
func (o *launchOrder) ready() (string, error) {
	syscall.Umask(0o022)
	settle()
	if err := o.joinNetwork(); err != nil { // before mounts cover the file
		return "", err
	}
	procs := make([]*os.File, len(o.Cgroups))
	for i, name := range o.Cgroups { // before read_only_root covers them
		if o.mounts() {
			// Through the supervisor's mounts: a file that is open for writing keeps a mount of ours from becoming
			// read-only.
			name = fmt.Sprintf("/proc/%d/root%s", o.Parent, name)
		}
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return "", fmt.Errorf("join cgroup: %w", err)
		}
		defer f.Close()
		procs[i] = f
	}
	if o.Join != 0 && os.Geteuid() != 0 {
		if err := o.joinByCommand(); err != nil {
			return "", err
		}
	}
	if o.Join != 0 {
		if err := o.join(); err != nil {
			return "", err
		}
	}
	if o.mounts() {
		if err := o.arrange(); err != nil {
			return "", err
		}
	}
	if err := syscall.Chdir(o.Dir); err != nil {
		return "", fmt.Errorf("dir: %s: %w", o.Dir, err)
	}
	// The launcher's own memory should not count: the cgroup is joined late.
	for _, f := range procs {
		if _, err := f.WriteString(strconv.Itoa(os.Getpid())); err != nil {
			return "", fmt.Errorf("join cgroup: %w", err)
		}
	}
	if err := setAffinity(0, o.CPUs); err != nil {
		return "", err
	}
	if err := limitOpenFiles(o.OpenFiles); err != nil {
		return "", err
	}
	if err := o.become(); err != nil {
		return "", err
	}
	return findProgram(o.Args[0], o.Env, "")
}

// joinNetwork enters the network namespace, where one is requested.
func (o *launchOrder) joinNetwork() error {
	if o.Network == "" {
		return nil
	}
	f, err := os.Open(o.Network)
	if err != nil {
		return fmt.Errorf("network: %w", err)
	}
	defer f.Close()
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("network: enter %s: %w", o.Network, err)
	}
	return nil
}

// join enters the mounts of the container's program.
func (o *launchOrder) join() error {
	kinds := []string{"mnt"}
	if o.Isolation != nil { // its processes it was born among
		kinds = []string{"ipc", "uts", "mnt"}
	}
	err := unix.Unshare(unix.CLONE_FS) // the runtime's threads share state that a change of mounts must not
	for _, kind := range kinds {
		f, failed := os.Open(fmt.Sprintf("/proc/%d/ns/%s", o.Join, kind))
		if failed != nil {
			return fmt.Errorf("%w: %w", executor.ErrNotRunning, failed)
		}
		if err == nil {
			err = unix.Setns(int(f.Fd()), 0)
		}
		_ = f.Close() // it was only named
	}
	if err != nil {
		return fmt.Errorf("join mounts of the program: %w", err)
	}
	return nil
}

// joinByCommand turns the order into one for nsenter, because only a single-threaded process may enter a user
// namespace.
func (o *launchOrder) joinByCommand() error {
	nsenter, err := findProgram("nsenter", []string{defaultPath}, "")
	if err != nil {
		return unsupported("exec", "without root a command needs nsenter to see the container's mounts")
	}
	program, err := findProgram(o.Args[0], o.Env, fmt.Sprintf("/proc/%d/root", o.Join))
	if err != nil {
		return err
	}
	o.Args[0] = program
	o.Args = slices.Concat([]string{
		nsenter, "--target", strconv.Itoa(o.Join), "--user", "--mount", "--preserve-credentials", "--wdns=" +
			o.Dir, "--",
	}, o.Args)
	o.Join, o.Dir = 0, "/"
	return nil
}

// become takes on the user and gives up every privilege that is not requested.
func (o *launchOrder) become() error {
	rules, err := o.Isolation.openRules()
	if err != nil {
		return err
	}
	switch {
	case os.Geteuid() == 0:
		err = o.dropRoot()
	case o.mounts():
		if err = dropBounding(0); err == nil {
			err = setCapabilities(nil)
		}
	}
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	// The program ends with its supervisor, because its exit would not be observed.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("bind to supervisor: %w", err)
	}
	// In a namespace of its own the launcher cannot see its parent. The pipe that it waits at then ends.
	if parent := os.Getppid(); parent != o.Parent && (o.Isolation == nil || parent != 0) {
		return errors.New("the supervisor is gone")
	}
	return restrict(rules)
}

// dropRoot becomes the user and keeps the requested capabilities, whatever the user.
func (o *launchOrder) dropRoot() error {
	var mask uint64
	for _, c := range o.Capabilities {
		mask |= 1 << c
	}
	if err := dropBounding(mask); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("keep capabilities: %w", err)
	}
	if err := o.setUser(); err != nil {
		return fmt.Errorf("user: %w", err)
	}
	return setCapabilities(o.Capabilities)
}

// dropBounding takes all capabilities out of reach but those of the mask.
func dropBounding(mask uint64) error {
	for c := range uintptr(lastCapability() + 1) {
		if mask&(1<<c) != 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("drop capabilities: %w", err)
		}
	}
	return nil
}

// setCapabilities makes these the thread's only ones, in all of its sets.
func setCapabilities(caps []int) error {
	var data [2]unix.CapUserData
	for _, c := range caps {
		d, bit := &data[c/32], uint32(1)<<(c%32)
		d.Effective |= bit
		d.Permitted |= bit
		d.Inheritable |= bit
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0]); err != nil {
		return unsupported("capabilities", "the agent does not have all of them itself")
	}
	for _, c := range caps {
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, uintptr(c), 0, 0); err != nil {
			return fmt.Errorf("keep capabilities: %w", err)
		}
	}
	return nil
}

// setUser changes this thread only: the runtime's own calls would change all threads.
func (o *launchOrder) setUser() error {
	groups := o.User.Groups
	if len(groups) == 0 {
		groups = []int{o.User.GID}
	}
	if err := unix.Setgroups(groups); err != nil {
		return err
	}
	gid, uid := uintptr(o.User.GID), uintptr(o.User.UID)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); errno != 0 {
		return errno
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
		return errno
	}
	return nil
}

// findProgram finds a command in the PATH of env below a root, as it is for this thread. Empty is this thread's own
// root.
func findProgram(name string, env []string, root string) (string, error) {
	if strings.Contains(name, "/") {
		if root != "" && !filepath.IsAbs(name) {
			return name, nil // from a folder that is not this thread's
		}
		return name, runnable(root + name)
	}
	path := ""
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	var unknown error // a folder of PATH that cannot be read may have the program
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, name)
		if !filepath.IsAbs(file) {
			continue
		}
		err := runnable(root + file)
		if err == nil {
			return file, nil
		}
		if unknown == nil && !errors.Is(err, executor.ErrNoProgram) {
			unknown = err
		}
	}
	if unknown != nil {
		return "", unknown
	}
	if path == "" {
		return "", executor.NoProgram(fmt.Errorf("no program %q, because PATH is empty", name))
	}
	return "", executor.NoProgram(fmt.Errorf("no program %q in PATH %s", name, path))
}

// runnable returns why the file is no program of this thread's user, or nil.
func runnable(name string) error {
	var st unix.Stat_t
	switch err := unix.Stat(name, &st); {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return executor.NoProgram(fmt.Errorf("no program %s", name))
	case errors.Is(err, unix.EACCES):
		return executor.NoProgram(fmt.Errorf("the task's user may not enter the folder of the program %s", name))
	case err != nil:
		return fmt.Errorf("command: %s: %w", name, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return executor.NoProgram(fmt.Errorf("%s is no program, because it is not a file", name))
	}
	switch err := unix.Faccessat(unix.AT_FDCWD, name, unix.X_OK, unix.AT_EACCESS); {
	case errors.Is(err, unix.EACCES):
		return executor.NoProgram(fmt.Errorf("%s is no program that the task's user may run: look at its mode", name))
	case err != nil:
		return fmt.Errorf("command: %s: %w", name, err)
	}
	return nil
}
