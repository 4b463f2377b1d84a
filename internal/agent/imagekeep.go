package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/transport"
)

// Defaults of the marks between which the disk of images is kept, in percent.
const (
	DefaultImageHigh = 85
	DefaultImageLow  = 75
)

// How often the agent looks how full the disk of images is, and how often it tries again where nothing could be removed: to find out what
// each image takes is work.
const (
	imageDiskEvery = 5 * time.Second
	imageDiskAgain = 5 * time.Minute
)

// errNoKeeper says that no executor of the node pulls and removes images.
var errNoKeeper = errors.New("no executor of this node pulls images: it runs tasks as plain processes")

// keeper returns the first working executor that pulls and removes images, or nil.
func (m *machine) keeper() executor.ImageKeeper {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.working {
		if k, ok := e.Executor.(executor.ImageKeeper); ok {
			return k
		}
	}
	return nil
}

// wantedContainers yields the containers of the attempts that run or will run, each with its task.
func (a *Agent) wantedContainers(yield func(task cluster.TaskID, c *cluster.Container)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(a.byID)) {
		for _, t := range a.byID[id] {
			v := t.view.Load()
			if def := t.currentDefinition(); def != nil && (v == nil || v.rec.Phase != attempt.PhaseEnded && v.rec.Phase != attempt.PhaseGone) {
				for i := range def.Containers {
					yield(id, &def.Containers[i])
				}
			}
		}
	}
}

// wantedImages returns which attempts use or will use an image: by its digest where they are pinned to that, else by its normal name.
func (a *Agent) wantedImages() map[string]string {
	wanted := map[string]string{}
	a.wantedContainers(func(task cluster.TaskID, c *cluster.Container) {
		if key := imageKey(c); key != "" {
			wanted[key] = "task " + string(task)
		}
	})
	return wanted
}

func imageKey(c *cluster.Container) string {
	switch {
	case c.Image == "":
		return ""
	case c.Pinned() != "":
		return c.Pinned()
	}
	return cluster.NormalImage(c.Image)
}

// watchImages removes images while the disk that holds them is fuller than ImageHigh, until it is as full as ImageLow.
func (a *Agent) watchImages(ctx context.Context) {
	var stuck time.Duration // when nothing could be removed (Boot), 0 for not so
	ticker := time.NewTicker(imageDiskEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if now := a.Boot(); stuck != 0 && now-stuck < imageDiskAgain {
			continue
		}
		stuck = 0
		enough, err := a.makeImageRoom(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			a.Logger.Warn("images were not looked at for those that can go", "error", err)
			stuck = a.Boot()
		case !enough:
			stuck = a.Boot()
		}
	}
}

// makeImageRoom removes images if the disk is too full, and reports whether it is not, now.
func (a *Agent) makeImageRoom(ctx context.Context) (enough bool, err error) {
	keeper := a.machine.keeper()
	if keeper == nil {
		return true, nil
	}
	disk, err := keeper.ImageDisk(ctx)
	if err != nil || disk.Percent() < a.ImageHigh {
		return true, err
	}
	need := disk.Used - cluster.Bytes(float64(disk.Total)*a.ImageLow/100)
	all, err := keeper.PruneImages(ctx, executor.ImagePrune{Wanted: a.wantedImages, Need: max(need, 1)})
	var freed cluster.Bytes
	removed := 0
	for i := range all {
		if p := &all[i]; p.Removed {
			removed++
			freed += p.Size
			a.imagesRemoved.Add(1)
			a.imagesFreed.Add(int64(p.Size))
			a.Logger.Info("an image was removed: the disk is full", "image", p.Names[0], "digest", p.Digest, "size", p.Size.String(),
				"used", p.Used.UTC().Format(time.RFC3339))
		}
	}
	if err != nil {
		return false, err
	}
	if removed > 0 {
		a.machine.lookAgain()
	}
	now, err := keeper.ImageDisk(ctx)
	if err != nil {
		return false, err
	}
	told := []any{"folder", disk.Folder, "before", percent(disk.Percent()), "now", percent(now.Percent()), "removed", removed, "freed", freed.String()}
	if now.Percent() < a.ImageHigh {
		a.Logger.Info("images made room on their disk", told...)
		return true, nil
	}
	a.Logger.Warn("the disk of the images is too full, and no other image can be removed: free space there, or see what keeps them in `berth image ls -o wide`", told...)
	return false, nil
}

func percent(p float64) string { return fmt.Sprintf("%.1f%%", p) }

// keepImages does what a server asks of the node's images, beside loading them, and returns what came of it.
func (a *Agent) keepImages(ctx context.Context, r transport.StreamRequest) (any, error) {
	keeper := a.machine.keeper()
	if keeper == nil {
		return nil, errNoKeeper
	}
	var ask transport.ImagesRequest
	if r.Images != nil {
		ask = *r.Images
	}
	switch r.Kind {
	case transport.StreamImageList:
		all, err := keeper.ListImages(ctx, a.wantedImages)
		return wireImages(all), err
	case transport.StreamImagePull:
		image, err := keeper.PullImage(ctx, executor.ImagePull{Name: ask.Name, Keep: ask.Keep, Credentials: a.Credentials}, nil)
		if err == nil {
			a.machine.lookAgain()
		}
		if errors.Is(err, executor.ErrLogin) {
			err = fmt.Errorf("%w; for images that are pulled ahead the node's own logins count, of the file of --registry-logins of its agent", err)
		}
		return wireImages([]executor.Image{image}), err
	case transport.StreamImageResolve:
		digest, err := keeper.ResolveImage(ctx, ask.Name, a.Credentials)
		return []transport.Image{{Name: ask.Name, Digest: digest}}, err
	case transport.StreamImagePrune:
		all, err := keeper.PruneImages(ctx, executor.ImagePrune{
			Wanted: a.wantedImages, All: ask.All, DryRun: ask.DryRun, Unused: time.Duration(ask.Unused),
		})
		out := make([]transport.PrunedImage, len(all))
		for i := range all {
			out[i] = transport.PrunedImage(all[i])
			if all[i].Removed && !ask.DryRun {
				a.Logger.Info("an image was removed, as somebody asked", "image", all[i].Names[0], "digest", all[i].Digest, "size", all[i].Size.String())
			}
		}
		if !ask.DryRun {
			a.machine.lookAgain()
		}
		return out, err
	}
	return nil, fmt.Errorf("kind %q is not known to this agent", r.Kind)
}

func wireImages(all []executor.Image) []transport.Image {
	out := make([]transport.Image, len(all))
	for i := range all {
		out[i] = transport.Image(all[i])
	}
	return out
}
