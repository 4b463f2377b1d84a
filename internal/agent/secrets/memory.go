package secrets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/cluster"
)

// Config configures secrets and logins.
type Config struct {
	// Dir, unless empty, is the folder in memory for the secrets of tasks. Default: the first of /run, the user's run
	// directory and /dev/shm that is in memory, with a folder of its own.
	Dir string
	// Credentials, unless nil, returns the node's own login for a registry, or empty strings.
	Credentials func(registry string) (user, secret string)
}

// Memory is the folder in memory for the secrets of all attempts. One goroutine probes; all others may read.
type Memory struct {
	Node *node.Node
	// Given, unless empty, is the only candidate; see Config.
	Given string
	// Provided means that the server provides secrets.
	Provided bool

	mu sync.Mutex
	// dir is the folder, "" if there is none; problem then says why.
	dir, problem string
}

// AddFacts determines whether the node can hand out secrets, and logs once why not.
func (m *Memory) AddFacts(_ context.Context, f *cluster.Facts) {
	if m.Node.Volatile {
		return // the caller of a Volatile agent sets the facts
	}
	if !m.Provided {
		return
	}
	dir, err := secretsFolder(m.Given)
	text := ""
	if err != nil {
		text = err.Error()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if text != "" && text != m.problem {
		m.Node.Logger.Warn("the node cannot give secrets to tasks: it has no folder in memory (tmpfs) for them",
			"error", text)
	}
	m.problem, m.dir = text, dir
	f.Secrets = err == nil
}

// of returns the folder of an attempt's secrets, "" if the node has no place for them.
func (m *Memory) of(uuid string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dir == "" {
		return ""
	}
	return filepath.Join(m.dir, uuid)
}

// Remove removes the folder of an attempt's secrets.
func (m *Memory) Remove(uuid string) error {
	if dir := m.of(uuid); dir != "" && attempt.ValidUUID(uuid) {
		return os.RemoveAll(dir)
	}
	return nil
}

// secretsFolder returns the folder for the secrets of all attempts and creates it if it is missing. The folder is in
// memory and only this user can open it. Given, unless empty, is the only candidate.
func secretsFolder(given string) (string, error) {
	places := []string{given}
	if given == "" {
		places = []string{fmt.Sprintf("/dev/shm/berth-secrets-%d", os.Geteuid())}
		if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
			places = slices.Insert(places, 0, filepath.Join(dir, "berth-secrets"))
		}
		if os.Geteuid() == 0 {
			places = slices.Insert(places, 0, "/run/berth-secrets")
		}
	}
	var errs []error
	for _, dir := range places {
		if err := privateMemory(dir); err != nil {
			errs = append(errs, err)
			continue
		}
		return dir, nil
	}
	return "", errors.Join(errs...)
}

// privateMemory creates a folder unless it exists. It returns an error if the folder is not in memory or if other users
// can open it.
func privateMemory(dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(dir), &fs); err != nil {
		return fmt.Errorf("%s: %w", filepath.Dir(dir), err)
	}
	if fs.Type != unix.TMPFS_MAGIC && fs.Type != unix.RAMFS_MAGIC {
		return fmt.Errorf("%s is not in memory (tmpfs)", filepath.Dir(dir))
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 || !ok || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a folder of this user alone: remove it", dir)
	}
	return nil
}
