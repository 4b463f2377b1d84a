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

// Defaults of the marks between which the disks of images and artifacts are kept, in percent.
const (
	DefaultImageHigh = 85
	DefaultImageLow  = 75
)

// How often the agent looks how full these disks are, how often it tries again where nothing could be removed, as to
// find out what each image takes is work, and how often it removes what is left of artifacts that nobody asks for any
// more.
const (
	roomEvery = 5 * time.Second
	roomAgain = 5 * time.Minute
	roomTidy  = time.Hour
)

// diskFull is from how many percent on people are told that a disk is full and nothing can be removed; below, and above
// ImageHigh, that is a line in the log.
const diskFull = 95

// room is what the agent does about the disks of images and artifacts. One goroutine looks at them: two that each
// removed what all of it needs would remove too much.
type room struct {
	mu    sync.Mutex
	sweep *cluster.DiskSweep // the newest, nil for none; with all since the server last heard of one
	at    time.Duration      // of it (Boot)
	full  *cluster.DiskFull  // nil for none

	stuck map[string]time.Duration // when nothing could be removed from a disk (Boot), by its folder
}

// tellSweep is for how long a sweep is told of once a server knows it: whoever leads the control plane has it long
// before.
const tellSweep = 10 * time.Minute

// roomNews returns what is to be told. Nobody changes it.
func (a *Agent) roomNews() (*cluster.DiskSweep, *cluster.DiskFull) {
	told := a.machine.sweepTold()
	a.room.mu.Lock()
	defer a.room.mu.Unlock()
	if a.room.sweep == told && a.Boot()-a.room.at > tellSweep {
		return nil, a.room.full
	}
	return a.room.sweep, a.room.full
}

// sweepTold returns the newest sweep that a server knows.
func (m *machine) sweepTold() *cluster.DiskSweep {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sweep
}

// roomDisk is a disk with what can be removed from it.
type roomDisk struct {
	executor.DiskUse
	keeper    executor.ImageKeeper // nil where it holds no images
	artifacts bool
}

// watchRoom keeps room on the disks of images and artifacts until ctx ends: while one is fuller than ImageHigh, what
// was not used for the longest is removed from it, until it is as full as ImageLow. What a crash leaves half removed
// the next life removes.
func (a *Agent) watchRoom(ctx context.Context) {
	a.room.stuck = map[string]time.Duration{}
	var tidied time.Duration // Boot, 0 for never
	ticker := time.NewTicker(roomEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if now := a.Boot(); tidied == 0 || now-tidied >= roomTidy {
			a.artifacts.Tidy()
			tidied = now
		}
		if a.ImageHigh < 100 {
			a.lookForRoom(ctx)
		}
	}
}

// lookForRoom looks at the disks once, and removes what is necessary.
func (a *Agent) lookForRoom(ctx context.Context) {
	disks, err := a.roomDisks(ctx)
	if err != nil && ctx.Err() == nil {
		a.Logger.Debug("how full the disks of images and artifacts are is not known", "error", err)
	}
	var full *cluster.DiskFull
	for _, d := range disks {
		if d.Percent() < a.ImageHigh {
			delete(a.room.stuck, d.Folder)
			continue
		}
		if at, is := a.room.stuck[d.Folder]; !is || a.Boot()-at >= roomAgain {
			d = a.makeRoom(ctx, d)
			if ctx.Err() != nil {
				return
			}
		}
		if d.Percent() >= max(diskFull, a.ImageHigh) && full == nil {
			full = a.fullDisk(d)
		}
	}
	a.room.mu.Lock()
	defer a.room.mu.Unlock()
	a.room.full = full
}

// roomDisks measures the disk of the images and that of the artifacts, which may be one.
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

// sameDisk reports whether two folders are on one file system. What cannot be looked at is on none.
func sameDisk(x, y string) bool {
	var s, t unix.Stat_t
	return unix.Stat(x, &s) == nil && unix.Stat(y, &t) == nil && s.Dev == t.Dev
}

// makeRoom removes images and artifacts of a disk that is too full, those first that were not used for the longest, and
// returns how full it is then.
func (a *Agent) makeRoom(ctx context.Context, d roomDisk) roomDisk {
	before := d
	gone := &cluster.DiskSweep{At: time.Now().UTC(), Folder: d.Folder, Before: d.Percent()}
	err := a.removeFrom(ctx, d, max(d.Used-cluster.Bytes(float64(d.Total)*a.ImageLow/100), 1), gone)
	now, failed := a.roomDisks(ctx)
	if err = errors.Join(err, failed); err != nil && ctx.Err() == nil {
		a.Logger.Warn("not everything was looked at that could make room on a disk", "folder", d.Folder, "error", err)
	}
	for _, n := range now {
		if n.Folder == d.Folder {
			d = n
		}
	}
	if gone.After = d.Percent(); gone.Images+gone.Artifacts > 0 {
		a.machine.lookAgain()
		a.swept(gone)
	}
	told := []any{
		"folder", d.Folder, "before", percent(before.Percent()), "now", percent(d.Percent()), "images", gone.Images,
		"artifacts", gone.Artifacts,
		"freed", gone.Freed.String(),
	}
	switch {
	case ctx.Err() != nil:
	case d.Percent() < a.ImageHigh:
		a.Logger.Info("there is room again on a disk", told...)
	default:
		a.room.stuck[d.Folder] = a.Boot()
		a.Logger.Warn("the disk of images and artifacts is too full, and no more of them can be removed: "+
			"free space there, or see what keeps images in `berth image ls -o wide`", told...)
	}
	return d
}

// removeFrom removes from a disk what frees as much as is needed, and notes what went.
func (a *Agent) removeFrom(ctx context.Context, d roomDisk, need cluster.Bytes, gone *cluster.DiskSweep) error {
	ofImages, ofArtifacts, err := a.shares(ctx, d, need)
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

// shares returns how much of what a disk needs its images are to free, and how much its artifacts: as if both stood in
// one list by when they were last used, from which the first ones go.
func (a *Agent) shares(ctx context.Context, d roomDisk, need cluster.Bytes) (images, artifacts cluster.Bytes,
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

// swept has a sweep told, together with the one before where no server has heard of that yet.
func (a *Agent) swept(s *cluster.DiskSweep) {
	told := a.machine.sweepTold()
	a.room.mu.Lock()
	defer a.room.mu.Unlock()
	if last := a.room.sweep; last != nil && told != last && last.Folder == s.Folder {
		s.Join(last)
	}
	a.room.sweep, a.room.at = s, a.Boot()
}

// fullDisk says that a disk is full and that nothing more can be removed. What was said before stays as it is, so that
// it is told once.
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
