package containerd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/client"
	metadata "github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// Labels of containerd's record of an image, so that they last as long as the image does.
const (
	// labelUsed is when a container was last made from the image or removed, in seconds since 1970.
	labelUsed = "berth.used"
	// labelKeep says why the image is removed only on request: keepLoaded or keepPinned.
	labelKeep = "berth.keep"

	// sourceLabel begins the labels of a blob that name the registries that it came from.
	sourceLabel = "containerd.io/distribution.source."
)

// Values of labelKeep.
const (
	keepLoaded = "loaded"
	keepPinned = "pinned"
)

// usedEvery is the precision of an image's last use. Each update is a write of containerd.
const usedEvery = time.Minute

// cache holds the state of images beyond containerd's records. Safe for concurrent use.
type cache struct {
	mu   sync.Mutex
	held map[string]int // images by name and by digest that a container is about to be made from

	noting  sync.Mutex
	noted   map[string]time.Time // when the use of an image was last written, by name
	folders []string             // where containerd keeps images
}

// hold keeps images, by name or digest, until release is called.
func (c *cache) hold(keys ...string) (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		c.held = map[string]int{}
	}
	for _, k := range keys {
		c.held[k]++
	}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, k := range keys {
			if c.held[k]--; c.held[k] == 0 {
				delete(c.held, k)
			}
		}
	})
}

// due reports whether the use of an image is to be written now.
func (c *cache) due(name string, now time.Time) bool {
	c.noting.Lock()
	defer c.noting.Unlock()
	if now.Sub(c.noted[name]) < usedEvery {
		return false
	}
	if c.noted == nil || len(c.noted) > maxConfigs {
		c.noted = map[string]time.Time{}
	}
	c.noted[name] = now
	return true
}

// noteUse records that an image was used now. A failure is ignored: the image only looks older.
func (e *Executor) noteUse(ctx context.Context, name string) {
	now := time.Now()
	if name == "" || !e.cache.due(name, now) {
		return
	}
	img := metadata.Image{Name: name, Labels: map[string]string{labelUsed: strconv.FormatInt(now.Unix(), 10)}}
	if _, err := e.client.ImageService().Update(ctx, img, "labels."+labelUsed); err != nil &&
		!isA(err, errdefs.IsNotFound) {
		e.cfg.Logger.Debug("the use of an image was not noted", "image", name, "error", err)
	}
}

// labelsOfPulled returns the labels of a pulled image. A pinned image stays pinned.
func (e *Executor) labelsOfPulled(ctx context.Context, name string) map[string]string {
	labels := map[string]string{labelUsed: strconv.FormatInt(time.Now().Unix(), 10)}
	if old, err := e.client.ImageService().Get(ctx, name); err == nil && old.Labels[labelKeep] == keepPinned {
		labels[labelKeep] = keepPinned
	}
	return labels
}

// holding is one image by its digest, with all its names.
type holding struct {
	digest  string
	names   []string // ordered
	target  ocispec.Descriptor
	used    time.Time
	keep    string           // labelKeep of any of its names, or keepLoaded if its origin is unknown
	blobs   map[string]int64 // sizes of its parts: blobs by digest, unpacked layers by "unpacked " and their chain
	content int64            // of the blobs alone
}

