package agent

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/cluster"
)

// Limits of the logs of attempts with nothing else left: keepLogsFor is the longest time, keepLogsBytes the largest
// size of all, and keepLogsAttempts the largest number of attempts, because each has folders also without output. The
// newest logs stay.
const (
	keepLogsFor      = 24 * time.Hour
	keepLogsBytes    = cluster.GiB
	keepLogsAttempts = 50_000
	tidyInterval     = 5 * time.Minute
)

// logKeeper keeps the logs of attempts with nothing else left, for a while.
type logKeeper struct {
	node *node.Node
	// has reports whether the agent has the attempt.
	has func(uuid string) bool
	// attempts is the largest number of attempts, keepLogsAttempts but in tests.
	attempts int
}

// watch regularly deletes logs beyond the limits, until ctx ends.
func (k *logKeeper) watch(ctx context.Context) {
	tick := time.NewTicker(tidyInterval)
	defer tick.Stop()
	for {
		if err := k.deleteOld(time.Now()); err != nil {
			k.node.Logger.Warn("old output was not deleted", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// keptLogs are the logs of an attempt that the agent no longer has.
type keptLogs struct {
	path string
	at   time.Time
	size int64
}

// deleteOld deletes the logs that are beyond the limits now.
func (k *logKeeper) deleteOld(now time.Time) error {
	entries, err := os.ReadDir(k.node.LogRoot())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var all []keptLogs
	total := int64(0)
	for _, e := range entries {
		if k.has(e.Name()) {
			continue
		}
		l := measureLogs(filepath.Join(k.node.LogRoot(), e.Name()))
		all = append(all, l)
		total += l.size
	}
	slices.SortFunc(all, func(x, y keptLogs) int { return cmp.Or(x.at.Compare(y.at), cmp.Compare(x.path, y.path)) })
	var errs []error
	for i, l := range all {
		if now.Sub(l.at) <= keepLogsFor && total <= int64(keepLogsBytes) && len(all)-i <= k.attempts {
			break
		}
		errs = append(errs, os.RemoveAll(l.path))
		total -= l.size
	}
	return errors.Join(errs...)
}

// measureLogs returns the size of the files below a folder and the newest time of writing. Files that disappear
// meanwhile do not count.
func measureLogs(dir string) keptLogs {
	k := keptLogs{path: dir}
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it disappeared
		}
		info, err := e.Info()
		if err != nil {
			return nil //nolint:nilerr // it disappeared
		}
		if !e.IsDir() {
			k.size += info.Size()
		}
		if info.ModTime().After(k.at) {
			k.at = info.ModTime()
		}
		return nil
	})
	return k
}
