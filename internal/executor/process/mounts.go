package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// mirrorLimit is the most entries of a folder that is mirrored.
const mirrorLimit = 2000

// arranger makes the mounts of a container, in a mount namespace of its own.
type arranger struct {
	scratch string          // an empty folder to build in, made at the first use
	mirrors map[string]bool // folders that are memory already
	// folders that are the container's own with all below them: there is nothing of the node in them
	own []string
}

// arrange shows the attachments at their paths. The node's own folders stay as they are: where a path does not
// exist, the deepest folder above it is covered by memory that holds a bind of each of its entries.
func (o *launchOrder) arrange() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	a := arranger{scratch: o.Scratch, mirrors: map[string]bool{}}
	// The sources are cloned before the first mount can cover them.
	sources := make([]*os.File, len(o.Attach))
	for i, at := range o.Attach {
		if at.Source == "" {
			continue
		}
		fd, err := unix.OpenTree(unix.AT_FDCWD, at.Source,
			unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil {
			return fmt.Errorf("%s: open %s: %w", at.Field, at.Source, err)
		}
		sources[i] = os.NewFile(uintptr(fd), at.Source)
		defer sources[i].Close()
	}
	if o.Isolation != nil {
		if err := a.cover(o.Isolation); err != nil {
			return err
		}
	}
	for i, at := range o.Attach {
		if err := a.point(at, sources[i]); err != nil {
			return fmt.Errorf("%s: make %s: %w", at.Field, at.Path, err)
		}
	}
	if o.ReadOnlyRoot {
		if err := readOnlyRoot(o.Isolation); err != nil {
			return err
		}
	}
	for i, at := range o.Attach {
		if err := attach(at, sources[i], o.User); err != nil {
			return fmt.Errorf("%s: mount %s: %w", at.Field, at.Path, err)
		}
	}
	return nil
}

// readOnlyRoot takes write access from every mount but those of devices and processes, and of an isolated program's
// temporary files.
func readOnlyRoot(apart *isolation) error {
	if err := setReadOnly("/", true, unix.AT_RECURSIVE); err != nil {
		return fmt.Errorf("read_only_root: %w", err)
	}
	if apart != nil {
		for _, keep := range []string{"/dev/shm", "/dev/pts", "/proc", "/tmp", "/var/tmp"} {
			// not a mount of its own
			if err := setReadOnly(keep, false, 0); err != nil && !errors.Is(err, unix.EINVAL) &&
				!errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("isolation: %s: %w", keep, err)
			}
		}
		return nil
	}
	for _, keep := range []string{"/dev", "/proc"} {
		var st unix.Statfs_t
		if unix.Statfs(keep, &st) != nil || st.Flags&unix.ST_RDONLY == 0 {
			continue
		}
		err := setReadOnly(keep, false, unix.AT_RECURSIVE)
		if err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: not a mount of its own
			return fmt.Errorf("read_only_root: %w", err)
		}
	}
	return nil
}

func setReadOnly(path string, on bool, flags uint) error {
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if !on {
		attr = &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}
	}
	return unix.MountSetattr(unix.AT_FDCWD, path, flags, attr)
}

func attach(at attachment, source *os.File, who identity) error {
	if source == nil {
		data := "mode=1777,size=" + strconv.FormatInt(at.Size, 10)
		if os.Geteuid() == 0 {
			data += fmt.Sprintf(",uid=%d,gid=%d", who.UID, who.GID)
		}
		return syscall.Mount("tmpfs", at.Path, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, data)
	}
	if err := unix.MoveMount(int(source.Fd()), "", unix.AT_FDCWD, at.Path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return err
	}
	return setReadOnly(at.Path, at.ReadOnly, unix.AT_RECURSIVE)
}

// point makes sure that there is something to mount over at the attachment's path.
func (a *arranger) point(at attachment, source *os.File) error {
	isDir := true
	if source != nil {
		var st unix.Stat_t
		if err := unix.Fstat(int(source.Fd()), &st); err != nil {
			return err
		}
		isDir = st.Mode&unix.S_IFMT == unix.S_IFDIR
	}
	info, err := os.Stat(at.Path)
	if err == nil {
		if info.IsDir() != isDir {
			return errors.New("one is a folder and the other a file")
		}
		return nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	above := filepath.Dir(at.Path)
	for {
		if info, err := os.Stat(above); err == nil {
			if !info.IsDir() {
				return fmt.Errorf("%s is not a folder", above)
			}
			break
		}
		above = filepath.Dir(above)
	}
	if above, err = filepath.EvalSymlinks(above); err != nil {
		return err
	}
	mine := slices.ContainsFunc(a.own, func(dir string) bool {
		return above == dir || strings.HasPrefix(above, dir+"/")
	})
	if !mine && !a.mirrors[above] {
		if err := a.mirror(above); err != nil {
			return fmt.Errorf("cover %s: %w", above, err)
		}
		a.mirrors[above] = true
	}
	if isDir {
		return os.MkdirAll(at.Path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(at.Path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(at.Path, nil, 0o644)
}

// mirror covers a folder with memory in which each entry is bound.
func (a *arranger) mirror(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) > mirrorLimit {
		return fmt.Errorf("it has more than %d entries", mirrorLimit)
	}
	if err := os.MkdirAll(a.scratch, 0o755); err != nil {
		return fmt.Errorf("make a folder to build in: %w", err)
	}
	if err := syscall.Mount("tmpfs", a.scratch, "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	// Otherwise the binds of the folders above would hold it once more.
	if err := syscall.Mount("", a.scratch, "", syscall.MS_UNBINDABLE, ""); err != nil {
		return err
	}
	for _, e := range entries {
		if err := bindEntry(filepath.Join(dir, e.Name()), filepath.Join(a.scratch, e.Name()), e); err != nil {
			return err
		}
	}
	if info, err := os.Stat(dir); err == nil {
		_ = os.Chmod(a.scratch, info.Mode().Perm())
	}
	if err := syscall.Mount("", a.scratch, "", syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	if dir != "/" {
		return syscall.Mount(a.scratch, dir, "", syscall.MS_MOVE, "")
	}
	if err := syscall.Chdir(a.scratch); err != nil {
		return err
	}
	if err := syscall.PivotRoot(".", "."); err != nil {
		return err
	}
	if err := syscall.Unmount(".", syscall.MNT_DETACH); err != nil {
		return err
	}
	return syscall.Chdir("/")
}

func bindEntry(from, to string, e os.DirEntry) error {
	switch {
	case e.Type()&os.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case e.IsDir():
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
	default:
		if err := os.WriteFile(to, nil, 0o600); err != nil {
			return err
		}
	}
	return syscall.Mount(from, to, "", syscall.MS_BIND|syscall.MS_REC, "")
}
