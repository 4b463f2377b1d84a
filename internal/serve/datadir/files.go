// Package datadir reads and writes the files of a data directory: the server's identity, its secrets and the location
// of its store.
package datadir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/berthd/berth/internal/privatefile"
)

// ReadSecret reads a file with one secret. The text what describes the secret in errors.
func ReadSecret(what, path string) (string, error) { return readSecret(what, path, os.ReadFile) }

func readSecret(what, path string, read func(string) ([]byte, error)) (string, error) {
	raw, err := read(path)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", what, err)
	}
	secret := strings.TrimSpace(string(raw))
	if secret == "" {
		return "", fmt.Errorf("read %s: %s is empty", what, path)
	}
	return secret, nil
}

// ReadCredential reads a file with a credential of the operator. A file that other users may read is refused.
func ReadCredential(what, path string) (string, error) {
	return readSecret(what, path, privatefile.Read)
}

// ReplaceFile writes a file atomically and durably. Only this user may read it.
func ReplaceFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".berth-")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes renames in a folder durable.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
