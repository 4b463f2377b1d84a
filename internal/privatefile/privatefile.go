// Package privatefile reads files that only their owner may read: keys, tokens and credentials.
package privatefile

import (
	"fmt"
	"os"
)

// Read returns the content of a file. A file that other users than its owner may read is refused with the command that
// mends it; no error shows the content.
func Read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("other users may read %s: make it private with 'chmod 600 %s'", path, path)
	}
	return os.ReadFile(path)
}
