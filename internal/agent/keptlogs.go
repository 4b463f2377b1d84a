package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logs"
	"github.com/berthd/berth/internal/transport"
)

// Limits of the logs of attempts with nothing else left: keepLogsFor is the longest time, keepLogsBytes the largest
// size of all. The newest logs stay.
const (
	keepLogsFor   = 24 * time.Hour
	keepLogsBytes = cluster.GiB
	tidyInterval  = 5 * time.Minute
)

// logRoot is the folder of the logs of all attempts, with one folder each.
func (a *Agent) logRoot() string { return filepath.Join(a.DataDir, "logs") }

// logDir is the folder of the logs of all runs of a container.
func (a *Agent) logDir(uuid, container string) string {
	return filepath.Join(a.logRoot(), uuid, container)
}

// tidyLogs regularly deletes logs beyond the limits, until ctx ends.
func (a *Agent) tidyLogs(ctx context.Context) {
	tick := time.NewTicker(tidyInterval)
	defer tick.Stop()
	for {
		if err := a.deleteOldLogs(time.Now()); err != nil {
			a.Logger.Warn("old output was not deleted", "error", err)
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

func (a *Agent) deleteOldLogs(now time.Time) error {
	entries, err := os.ReadDir(a.logRoot())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var all []keptLogs
	total := int64(0)
	for _, e := range entries {
		if a.task("", e.Name()) != nil {
			continue
		}
		k := measureLogs(filepath.Join(a.logRoot(), e.Name()))
		all = append(all, k)
		total += k.size
	}
	slices.SortFunc(all, func(x, y keptLogs) int { return cmp.Or(x.at.Compare(y.at), cmp.Compare(x.path, y.path)) })
	var errs []error
	for _, k := range all {
		if now.Sub(k.at) <= keepLogsFor && total <= int64(keepLogsBytes) {
			break
		}
		errs = append(errs, os.RemoveAll(k.path))
		total -= k.size
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

// errNoOutput means that the node has neither the task nor its logs.
var errNoOutput = errors.New("the node neither has the task nor output of it")

// serveKept writes the logs of an attempt with nothing else left.
func (a *Agent) serveKept(ctx context.Context, r transport.StreamRequest, ask transport.LogsRequest,
	to *json.Encoder,
) error {
	if !plainUUID(r.UUID) {
		return errNoOutput
	}
	containers, err := os.ReadDir(filepath.Join(a.logRoot(), r.UUID))
	if err != nil {
		return errNoOutput
	}
	ask.Follow = false
	out := &lineWriter{to: to}
	for _, c := range containers {
		if r.Container != "" && r.Container != c.Name() {
			continue
		}
		if err := logs.Read(ctx, a.logDir(r.UUID, c.Name()), options(ask, nil), out.from(c.Name())); err != nil {
			return err
		}
	}
	return nil
}

// plainUUID reports whether s has only letters, digits and "-", so that it names a folder and is not a path.
func plainUUID(s string) bool {
	for _, c := range s {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && c != '-' {
			return false
		}
	}
	return s != ""
}
