// Package diskspace frees space on the disks of images and artifacts.
package diskspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/agent/artifact"
	"github.com/berthd/berth/internal/agent/images"
	"github.com/berthd/berth/internal/agent/machine"
	"github.com/berthd/berth/internal/agent/node"
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
// Config.High and this level it is only logged.
const diskFullPercent = 95

// Config are the fill levels of the disks of images and artifacts, in percent. At High the agent removes unused
// images and artifacts until the disk is down to Low. A High of 100 or more removes nothing.
type Config struct {
	// High and Low, unless 0, replace DefaultImageHigh and DefaultImageLow.
	High, Low float64
}

// SetDefaults sets the fill levels that are 0.
func (c *Config) SetDefaults() {
	if c.High <= 0 {
		c.High = DefaultImageHigh
	}
	if c.Low <= 0 {
		c.Low = min(DefaultImageLow, c.High)
	}
}

// Cleaner frees space on the disks of images and artifacts. One goroutine cleans both: two goroutines could each
// remove all that one disk needs. All others may read the reports.
type Cleaner struct {
	Node      *node.Node
	Config    Config
	Executors *machine.Executors
	Artifacts *artifact.Store
	Wanted    *images.Wanted
	// ReportedSweep returns the newest sweep that a server knows.
	ReportedSweep func() *cluster.DiskSweep
	// Changed makes the node report its facts soon.
	Changed func()

	imagesRemoved, imagesFreed atomic.Int64 // removed to free space so far; imagesFreed in bytes

	mu    sync.Mutex
	sweep *cluster.DiskSweep // the newest, nil for none; includes older ones that no server has received
	at    time.Duration      // when sweep was made (Boot)
	full  *cluster.DiskFull  // nil for none

	// stuck is when a cleanup could not free enough (Boot), by folder. It belongs to the goroutine that cleans.
	stuck map[string]time.Duration
}

// AddStats adds what was removed so far, and the newest sweep and full disk.
func (c *Cleaner) AddStats(s *cluster.NodeStats) {
	s.ImagesRemoved, s.ImagesFreed = int(c.imagesRemoved.Load()), cluster.Bytes(c.imagesFreed.Load())
	s.Sweep, s.DiskFull = c.toReport()
}

// sweepReportTime is how long a sweep is reported after a server knows it; the leader of the control plane has it long
// before.
const sweepReportTime = 10 * time.Minute

// toReport returns the sweep and the full disk to report. Callers do not change them.
func (c *Cleaner) toReport() (*cluster.DiskSweep, *cluster.DiskFull) {
	known := c.ReportedSweep()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sweep == known && c.Node.Boot()-c.at > sweepReportTime {
		return nil, c.full
	}
	return c.sweep, c.full
}

// roomDisk is a disk and its contents.
type roomDisk struct {
	executor.DiskUse
	keeper    executor.ImageKeeper // nil if the disk holds no images
	artifacts bool
}

// Watch frees space on the disks of images and artifacts until ctx ends. When a disk reaches High, the agent
// removes the least recently used contents down to Low. The next run of the agent removes what a crash leaves half
// removed.
func (c *Cleaner) Watch(ctx context.Context) {
	c.stuck = map[string]time.Duration{}
	var tidied time.Duration // Boot, 0 for never
	ticker := time.NewTicker(diskCheckInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if now := c.Node.Boot(); tidied == 0 || now-tidied >= artifactTidyInterval {
			c.Artifacts.Tidy()
			tidied = now
		}
		if c.Config.High < 100 {
			c.check(ctx)
		}
	}
}

