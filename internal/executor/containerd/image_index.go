package containerd

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/client"
	metadata "github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// imageIndex knows the images that are on the node, who uses them, and which of them may go.
type imageIndex struct {
	*connection
	cache   cache
	pruning sync.Mutex
}

// noteUse records that an image was used now. A failure is ignored: the image only seems older.
func (ix *imageIndex) noteUse(ctx context.Context, name string) {
	now := time.Now()
	if name == "" || !ix.cache.due(name, now) {
		return
	}
	img := metadata.Image{Name: name, Labels: map[string]string{labelUsed: strconv.FormatInt(now.Unix(), 10)}}
	if _, err := ix.client.ImageService().Update(ctx, img, "labels."+labelUsed); err != nil &&
		!isA(err, errdefs.IsNotFound) {
		ix.cfg.Logger.Debug("the use of an image was not noted", "image", name, "error", err)
	}
}

// labelsOfPulled returns the labels of a pulled image. A pinned image stays pinned.
func (ix *imageIndex) labelsOfPulled(ctx context.Context, name string) map[string]string {
	labels := map[string]string{labelUsed: strconv.FormatInt(time.Now().Unix(), 10)}
	if old, err := ix.client.ImageService().Get(ctx, name); err == nil && old.Labels[labelKeep] == keepPinned {
		labels[labelKeep] = keepPinned
	}
	return labels
}

// imageEntry is one image by its digest, with all its names.
type imageEntry struct {
	digest  string
	names   []string // ordered
	target  ocispec.Descriptor
	used    time.Time
	keep    string           // labelKeep of any of its names, or keepLoaded if its origin is unknown
	blobs   map[string]int64 // sizes of its parts: blobs by digest, unpacked layers by "unpacked " and their chain
	content int64            // of the blobs alone
}

// entries returns all images, ordered by digest. With parts it measures their sizes.
func (ix *imageIndex) entries(ctx context.Context, parts bool) ([]*imageEntry, error) {
	all, err := ix.client.ImageService().List(ctx)
	if err != nil {
		return nil, failed(ctx, "list images", err)
	}
	by := map[string]*imageEntry{}
	for _, img := range all {
		d := img.Target.Digest.String()
		h := by[d]
		if h == nil {
			h = &imageEntry{digest: d, target: img.Target}
			by[d] = h
		}
		h.names = append(h.names, img.Name)
		used := img.UpdatedAt
		if n, err := strconv.ParseInt(img.Labels[labelUsed], 10, 64); err == nil {
			used = time.Unix(n, 0)
		}
		if used.After(h.used) {
			h.used = used
		}
		keep := img.Labels[labelKeep]
		if keep == "" && img.Labels[labelUsed] == "" && !ix.fromRegistry(ctx, img.Target.Digest) {
			keep = keepLoaded // by another program
		}
		if h.keep != keepPinned && keep != "" {
			h.keep = keep
		}
	}
	list := make([]*imageEntry, 0, len(by))
	for _, d := range slices.Sorted(maps.Keys(by)) {
		h := by[d]
		slices.Sort(h.names)
		if parts {
			ix.measure(ctx, h)
		}
		list = append(list, h)
	}
	return list, nil
}

// fromRegistry reports whether a blob was pulled.
func (ix *imageIndex) fromRegistry(ctx context.Context, d digest.Digest) bool {
	info, err := ix.client.ContentStore().Info(ctx, d)
	if err != nil {
		return false
	}
	for name := range info.Labels { // order-free: whether there is one
		if strings.HasPrefix(name, sourceLabel) {
			return true
		}
	}
	return false
}

// measure determines the size of an image. Missing content counts as 0.
func (ix *imageIndex) measure(ctx context.Context, h *imageEntry) {
	h.blobs = map[string]int64{}
	store := ix.client.ContentStore()
	note := metadata.HandlerFunc(func(ctx context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		info, err := store.Info(ctx, d.Digest)
		if err != nil {
			return nil, metadata.ErrSkipDesc
		}
		if _, seen := h.blobs[d.Digest.String()]; !seen {
			h.blobs[d.Digest.String()] = info.Size
			h.content += info.Size
		}
		return metadata.Children(ctx, store, d)
	})
	_ = metadata.Walk(ctx, note, h.target)
	img := client.NewImage(ix.client, metadata.Image{Name: h.names[0], Target: h.target})
	layers, err := img.RootFS(ctx)
	if err != nil {
		return
	}
	unpacked := ix.client.SnapshotService(ix.snapshotter())
	for _, chain := range identity.ChainIDs(slices.Clone(layers)) {
		if u, err := unpacked.Usage(ctx, chain.String()); err == nil {
			h.blobs["unpacked "+chain.String()] = u.Size
		}
	}
}

