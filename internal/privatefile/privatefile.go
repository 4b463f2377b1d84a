// Package privatefile reads files that only their owner may read: keys, tokens and credentials.
//
// A credential of the operator, such as the login of an external store, is the content of a file that a flag or a
// manifest names. Flags of such files end in -file. A server reads the file again when it needs the credential, so a
// new one needs no restart. The content enters no record, event, error or log; a record holds the name of the file,
// which each server that may lead must have. Flags and environments are visible to others, so they hold no credentials,
// but for BERTH_STORE_PASSWORD in containers. Secrets in the store (ADR 0063) are no alternative: everybody who may run
// a task in their cluster can read them, and the credential of the store cannot be in the store.
package privatefile

import (
	"fmt"
	"os"
)

// Read returns the content of a file. A file that other users than its owner may read is refused with the command that
// repairs it; no error shows the content.
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
