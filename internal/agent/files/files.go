// Package files replaces files that running programs read.
package files

import (
	"os"
	"syscall"
)

// Replace atomically replaces the file name by way of next, which is on the same file system. The file keeps its
// owner.
func Replace(next, name string, content []byte, mode os.FileMode) error {
	_ = os.Remove(next)
	err := os.WriteFile(next, content, 0o600)
	if old, statErr := os.Lstat(name); err == nil && statErr == nil && os.Geteuid() == 0 {
		if st, ok := old.Sys().(*syscall.Stat_t); ok {
			err = os.Lchown(next, int(st.Uid), int(st.Gid))
		}
	}
	if err == nil {
		err = os.Chmod(next, mode)
	}
	if err == nil {
		err = os.Rename(next, name)
	}
	return err
}
