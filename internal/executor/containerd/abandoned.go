package containerd

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/berthd/berth/internal/executor/outlive"
)

// execFolder, in a container's folder, holds the pipes of commands besides the main program. Each agent process has a
// subfolder of its own.
const execFolder = "exec"

// abandonedFor is how long the pipes of an abandoned command are held open.
const abandonedFor = 10 * time.Second

// pipesOf returns the folder for the pipes of commands of this process.
func (r record) pipesOf() string {
	return filepath.Join(r.path(execFolder), ownPipes())
}

// ownPipes names this process among those that have their pid one after the other.
func ownPipes() string { return fmt.Sprintf("%d-%d", os.Getpid(), outlive.StartOf(os.Getpid())) }

// abandonedCommands frees containers from commands whose agent process died. Safe for concurrent use.
type abandonedCommands struct {
	log *slog.Logger

	mu      sync.Mutex
	folders map[string]bool // the folders of pipes that are held open for such commands
}

// release frees the container from commands whose agent process died. The shim opens the pipes of a command one after
// the other and waits for the other end of each. Until then it neither signals the container nor reports its exit. So
// this process opens the pipes for a while, in which a starting command starts. After that nothing reads its output.
func (a *abandonedCommands) release(r record) {
	entries, _ := os.ReadDir(r.path(execFolder)) // in general there are none
	for _, entry := range entries {
		var pid int
		var began uint64
		if _, err := fmt.Sscanf(entry.Name(), "%d-%d", &pid, &began); err == nil && began != 0 &&
			outlive.StartOf(pid) == began {
			continue // its process lives
		}
		dir := filepath.Join(r.path(execFolder), entry.Name())
		a.mu.Lock()
		known := a.folders[dir]
		a.folders[dir] = true
		a.mu.Unlock()
		if known {
			continue
		}
		var pipes []*os.File
		paths, _ := filepath.Glob(filepath.Join(dir, "*", "*")) // each command has a folder for its own
		for _, path := range paths {
			if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeNamedPipe {
				// Opened for reading and writing, so that the open never blocks.
				if f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0); err == nil {
					pipes = append(pipes, f)
				}
			}
		}
		if len(pipes) > 0 {
			a.log.Info("commands beside a container's program were abandoned", "container", r.id, "pipes",
				len(pipes))
		}
		time.AfterFunc(abandonedFor, func() {
			for _, f := range pipes {
				_ = f.Close()
			}
			_ = os.RemoveAll(dir)
			a.mu.Lock()
			defer a.mu.Unlock()
			delete(a.folders, dir)
		})
	}
}