// holdings returns all images, ordered by digest. With parts it measures their sizes.
func (e *Executor) holdings(ctx context.Context, parts bool) ([]*holding, error) {
	all, err := e.client.ImageService().List(ctx)
	if err != nil {
		return nil, failed(ctx, "list images", err)
	}
	by := map[string]*holding{}
	for _, img := range all {
		d := img.Target.Digest.String()
		h := by[d]
		if h == nil {
			h = &holding{digest: d, target: img.Target}
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
		if keep == "" && img.Labels[labelUsed] == "" && !e.fromRegistry(ctx, img.Target.Digest) {
			keep = keepLoaded // by a build that did not note it
		}
		if h.keep != keepPinned && keep != "" {
			h.keep = keep
		}
	}
	list := make([]*holding, 0, len(by))
	for _, d := range slices.Sorted(maps.Keys(by)) {
		h := by[d]
		slices.Sort(h.names)
		if parts {
			e.measure(ctx, h)
		}
		list = append(list, h)
	}
	return list, nil
}

// fromRegistry reports whether a blob was pulled.
func (e *Executor) fromRegistry(ctx context.Context, d digest.Digest) bool {
	info, err := e.client.ContentStore().Info(ctx, d)
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
func (e *Executor) measure(ctx context.Context, h *holding) {
	h.blobs = map[string]int64{}
	store := e.client.ContentStore()
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
	img := client.NewImage(e.client, metadata.Image{Name: h.names[0], Target: h.target})
	layers, err := img.RootFS(ctx)
	if err != nil {
		return
	}
	unpacked := e.client.SnapshotService(e.snapshotter())
	for _, chain := range identity.ChainIDs(slices.Clone(layers)) {
		if u, err := unpacked.Usage(ctx, chain.String()); err == nil {
			h.blobs["unpacked "+chain.String()] = u.Size
		}
	}
}

// users returns the user of each used image, by its digest and, if a container does not record the digest, by name.
func (e *Executor) users(ctx context.Context) (map[string]string, error) {
	all, err := e.client.ContainerService().List(ctx)
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

// keptBy returns why an image must not be removed. An image with hard set is never removed.
func (e *Executor) keptBy(h *holding, users, wanted map[string]string) (why string, hard bool) {
	for _, key := range append([]string{h.digest}, h.names...) {
		if by := users[key]; by != "" {
			return by, true
		}
		if by := wanted[key]; by != "" {
			return by, true
		}
		if e.cache.held[key] > 0 {
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
func (e *Executor) Images(ctx context.Context) ([]executor.Image, error) {
	return e.listed(e.in(ctx), nil)
}

// ListImages implements executor.ImageKeeper.
func (e *Executor) ListImages(ctx context.Context, wanted func() map[string]string) ([]executor.Image, error) {
	return e.listed(e.in(ctx), wanted)
}

func (e *Executor) listed(ctx context.Context, wanted func() map[string]string) ([]executor.Image, error) {
	all, err := e.holdings(ctx, true)
	if err != nil {
		return nil, err
	}
	users, err := e.users(ctx)
	if err != nil {
		return nil, err
	}
	count := shares(all)
	var images []executor.Image
	e.cache.mu.Lock()
	defer e.cache.mu.Unlock()
	asked := ask(wanted)
	for _, h := range all {
		why, _ := e.keptBy(h, users, asked)
		for _, name := range h.names {
			images = append(images, executor.Image{
				Name: name, Digest: h.digest, Size: cluster.Bytes(h.content), Frees: h.frees(count), Used: h.used,
				Kept: why,
			})
		}
	}
	return sorted(images), nil
}

func ask(wanted func() map[string]string) map[string]string {
	if wanted == nil {
		return nil
	}
	return wanted()
}

// shares counts for each part how many images have it.
func shares(all []*holding) map[string]int {
	count := map[string]int{}
	for _, h := range all {
		for part := range h.blobs { // order-free: a sum
			count[part]++
		}
	}
	return count
}

// frees returns the disk space that the removal of the image would free.
func (h *holding) frees(count map[string]int) (sum cluster.Bytes) {
	for part, size := range h.blobs { // order-free: a sum
		if count[part] == 1 {
			sum += cluster.Bytes(size)
		}
	}
	return sum
}

// PruneImages implements executor.ImageKeeper.
func (e *Executor) PruneImages(ctx context.Context, p executor.ImagePrune) ([]executor.PrunedImage, error) {
	ctx = e.in(ctx)
	e.pruning.Lock() // each counts the shares of the others
	defer e.pruning.Unlock()
	all, err := e.holdings(ctx, true)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(a, b *holding) int { return a.used.Compare(b.used) })
	count := shares(all)
	now := time.Now()
	var list []executor.PrunedImage
	var freed cluster.Bytes
	defer func() {
		if freed > 0 && !p.DryRun {
			e.collect(ctx)
		}
	}()
	for _, h := range all {
		one := executor.PrunedImage{Names: h.names, Digest: h.digest, Size: h.frees(count), Used: h.used}
		switch {
		case p.Need > 0 && freed >= p.Need:
			one.Kept = "there is room again"
		case now.Sub(h.used) < p.Unused:
			one.Kept = "was used lately"
		default:
			if one.Kept, err = e.drop(ctx, h, p); err != nil {
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

// drop removes an image unless something keeps it, and returns the reason. During the check no container can start to
// use the image.
func (e *Executor) drop(ctx context.Context, h *holding, p executor.ImagePrune) (kept string, err error) {
	e.cache.mu.Lock()
	defer e.cache.mu.Unlock()
	users, err := e.users(ctx)
	if err != nil {
		return "", err
	}
	why, hard := e.keptBy(h, users, ask(p.Wanted))
	if why != "" && (hard || !p.All) {
		return why, nil
	}
	if p.DryRun {
		return "", nil
	}
	for _, name := range h.names {
		now, err := e.client.ImageService().Get(ctx, name)
		if isA(err, errdefs.IsNotFound) || err == nil && now.Target.Digest != h.target.Digest {
			continue // the name has become another's meanwhile
		}
		if err == nil {
			err = e.client.ImageService().Delete(ctx, name)
		}
		if err != nil && !isA(err, errdefs.IsNotFound) {
			return "", failed(ctx, "remove image "+name, err)
		}
	}
	return "", nil
}

// collect runs containerd's garbage collection and returns after it. Images removed with the synchronous option free
// their content only then.
func (e *Executor) collect(ctx context.Context) {
	all := e.client.LeasesService()
	lease, err := all.Create(ctx, leases.WithRandomID(), leases.WithExpiration(time.Minute))
	if err == nil {
		err = all.Delete(ctx, lease, leases.SynchronousDelete)
	}
	if err != nil {
		e.cfg.Logger.Debug("containerd frees the space of images later", "error", err)
	}
}

// PullImage implements executor.ImageKeeper.
func (e *Executor) PullImage(ctx context.Context, p executor.ImagePull, progress func(string)) (executor.Image, error) {
	ctx = e.in(ctx)
	name, err := normalName(p.Name)
	if err != nil {
		return executor.Image{}, err
	}
	if progress == nil {
		progress = func(string) {}
	}
	defer e.cache.hold(name)()
	img, err := e.pulled(ctx, name, name, p.Credentials, progress)
	if err != nil {
		return executor.Image{}, err
	}
	if p.Keep {
		pinned := metadata.Image{Name: name, Labels: map[string]string{labelKeep: keepPinned}}
		if _, err := e.client.ImageService().Update(ctx, pinned, "labels."+labelKeep); err != nil {
			return executor.Image{}, failed(ctx, "pin image", err)
		}
	}
	return e.describe(ctx, img), nil
}

// ResolveImage implements executor.ImageKeeper.
func (e *Executor) ResolveImage(ctx context.Context, image string, credentials func(string) (string, string)) (string,
	error,
) {
	ctx = e.in(ctx)
	name, err := normalName(image)
	if err != nil {
		return "", err
	}
	if img, err := e.client.ImageService().Get(ctx, name); err == nil && (img.Labels[labelKeep] == keepLoaded ||
		img.Labels[labelUsed] == "" && !e.fromRegistry(ctx, img.Target.Digest)) {
		return "", nil
	}
	return e.resolved(ctx, name, credentials)
}

// ImageDisk implements executor.ImageKeeper: of the disks of containerd's blobs and unpacked layers the fuller one.
func (e *Executor) ImageDisk(ctx context.Context) (executor.DiskUse, error) {
	folders, err := e.folders(ctx)
	if err != nil {
		return executor.DiskUse{}, err
	}
	var fullest executor.DiskUse
	for _, folder := range folders {
		use, err := e.diskUse(folder)
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
func (e *Executor) folders(ctx context.Context) ([]string, error) {
	e.cache.noting.Lock()
	defer e.cache.noting.Unlock()
	if len(e.cache.folders) > 0 {
		return e.cache.folders, nil
	}
	resp, err := e.client.IntrospectionService().Plugins(e.in(ctx),
		"type==io.containerd.content.v1", "type==io.containerd.snapshotter.v1,id=="+e.snapshotter())
	if err != nil {
		return nil, failed(ctx, "ask containerd for its folders", err)
	}
	for _, p := range resp.Plugins {
		if root := p.Exports["root"]; root != "" {
			e.cache.folders = append(e.cache.folders, root)
		}
	}
	if len(e.cache.folders) == 0 {
		return nil, errors.New("containerd does not tell where its images are")
	}
	return e.cache.folders, nil
}

func (e *Executor) diskUse(folder string) (executor.DiskUse, error) {
	if e.cfg.DiskUse != nil {
		return e.cfg.DiskUse(folder)
	}
	var s syscall.Statfs_t
	if err := syscall.Statfs(folder, &s); err != nil {
		return executor.DiskUse{}, fmt.Errorf("look at the disk of %s: %w", folder, err)
	}
	block := cluster.Bytes(s.Bsize)
	used := cluster.Bytes(s.Blocks-s.Bfree) * block
	return executor.DiskUse{Folder: folder, Used: used, Total: used + cluster.Bytes(s.Bavail)*block}, nil
}