// check measures the disks once and cleans the full ones.
func (c *Cleaner) check(ctx context.Context) {
	disks, err := c.disks(ctx)
	if err != nil && ctx.Err() == nil {
		c.Node.Logger.Debug("the disks of images and artifacts cannot be measured", "error", err)
	}
	var full *cluster.DiskFull
	for _, d := range disks {
		if d.Percent() < c.Config.High {
			delete(c.stuck, d.Folder)
			continue
		}
		if at, is := c.stuck[d.Folder]; !is || c.Node.Boot()-at >= cleanupRetryInterval {
			d = c.freeDisk(ctx, d)
			if ctx.Err() != nil {
				return
			}
		}
		if d.Percent() >= max(diskFullPercent, c.Config.High) && full == nil {
			full = c.fullDisk(d)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.full = full
}

// disks measures the disk of the images and that of the artifacts, which may be the same.
func (c *Cleaner) disks(ctx context.Context) (disks []roomDisk, err error) {
	var failed error
	if keeper := c.Executors.ImageKeeper(); keeper != nil {
		use, err := keeper.ImageDisk(ctx)
		if failed = err; err == nil {
			disks = append(disks, roomDisk{DiskUse: use, keeper: keeper})
		}
	}
	if !c.Artifacts.Any() {
		return disks, failed
	}
	if len(disks) > 0 && sameDisk(disks[0].Folder, c.Artifacts.Dir) {
		disks[0].artifacts = true
		return disks, failed
	}
	used, total, err := c.Artifacts.Disk()
	if err == nil {
		disks = append(disks, roomDisk{
			DiskUse:   executor.DiskUse{Folder: c.Artifacts.Dir, Used: used, Total: total},
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
func (c *Cleaner) freeDisk(ctx context.Context, d roomDisk) roomDisk {
	before := d
	gone := &cluster.DiskSweep{At: time.Now().UTC(), Folder: d.Folder, Before: d.Percent()}
	err := c.removeFrom(ctx, d, max(d.Used-cluster.Bytes(float64(d.Total)*c.Config.Low/100), 1), gone)
	now, failed := c.disks(ctx)
	if err = errors.Join(err, failed); err != nil && ctx.Err() == nil {
		c.Node.Logger.Warn("some images or artifacts could not be checked for removal from a full disk",
			"folder", d.Folder, "error", err)
	}
	for _, n := range now {
		if n.Folder == d.Folder {
			d = n
		}
	}
	if gone.After = d.Percent(); gone.Images+gone.Artifacts > 0 {
		c.Changed()
		c.addSweep(gone)
	}
	attrs := []any{
		"folder", d.Folder, "before", percent(before.Percent()), "now", percent(d.Percent()), "images", gone.Images,
		"artifacts", gone.Artifacts,
		"freed", gone.Freed.String(),
	}
	switch {
	case ctx.Err() != nil:
	case d.Percent() < c.Config.High:
		c.Node.Logger.Info("images and artifacts were removed from a full disk", attrs...)
	default:
		c.stuck[d.Folder] = c.Node.Boot()
		c.Node.Logger.Warn("the disk of images and artifacts is too full, and no more of them can be removed: "+
			"free space there, or see what keeps images in `berth image ls -o wide`", attrs...)
	}
	return d
}

// removeFrom removes enough from a disk to free need bytes, and adds it to gone.
func (c *Cleaner) removeFrom(ctx context.Context, d roomDisk, need cluster.Bytes, gone *cluster.DiskSweep) error {
	ofImages, ofArtifacts, err := c.splitNeed(ctx, d, need)
	if err != nil {
		return err
	}
	var errs []error
	if ofImages > 0 {
		all, err := d.keeper.PruneImages(ctx, executor.ImagePrune{Wanted: c.Wanted.Images, Need: ofImages})
		errs = append(errs, err)
		for i := range all {
			if p := &all[i]; p.Removed {
				gone.Images++
				gone.Add(p.Names[0], p.Size)
				c.imagesRemoved.Add(1)
				c.imagesFreed.Add(int64(p.Size))
				c.Node.Logger.Info("an image was removed: the disk is full", "image", p.Names[0], "digest", p.Digest,
					"size", p.Size.String(),
					"used", p.Used.UTC().Format(time.RFC3339))
			}
		}
	}
	if ofArtifacts > 0 && ctx.Err() == nil {
		all, err := c.Artifacts.Prune(c.Wanted.Artifacts, ofArtifacts)
		errs = append(errs, err)
		for _, r := range all {
			gone.Artifacts++
			gone.Add("artifact "+artifact.Short(r.Key), r.Size)
			c.Node.Logger.Info("an artifact was removed: the disk is full", "artifact", r.Key, "size", r.Size.String(),
				"used", r.Used.UTC().Format(time.RFC3339))
		}
	}
	return errors.Join(errs...)
}

// splitNeed divides the need of a disk into a share for images and a share for artifacts. The shares result from one
// common list by last use, from which the oldest entries go first.
func (c *Cleaner) splitNeed(ctx context.Context, d roomDisk, need cluster.Bytes) (images, artifacts cluster.Bytes,
	err error,
) {
	if !d.artifacts {
		return need, 0, nil
	}
	idle, err := c.Artifacts.Idle(c.Wanted.Artifacts)
	if d.keeper == nil || err != nil {
		return 0, need, err
	}
	if len(idle) == 0 {
		return need, 0, nil
	}
	all, err := d.keeper.PruneImages(ctx, executor.ImagePrune{Wanted: c.Wanted.Images, DryRun: true})
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

// addSweep sets the sweep to report. It includes the sweep before if no server has received that yet.
func (c *Cleaner) addSweep(s *cluster.DiskSweep) {
	known := c.ReportedSweep()
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := c.sweep; last != nil && known != last && last.Folder == s.Folder {
		s.Join(last)
	}
	c.sweep, c.at = s, c.Node.Boot()
}

// fullDisk returns the report of a full disk that cannot be cleaned. It returns the same report for the same state, so
// that servers report it once.
func (c *Cleaner) fullDisk(d roomDisk) *cluster.DiskFull {
	was := c.full // only this goroutine writes it
	if was != nil && was.Folder == d.Folder && d.Percent()-was.Percent < 1 && was.Percent-d.Percent() < 1 {
		return was
	}
	f := &cluster.DiskFull{Since: time.Now().UTC(), Folder: d.Folder, Percent: d.Percent()}
	if was != nil && was.Folder == d.Folder {
		f.Since = was.Since
	}
	f.Message = fmt.Sprintf("the disk of %s is %s full, and no image or artifact on it can be removed: all that "+
		"are left are in use, pinned or loaded by hand; free space there, or see `berth image ls --node %s`",
		f.Folder, percent(f.Percent), cmp.Or(c.Node.Name, "NODE"))
	return f
}

func percent(p float64) string { return fmt.Sprintf("%.1f%%", p) }
