package containerd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	metadata "github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/distribution/reference"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sirupsen/logrus"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/outlive"
)

// Image names are normal in containerd: "redis" is "docker.io/library/redis:latest".
func normalName(name string) (string, error) {
	ref, err := reference.ParseDockerRef(name)
	if err != nil {
		return "", fmt.Errorf("image: %q is not the name of an image: %w", name, err)
	}
	return ref.String(), nil
}

// imageSource provides the images of containers: from the node, from archives and from registries.
type imageSource struct {
	*connection
	index   *imageIndex
	configs configCache
	puller  *puller
	// importing has the names of the images whose archives are being read.
	importing outlive.KeyedLock[string]
}

// image returns an unpacked image, pulled if the policy says so. Nothing removes the image until release is called.
func (src *imageSource) image(ctx context.Context, spec *executor.Spec, progress func(string)) (_ client.Image,
	release func(), err error,
) {
	if spec.ImageArchive != nil {
		return src.archivedImage(ctx, spec, progress)
	}
	name, err := normalName(spec.Container.Image)
	if err != nil {
		return nil, nil, err
	}
	pinned := spec.Container.Pinned()
	release = src.index.cache.hold(name, pinned)
	defer func() {
		if err != nil {
			release()
		}
	}()
	img, err := src.localImage(ctx, name, pinned, spec.Container.Pull)
	if img != nil || err != nil {
		if err == nil {
			src.index.noteUse(ctx, img.Name())
			err = src.unpack(ctx, img, progress)
		}
		return img, release, err
	}
	if pinned == "" {
		img, err = src.pullShared(ctx, name, name, spec.Credentials, progress)
		return img, release, err
	}
	img, err = src.pullShared(ctx, pinnedName(name, pinned), name+"@"+pinned[:min(len(pinned), len("sha256:")+12)],
		spec.Credentials, progress)
	if err == nil {
		src.nameAsPinned(ctx, name, img)
	}
	return img, release, err
}

// localImage returns a usable local image, or nil if it must be pulled. With a pinned digest the image has that digest.
func (src *imageSource) localImage(ctx context.Context, name, pinned string, policy cluster.PullPolicy) (client.Image,
	error,
) {
	if policy == cluster.PullAlways {
		return nil, nil //nolint:nilnil // see above
	}
	names := []string{name}
	if pinned != "" {
		names = append(names, pinnedName(name, pinned))
	}
	for _, n := range names {
		img, err := src.client.GetImage(ctx, n)
		switch {
		case err == nil && (pinned == "" || img.Target().Digest.String() == pinned):
			return img, nil
		case err != nil && !isA(err, errdefs.IsNotFound):
			return nil, failed(ctx, "find image", err)
		}
	}
	if policy == cluster.PullNever {
		return nil, fmt.Errorf("image: %s is not on the node, and pull is %q", name, policy)
	}
	return nil, nil //nolint:nilnil // see above
}

// pinnedName returns the name of an image by its digest.
func pinnedName(name, pinned string) string {
	ref, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return name
	}
	return reference.TrimNamed(ref).Name() + "@" + pinned
}

// nameAsPinned gives an image that was pulled by digest the name that users wrote, unless a user gave the name to
// another image. The name serves lists of images and placement by image; nothing else depends on it.
func (src *imageSource) nameAsPinned(ctx context.Context, name string, img client.Image) {
	named := metadata.Image{Name: name, Target: img.Target(), Labels: src.index.labelsOfPulled(ctx, name)}
	_, err := src.client.ImageService().Create(ctx, named)
	if isA(err, errdefs.IsAlreadyExists) {
		var old metadata.Image
		if old, err = src.client.ImageService().Get(ctx, name); err == nil && old.Labels[labelKeep] == "" &&
			old.Labels[labelUsed] != "" {
			_, err = src.client.ImageService().Update(ctx, named, "target", "labels."+labelUsed)
		}
	}
	if err != nil {
		src.cfg.Logger.Debug("an image did not get its name", "image", name, "error", err)
	}
}

func (src *imageSource) unpack(ctx context.Context, img client.Image, progress func(string)) error {
	done, err := img.IsUnpacked(ctx, src.cfg.Snapshotter)
	if err == nil && !done {
		progress("unpacking " + img.Name())
		err = img.Unpack(ctx, src.cfg.Snapshotter)
	}
	return failed(ctx, "unpack "+img.Name(), err)
}

// quiet keeps containerd's client from writing to this process's standard error: what it would say is in the
// errors that it returns.
func quiet(ctx context.Context) context.Context {
	silent := logrus.New()
	silent.SetOutput(io.Discard)
	return log.WithLogger(ctx, logrus.NewEntry(silent))
}

