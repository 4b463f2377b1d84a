package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/agent/artifact"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// Default fill levels of the disks of images and artifacts, in percent.
const (
	DefaultImageHigh = 85
	DefaultImageLow  = 75
)

// diskCheckInterval is how often the agent measures these disks. cleanupRetryInterval is the pause after a cleanup that
// could not free enough, because measuring each image is expensive. artifactTidyInterval is how often it removes
// unfinished files of artifacts.
const (
	diskCheckInterval    = 5 * time.Second
	cleanupRetryInterval = 5 * time.Minute
	artifactTidyInterval = time.Hour
)

// diskFullPercent is the fill level from which a full disk that cannot be cleaned is reported to users. Between
// ImageHigh and this level it is only logged.
const diskFullPercent = 95

// room is the state of the disks of images and artifacts. One goroutine cleans both: two goroutines could each remove
// all that one disk needs.
type room struct {
	mu    sync.Mutex
	sweep *cluster.DiskSweep // the newest, nil for none; includes older ones that no server has heard of
	at    time.Duration      // when sweep was made (Boot)
	full  *cluster.DiskFull  // nil for none

	stuck map[string]time.Duration // when a cleanup could not free enough (Boot), by folder
}

// sweepReportTime is how long a sweep is reported after a server knows it; the leader of the control plane has it long
// before.
const sweepReportTime = 10 * time.Minute

// sweepToReport returns the sweep and the full disk to report. Callers do not change them.
func (a *Agent) sweepToReport() (*cluster.DiskSweep, *cluster.DiskFull) {
	known := a.machine.reportedSweep()
	a.room.mu.Lock()
	defer a.room.mu.Unlock()
	if a.room.sweep == known && a.Boot()-a.room.at > sweepReportTime {
		return nil, a.room.full
	}
	return a.room.sweep, a.room.full
}

// reportedSweep returns the newest sweep that a server knows.
func (m *machine) reportedSweep() *cluster.DiskSweep {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.knownSweep
}

// roomDisk is a disk and its contents.
type roomDisk struct {
	executor.DiskUse
	keeper    executor.ImageKeeper // nil if the disk holds no images
	artifacts bool
}

// watchRoom frees space on the disks of images and artifacts until ctx ends. When a disk reaches ImageHigh, the agent
// removes the least recently used contents down to ImageLow. The next run of the agent removes what a crash leaves half
// removed.
func (a *Agent) watchRoom(ctx context.Context) {
	a.room.stuck = map[string]time.Duration{}
	var tidied time.Duration // Boot, 0 for never
	ticker := time.NewTicker(diskCheckInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if now := a.Boot(); tidied == 0 || now-tidied >= artifactTidyInterval {
			a.artifacts.Tidy()
			tidied = now
		}
		if a.ImageHigh < 100 {
			a.checkRoom(ctx)
		}
	}
}

// checkRoom measures the disks once and cleans the full ones.
func (a *Agent) checkRoom(ctx context.Context) {
	disks, err := a.roomDisks(ctx)
	if err != nil && ctx.Err() == nil {
		a.Logger.Debug("the disks of images and artifacts cannot be measured", "error", err)
	}
	var full *cluster.DiskFull
	for _, d := range disks {
		if d.Percent() < a.ImageHigh {
			delete(a.room.stuck, d.Folder)
			continue
		}
		if at, is := a.room.stuck[d.Folder]; !is || a.Boot()-at >= cleanupRetryInterval {
			d = a.freeDisk(ctx, d)
			if ctx.Err() != nil {
				return
			}
		}
		if d.Percent() >= max(diskFullPercent, a.ImageHigh) && full == nil {
			full = a.fullDisk(d)
		}
	}
	a.room.mu.Lock()
	defer a.room.mu.Unlock()
	a.room.full = full
}

// roomDisks measures the disk of the images and that of the artifacts, which may be the same.
func (a *Agent) roomDisks(ctx context.Context) (disks []roomDisk, err error) {
	var failed error
	if keeper := a.machine.keeper(); keeper != nil {
		use, err := keeper.ImageDisk(ctx)
		if failed = err; err == nil {
			disks = append(disks, roomDisk{DiskUse: use, keeper: keeper})
		}
	}
	if !a.artifacts.Any() {
		return disks, failed
	}
	if len(disks) > 0 && sameDisk(disks[0].Folder, a.artifacts.Dir) {
		disks[0].artifacts = true
		return disks, failed
	}
	used, total, err := a.artifacts.Disk()
	if err == nil {
		disks = append(disks, roomDisk{
			DiskUse:   executor.DiskUse{Folder: a.artifacts.Dir, Used: used, Total: total},
			artifacts: true,
		})
	}
	return disks, errors.Join(failed, err)
}

// sameDisk reports whether two folders are on one file system; false if either cannot be read.
func sameDisk(x, y string) bool {
	var s, t unix.Stat_t
	return unix.Stat(x, &s) == nil && unix.Stat(y, &t) == nil && s.Dev == t.Dev
}

