package executor

import (
	"context"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// ImageKeeper is what executors offer besides whose images come from registries and are removed again. All methods may
// be called concurrently.
type ImageKeeper interface {
	// ListImages returns the images held, ordered by name, with all that is known of them. Wanted is as in ImagePrune.
	ListImages(ctx context.Context, wanted func() map[string]string) ([]Image, error)
	// PullImage pulls an image, or asks the registry whether the one that is here is still that of the name. Progress,
	// unless nil, is told in a few words what goes on, at most every few seconds.
	PullImage(ctx context.Context, p ImagePull, progress func(string)) (Image, error)
	// ResolveImage asks the registry which digest a name stands for now. It tries once. For an image that was loaded by
	// hand it returns "": that need not be the registry's.
	ResolveImage(ctx context.Context, name string,
		credentials func(registry string) (user, secret string)) (digest string, err error)
	// PruneImages removes images, those first that were not used for the longest, and returns all in that order. None
	// goes that a container was made from or is about to be. Where it returns an error the list tells what came of the
	// images before it.
	PruneImages(ctx context.Context, p ImagePrune) ([]PrunedImage, error)
	// ImageDisk measures the disk that holds the images.
	ImageDisk(ctx context.Context) (DiskUse, error)
}

// ImagePull says which image is to be pulled.
type ImagePull struct {
	Name string
	// Keep pins it: it is not removed unless that is asked for.
	Keep bool
	// Credentials returns what a registry wants, or empty strings. It may be nil.
	Credentials func(registry string) (user, secret string)
}

// ImagePrune says which images are to be removed.
type ImagePrune struct {
	// Wanted returns what else uses images, by the image's normal name or by its digest; it may be nil. It is called
	// while nothing can begin to use an image, must not wait, and must not call the executor.
	Wanted func() map[string]string
	// Need, unless 0, is after how much of the disk is free the rest may stay.
	Need cluster.Bytes
	// Unused is for how long an image must not have been used.
	Unused time.Duration
	// All removes also what was loaded by hand or pinned.
	All bool
	// DryRun removes nothing.
	DryRun bool
}

// PrunedImage is what came of an image.
type PrunedImage struct {
	Names  []string      `json:"names"`
	Digest string        `json:"digest"`
	Size   cluster.Bytes `json:"size"` // what the disk gains without it
	Used   time.Time     `json:"used,omitzero"`
	// Removed says that it is gone, or would be; Kept why it is not.
	Removed bool   `json:"removed,omitempty"`
	Kept    string `json:"kept,omitempty"`
}

// DiskUse is how full a disk is. Total is what all but the superuser can use of it.
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
