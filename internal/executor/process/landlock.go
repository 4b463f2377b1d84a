package process

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Landlock's access rights on files, by the version of the kernel's interface that introduced them. A handled right
// without a rule is refused.
const (
	landRead  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	landWrite = unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM
	// landFile are the rights that a rule about a file, and not a folder, may hold.
	landFile = unix.LANDLOCK_ACCESS_FS_EXECUTE |
		unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// landRule allows rights below a path.
type landRule struct {
	path   string
	rights uint64
}

// landRights returns all rights that a version handles, and those that go with writing.
func landRights(abi int) (all, write uint64) {
	write = landWrite
	if abi >= 2 {
		write |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= 3 {
		write |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= 5 {
		write |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	return landRead | write, write
}

// landRules returns the rules of a program, by path.
func (i *isolation) landRules(abi int) (rules []landRule) {
	all, _ := landRights(abi)
	for _, path := range i.Read {
		rules = append(rules, landRule{path, landRead})
	}
	for _, path := range i.Write {
		rules = append(rules, landRule{path, all})
	}
	return rules
}

// landlockABI returns the version of the kernel's interface, 0 if Landlock is missing or disabled.
func landlockABI() int {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(abi)
}

// noRules are the rules of a machine without Landlock, and of programs that are not isolated.
const noRules = -1

// openRules returns a descriptor of the Landlock rules, which the caller closes, or noRules without Landlock. It needs
// access to the paths of the rules, which the program's user may lack: their parent folders may be closed.
func (i *isolation) openRules() (rules int, err error) {
	abi := landlockABI()
	if i == nil || abi == 0 {
		return noRules, nil
	}
	all, _ := landRights(abi)
	attr := unix.LandlockRulesetAttr{Handled_access_fs: all}
	// The size is of the part that the first version knew: the rest is of rights that are not handled here.
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr.Handled_access_fs), 0) //nolint:gosec // the kernel reads it in the call only
	if errno != 0 {
		return noRules, fmt.Errorf("landlock: make rules: %w", errno)
	}
	for _, r := range i.landRules(abi) {
		if err := allow(int(fd), r); err != nil {
			_ = unix.Close(int(fd))
			return noRules, fmt.Errorf("landlock: allow %s: %w", r.path, err)
		}
	}
	return int(fd), nil
}

// restrict applies the rules to this thread and to the program that it becomes, and closes them. The thread can gain no
// privileges any more.
func restrict(rules int) error {
	if rules == noRules {
		return nil
	}
	defer unix.Close(rules)
	if _, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(rules), 0, 0); errno != 0 {
		return fmt.Errorf("landlock: take effect: %w", errno)
	}
	return nil
}

// allow adds a rule. A missing path needs no rule.
func allow(ruleset int, r landRule) error {
	fd, err := unix.Open(r.path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		r.rights &= landFile
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: r.rights, Parent_fd: int32(fd)}
	_, _, errno := unix.RawSyscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&attr)), 0, 0, 0) //nolint:gosec // the same
	if errno != 0 {
		return errno
	}
	return nil
}