// freeDisk removes images and artifacts from a full disk, the least recently used first, and returns the new fill
// level.
func (a *Agent) freeDisk(ctx context.Context, d roomDisk) roomDisk {
	before := d
	gone := &cluster.DiskSweep{At: time.Now().UTC(), Folder: d.Folder, Before: d.Percent()}
	err := a.removeFrom(ctx, d, max(d.Used-cluster.Bytes(float64(d.Total)*a.ImageLow/100), 1), gone)
	now, failed := a.roomDisks(ctx)
	if err = errors.Join(err, failed); err != nil && ctx.Err() == nil {
		a.Logger.Warn("some images or artifacts could not be checked for removal from a full disk",
			"folder", d.Folder, "error", err)
	}
	for _, n := range now {
		if n.Folder == d.Folder {
			d = n
		}
	}
	if gone.After = d.Percent(); gone.Images+gone.Artifacts > 0 {
		a.machine.requestProbe()
		a.addSweep(gone)
	}
	attrs := []any{
		"folder", d.Folder, "before", percent(before.Percent()), "now", percent(d.Percent()), "images", gone.Images,
		"artifacts", gone.Artifacts,
		"freed", gone.Freed.String(),
	}
	switch {
	case ctx.Err() != nil:
	case d.Percent() < a.ImageHigh:
		a.Logger.Info("images and artifacts were removed from a full disk", attrs...)
	default:
		a.room.stuck[d.Folder] = a.Boot()
		a.Logger.Warn("the disk of images and artifacts is too full, and no more of them can be removed: "+
			"free space there, or see what keeps images in `berth image ls -o wide`", attrs...)
	}
	return d
}

// removeFrom removes enough from a disk to free need bytes, and adds it to gone.
func (a *Agent) removeFrom(ctx context.Context, d roomDisk, need cluster.Bytes, gone *cluster.DiskSweep) error {
	ofImages, ofArtifacts, err := a.splitNeed(ctx, d, need)
	if err != nil {
		return err
	}
	var errs []error
	if ofImages > 0 {
		all, err := d.keeper.PruneImages(ctx, executor.ImagePrune{Wanted: a.wantedImages, Need: ofImages})
		errs = append(errs, err)
		for i := range all {
			if p := &all[i]; p.Removed {
				gone.Images++
				gone.Add(p.Names[0], p.Size)
				a.imagesRemoved.Add(1)
				a.imagesFreed.Add(int64(p.Size))
				a.Logger.Info("an image was removed: the disk is full", "image", p.Names[0], "digest", p.Digest, "size",
					p.Size.String(),
					"used", p.Used.UTC().Format(time.RFC3339))
			}
		}
	}
	if ofArtifacts > 0 && ctx.Err() == nil {
		all, err := a.artifacts.Prune(a.wantedArtifacts, ofArtifacts)
		errs = append(errs, err)
		for _, r := range all {
			gone.Artifacts++
			gone.Add("artifact "+artifact.Short(r.Key), r.Size)
			a.Logger.Info("an artifact was removed: the disk is full", "artifact", r.Key, "size", r.Size.String(),
				"used", r.Used.UTC().Format(time.RFC3339))
		}
	}
	return errors.Join(errs...)
}

// splitNeed divides the need of a disk into a share for images and a share for artifacts. The shares result from one
// common list by last use, from which the oldest entries go first.
func (a *Agent) splitNeed(ctx context.Context, d roomDisk, need cluster.Bytes) (images, artifacts cluster.Bytes,
	err error,
) {
	if !d.artifacts {
		return need, 0, nil
	}
	idle, err := a.artifacts.Idle(a.wantedArtifacts)
	if d.keeper == nil || err != nil {
		return 0, need, err
	}
	if len(idle) == 0 {
		return need, 0, nil
	}
	all, err := d.keeper.PruneImages(ctx, executor.ImagePrune{Wanted: a.wantedImages, DryRun: true})
	if err != nil {
		return 0, 0, err
	}
	for images+artifacts < need {
		for len(all) > 0 && !all[0].Removed {
			all = all[1:]
		}
		switch {
		case len(all)+len(idle) == 0:
			return images, artifacts, nil
		case len(idle) == 0 || len(all) > 0 && all[0].Used.Before(idle[0].Used):
			images, all = images+max(all[0].Size, 1), all[1:]
		default:
			artifacts, idle = artifacts+max(idle[0].Size, 1), idle[1:]
		}
	}
	return images, artifacts, nil
}

// addSweep sets the sweep to report. It includes the sweep before if no server has heard of that yet.
func (a *Agent) addSweep(s *cluster.DiskSweep) {
	known := a.machine.reportedSweep()
	a.room.mu.Lock()
	defer a.room.mu.Unlock()
	if last := a.room.sweep; last != nil && known != last && last.Folder == s.Folder {
		s.Join(last)
	}
	a.room.sweep, a.room.at = s, a.Boot()
}

// fullDisk returns the report of a full disk that cannot be cleaned. It returns the same report for the same state, so
// that servers report it once.
func (a *Agent) fullDisk(d roomDisk) *cluster.DiskFull {
	was := a.room.full // only this goroutine writes it
	if was != nil && was.Folder == d.Folder && d.Percent()-was.Percent < 1 && was.Percent-d.Percent() < 1 {
		return was
	}
	f := &cluster.DiskFull{Since: time.Now().UTC(), Folder: d.Folder, Percent: d.Percent()}
	if was != nil && was.Folder == d.Folder {
		f.Since = was.Since
	}
	f.Message = fmt.Sprintf("the disk of %s is %s full, and no image or artifact on it can be removed: all "+
		"that are left are in use, pinned or loaded by hand; "+
		"free space there, or see `berth image ls --node %s`", f.Folder, percent(f.Percent), cmp.Or(a.Name, "NODE"))
	return f
}

func percent(p float64) string { return fmt.Sprintf("%.1f%%", p) }
