package executor

import (
	"context"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// ImageKeeper is an optional interface of executors that pull images from registries and remove them. All methods may
// be called concurrently.
type ImageKeeper interface {
	// ListImages returns the images on the node, ordered by name, with all details. wanted is as in ImagePrune.
	ListImages(ctx context.Context, wanted func() map[string]string) ([]Image, error)
	// PullImage pulls an image, or asks the registry whether the local one is still current. progress, unless nil,
	// receives short descriptions of the current activity, at most every few seconds.
	PullImage(ctx context.Context, p ImagePull, progress func(string)) (Image, error)
	// ResolveImage asks the registry for the current digest of a name. It tries once. For an image that was loaded by
	// hand it returns "", because the registry's image may differ.
	ResolveImage(ctx context.Context, name string,
		credentials func(registry string) (user, secret string)) (digest string, err error)
	// PruneImages removes images, the least recently used first, and returns all in that order. It keeps images that a
	// container uses or is about to use. On an error the list holds the results so far.
	PruneImages(ctx context.Context, p ImagePrune) ([]PrunedImage, error)
	// ImageDisk measures the disk that holds the images.
	ImageDisk(ctx context.Context) (DiskUse, error)
}

// ImagePull selects the image to pull.
type ImagePull struct {
	Name string
	// Keep pins the image: it is removed only on request.
	Keep bool
	// Credentials returns the login for a registry, or empty strings. It may be nil.
	Credentials func(registry string) (user, secret string)
}

// ImagePrune selects the images to remove.
type ImagePrune struct {
	// Wanted returns other users of images, by the image's canonical name or by its digest; it may be nil. During the
	// call nothing can start to use an image. It must not wait, and must not call the executor.
	Wanted func() map[string]string
	// Need, unless 0, is after how much of the disk is free the rest may stay.
	Need cluster.Bytes
	// Unused is how long an image must have been unused.
	Unused time.Duration
	// All also removes images that were loaded by hand or pinned.
	All bool
	// DryRun removes nothing.
	DryRun bool
}

// PrunedImage is the result for one image.
type PrunedImage struct {
	Names  []string      `json:"names"`
	Digest string        `json:"digest"`
	Size   cluster.Bytes `json:"size"` // the disk space that its removal frees
	Used   time.Time     `json:"used,omitzero"`
	// Removed says that it was removed, or would be; Kept is the reason against it.
	Removed bool   `json:"removed,omitempty"`
	Kept    string `json:"kept,omitempty"`
}

// DiskUse is the usage of a disk. Total is the space that ordinary users can use.
type DiskUse struct {
	Folder      string
	Used, Total cluster.Bytes
}

// Percent returns how full it is, from 0 to 100.
func (d DiskUse) Percent() float64 {
	if d.Total <= 0 {
		return 0
	}
	return 100 * float64(d.Used) / float64(d.Total)
}
