package containerd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// PruneImages implements executor.ImageKeeper.
func (ix *imageIndex) PruneImages(ctx context.Context, p executor.ImagePrune) ([]executor.PrunedImage, error) {
	ctx = ix.in(ctx)
	ix.pruning.Lock() // each counts the shares of the others
	defer ix.pruning.Unlock()
	all, err := ix.entries(ctx, true)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(a, b *imageEntry) int { return a.used.Compare(b.used) })
	count := countShares(all)
	now := time.Now()
	var list []executor.PrunedImage
	var freed cluster.Bytes
	defer func() {
		if freed > 0 && !p.DryRun {
			ix.collectGarbage(ctx)
		}
	}()
	for _, h := range all {
		one := executor.PrunedImage{Names: h.names, Digest: h.digest, Size: h.freedBytes(count), Used: h.used}
		switch {
		case p.Need > 0 && freed >= p.Need:
			one.Kept = "there is room again"
		case now.Sub(h.used) < p.Unused:
			one.Kept = "was used lately"
		default:
			if one.Kept, err = ix.removeUnused(ctx, h, p); err != nil {
				return list, err
			}
		}
		if one.Removed = one.Kept == ""; one.Removed {
			freed += one.Size
			for part := range h.blobs { // order-free: each by itself
				count[part]--
			}
		}
		list = append(list, one)
	}
	return list, nil
}

// removeUnused removes an image unless something keeps it, and returns the reason. During the check no container can
// start to use the image.
func (ix *imageIndex) removeUnused(ctx context.Context, h *imageEntry, p executor.ImagePrune) (kept string, err error) {
	ix.cache.mu.Lock()
	defer ix.cache.mu.Unlock()
	users, err := ix.users(ctx)
	if err != nil {
		return "", err
	}
	why, hard := ix.keptReason(h, users, wantedImages(p.Wanted))
	if why != "" && (hard || !p.All) {
		return why, nil
	}
	if p.DryRun {
		return "", nil
	}
	for _, name := range h.names {
		now, err := ix.client.ImageService().Get(ctx, name)
		if isA(err, errdefs.IsNotFound) || err == nil && now.Target.Digest != h.target.Digest {
			continue // the name has become another's meanwhile
		}
		if err == nil {
			err = ix.client.ImageService().Delete(ctx, name)
		}
		if err != nil && !isA(err, errdefs.IsNotFound) {
			return "", failed(ctx, "remove image "+name, err)
		}
	}
	return "", nil
}

// collectGarbage runs containerd's garbage collection and returns after it. Images removed with the synchronous option
// free their content only then.
func (ix *imageIndex) collectGarbage(ctx context.Context) {
	all := ix.client.LeasesService()
	lease, err := all.Create(ctx, leases.WithRandomID(), leases.WithExpiration(time.Minute))
	if err == nil {
		err = all.Delete(ctx, lease, leases.SynchronousDelete)
	}
	if err != nil {
		ix.cfg.Logger.Debug("containerd frees the space of images later", "error", err)
	}
}

// ImageDisk implements executor.ImageKeeper: of the disks of containerd's blobs and unpacked layers the fuller one.
func (ix *imageIndex) ImageDisk(ctx context.Context) (executor.DiskUse, error) {
	folders, err := ix.folders(ctx)
	if err != nil {
		return executor.DiskUse{}, err
	}
	var fullest executor.DiskUse
	for _, folder := range folders {
		use, err := ix.diskUse(folder)
		if err != nil {
			return executor.DiskUse{}, err
		}
		if fullest.Total == 0 || use.Percent() > fullest.Percent() {
			fullest = use
		}
	}
	return fullest, nil
}

// folders returns where containerd keeps images, which stays so while the agent lives.
func (ix *imageIndex) folders(ctx context.Context) ([]string, error) {
	ix.cache.noting.Lock()
	defer ix.cache.noting.Unlock()
	if len(ix.cache.folders) > 0 {
		return ix.cache.folders, nil
	}
	resp, err := ix.client.IntrospectionService().Plugins(ix.in(ctx),
		"type==io.containerd.content.v1", "type==io.containerd.snapshotter.v1,id=="+ix.snapshotter())
	if err != nil {
		return nil, failed(ctx, "read the folders of containerd", err)
	}
	for _, p := range resp.Plugins {
		if root := p.Exports["root"]; root != "" {
			ix.cache.folders = append(ix.cache.folders, root)
		}
	}
	if len(ix.cache.folders) == 0 {
		return nil, errors.New("containerd does not report where its images are")
	}
	return ix.cache.folders, nil
}

func (ix *imageIndex) diskUse(folder string) (executor.DiskUse, error) {
	if ix.cfg.DiskUse != nil {
		return ix.cfg.DiskUse(folder)
	}
	var s syscall.Statfs_t
	if err := syscall.Statfs(folder, &s); err != nil {
		return executor.DiskUse{}, fmt.Errorf("read the use of the disk of %s: %w", folder, err)
	}
	block := cluster.Bytes(s.Bsize)
	used := cluster.Bytes(s.Blocks-s.Bfree) * block
	return executor.DiskUse{Folder: folder, Used: used, Total: used + cluster.Bytes(s.Bavail)*block}, nil
}