// users returns the user of each used image, by its digest and, if a container does not record the digest, by name.
func (ix *imageIndex) users(ctx context.Context) (map[string]string, error) {
	all, err := ix.client.ContainerService().List(ctx)
	if err != nil {
		return nil, failed(ctx, "list containers", err)
	}
	by := map[string]string{}
	for i := range all {
		key := cmp.Or(all[i].Labels[labelImage], all[i].Image)
		by[key] = "a container of the node"
		if task := all[i].Labels[labelPrefix+"berth.task"]; task != "" {
			by[key] = "task " + task
		}
	}
	return by, nil
}

// keptReason returns why an image must not be removed. An image with hard set is never removed.
func (ix *imageIndex) keptReason(h *imageEntry, users, wanted map[string]string) (why string, hard bool) {
	for _, key := range append([]string{h.digest}, h.names...) {
		if by := users[key]; by != "" {
			return by, true
		}
		if by := wanted[key]; by != "" {
			return by, true
		}
		if ix.cache.held[key] > 0 {
			return "a container that is being made", true
		}
	}
	switch h.keep {
	case keepLoaded:
		return "was loaded by hand", false
	case keepPinned:
		return "is pinned", false
	}
	return "", false
}

// Images implements executor.ImageStore.
func (ix *imageIndex) Images(ctx context.Context) ([]executor.Image, error) {
	return ix.list(ix.in(ctx), nil)
}

// ListImages implements executor.ImageKeeper.
func (ix *imageIndex) ListImages(ctx context.Context, wanted func() map[string]string) ([]executor.Image, error) {
	return ix.list(ix.in(ctx), wanted)
}

func (ix *imageIndex) list(ctx context.Context, wanted func() map[string]string) ([]executor.Image, error) {
	all, err := ix.entries(ctx, true)
	if err != nil {
		return nil, err
	}
	users, err := ix.users(ctx)
	if err != nil {
		return nil, err
	}
	count := countShares(all)
	var images []executor.Image
	ix.cache.mu.Lock()
	defer ix.cache.mu.Unlock()
	asked := wantedImages(wanted)
	for _, h := range all {
		why, _ := ix.keptReason(h, users, asked)
		for _, name := range h.names {
			images = append(images, executor.Image{
				Name: name, Digest: h.digest, Size: cluster.Bytes(h.content), Frees: h.freedBytes(count), Used: h.used,
				Kept: why,
			})
		}
	}
	return sorted(images), nil
}

func wantedImages(wanted func() map[string]string) map[string]string {
	if wanted == nil {
		return nil
	}
	return wanted()
}

// countShares counts for each part how many images have it.
func countShares(all []*imageEntry) map[string]int {
	count := map[string]int{}
	for _, h := range all {
		for part := range h.blobs { // order-free: a sum
			count[part]++
		}
	}
	return count
}

// freedBytes returns the disk space that the removal of the image would free.
func (h *imageEntry) freedBytes(count map[string]int) (sum cluster.Bytes) {
	for part, size := range h.blobs { // order-free: a sum
		if count[part] == 1 {
			sum += cluster.Bytes(size)
		}
	}
	return sum
}

// ImageNames implements executor.ImageNamer.
func (ix *imageIndex) ImageNames(ctx context.Context) ([]string, error) {
	ctx = ix.in(ctx)
	all, err := ix.client.ImageService().List(ctx)
	if err != nil {
		return nil, failed(ctx, "list images", err)
	}
	slices.SortFunc(all, func(a, b metadata.Image) int {
		return cmp.Or(b.UpdatedAt.Compare(a.UpdatedAt), strings.Compare(a.Name, b.Name))
	})
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return names, nil
}

func (ix *imageIndex) describe(ctx context.Context, img client.Image) executor.Image {
	h := &imageEntry{names: []string{img.Name()}, digest: img.Target().Digest.String(), target: img.Target()}
	ix.measure(ctx, h)
	return executor.Image{Name: img.Name(), Digest: h.digest, Size: cluster.Bytes(h.content)}
}
