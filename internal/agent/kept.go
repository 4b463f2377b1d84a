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

// How long the output of attempts is kept once nothing else of them is left: for a day, and the newest only as
// long as all of it stays within a size.
const (
	keepLogsFor   = 24 * time.Hour
	keepLogsBytes = cluster.GiB
	tidyEvery     = 5 * time.Minute
)

// logRoot is where the output of all attempts is, one folder each.
func (a *Agent) logRoot() string { return filepath.Join(a.DataDir, "logs") }

// logDir is where the output of all runs of a container goes.
func (a *Agent) logDir(uuid, container string) string {
	return filepath.Join(a.logRoot(), uuid, container)
}

// tidyLogs deletes what is kept for too long, now and then, until ctx ends.
func (a *Agent) tidyLogs(ctx context.Context) {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for {
		if err := a.tidy(time.Now()); err != nil {
			a.Logger.Warn("old output was not deleted", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// kept is the output of an attempt that the agent no longer has.
type kept struct {
	path string
	at   time.Time
	size int64
}

func (a *Agent) tidy(now time.Time) error {
	entries, err := os.ReadDir(a.logRoot())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var all []kept
	total := int64(0)
	for _, e := range entries {
		if a.task("", e.Name()) != nil {
			continue
		}
		k := measure(filepath.Join(a.logRoot(), e.Name()))
		all = append(all, k)
		total += k.size
	}
	slices.SortFunc(all, func(x, y kept) int { return cmp.Or(x.at.Compare(y.at), cmp.Compare(x.path, y.path)) })
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

// measure returns the size of the files below a folder and when the newest was written. What goes away meanwhile
// counts for nothing.
func measure(dir string) kept {
	k := kept{path: dir}
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it went away
		}
		info, err := e.Info()
		if err != nil {
			return nil //nolint:nilerr // the same
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

// errNoOutput says that there is neither a task nor kept output of it.
var errNoOutput = errors.New("the node neither has the task nor output of it")

// serveKept writes the output of an attempt of which nothing else is left.
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

// plainUUID reports whether s is letters, digits and "-" only, so that it names a folder and no path.
func plainUUID(s string) bool {
	for _, c := range s {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && c != '-' {
			return false
		}
	}
	return s != ""
}