// configCache keeps the configurations of images, which never change under their digest.
type configCache struct {
	mu   sync.Mutex
	seen map[string]ocispec.ImageConfig
}

// maxConfigs bounds the cache.
const maxConfigs = 256

// config returns an image's configuration.
func (src *imageSource) config(ctx context.Context, img client.Image) (ocispec.ImageConfig, error) {
	key := img.Target().Digest.String()
	src.configs.mu.Lock()
	cfg, ok := src.configs.seen[key]
	src.configs.mu.Unlock()
	if ok {
		return cfg, nil
	}
	desc, err := img.Config(ctx)
	if err != nil {
		return cfg, failed(ctx, "read image", err)
	}
	b, err := content.ReadBlob(ctx, img.ContentStore(), desc)
	if err != nil {
		return cfg, failed(ctx, "read image", err)
	}
	if cfg, err = decodeConfig(img.Name(), b); err != nil {
		return cfg, err
	}
	src.configs.mu.Lock()
	defer src.configs.mu.Unlock()
	if src.configs.seen == nil || len(src.configs.seen) >= maxConfigs {
		src.configs.seen = map[string]ocispec.ImageConfig{}
	}
	src.configs.seen[key] = cfg
	return cfg, nil
}

// decodeConfig reads an image's configuration, which is whatever its maker wrote.
func decodeConfig(name string, b []byte) (ocispec.ImageConfig, error) {
	var whole ocispec.Image
	if err := json.Unmarshal(b, &whole); err != nil {
		return ocispec.ImageConfig{}, fmt.Errorf("read configuration of image %s: %w", name, err)
	}
	return whole.Config, nil
}

// LoadImages implements executor.ImageStore.
func (src *imageSource) LoadImages(ctx context.Context, archive io.Reader) ([]executor.Image, error) {
	ctx = src.in(ctx)
	ctx, done, err := src.client.WithLease(ctx)
	if err != nil {
		return nil, unreadable(ctx, err)
	}
	defer func() { _ = done(context.WithoutCancel(ctx)) }()
	normal := func(name string) string {
		if n, err := normalName(name); err == nil {
			return n
		}
		return name
	}
	loaded, err := src.client.Import(ctx, archive, client.WithImageRefTranslator(normal),
		client.WithAllPlatforms(false),
		client.WithImageLabels(map[string]string{
			labelKeep: keepLoaded,
			labelUsed: strconv.FormatInt(time.Now().Unix(), 10),
		}))
	if err != nil {
		return nil, unreadable(ctx, err)
	}
	images := make([]executor.Image, 0, len(loaded))
	for _, i := range loaded {
		img := client.NewImage(src.client, i)
		if err := src.unpack(ctx, img, func(string) {}); err != nil {
			return nil, err
		}
		images = append(images, src.index.describe(ctx, img))
	}
	return sorted(images), nil
}

func sorted(images []executor.Image) []executor.Image {
	slices.SortFunc(images, func(a, b executor.Image) int { return strings.Compare(a.Name, b.Name) })
	return images
}

// PullImage implements executor.ImageKeeper.
func (src *imageSource) PullImage(ctx context.Context, p executor.ImagePull, progress func(string)) (executor.Image,
	error,
) {
	ctx = src.in(ctx)
	name, err := normalName(p.Name)
	if err != nil {
		return executor.Image{}, err
	}
	if progress == nil {
		progress = func(string) {}
	}
	defer src.index.cache.hold(name)()
	img, err := src.pullShared(ctx, name, name, p.Credentials, progress)
	if err != nil {
		return executor.Image{}, err
	}
	if p.Keep {
		pinned := metadata.Image{Name: name, Labels: map[string]string{labelKeep: keepPinned}}
		if _, err := src.client.ImageService().Update(ctx, pinned, "labels."+labelKeep); err != nil {
			return executor.Image{}, failed(ctx, "pin image", err)
		}
	}
	return src.index.describe(ctx, img), nil
}

// ResolveImage implements executor.ImageKeeper.
func (src *imageSource) ResolveImage(ctx context.Context, image string,
	credentials func(string) (string, string),
) (string, error) {
	ctx = src.in(ctx)
	name, err := normalName(image)
	if err != nil {
		return "", err
	}
	if img, err := src.client.ImageService().Get(ctx, name); err == nil && (img.Labels[labelKeep] == keepLoaded ||
		img.Labels[labelUsed] == "" && !src.index.fromRegistry(ctx, img.Target.Digest)) {
		return "", nil
	}
	return src.resolveDigest(ctx, name, credentials)
}
