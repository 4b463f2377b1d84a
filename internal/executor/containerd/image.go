package containerd

import (
	"cmp"
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
)

// Image names are normal in containerd: "redis" is "docker.io/library/redis:latest".
func normalName(name string) (string, error) {
	ref, err := reference.ParseDockerRef(name)
	if err != nil {
		return "", fmt.Errorf("image: %q is not the name of an image: %w", name, err)
	}
	return ref.String(), nil
}

// image returns an unpacked image, pulled if the policy says so. Nothing removes the image until release is called.
func (e *Executor) image(ctx context.Context, spec *executor.Spec, progress func(string)) (_ client.Image,
	release func(), err error,
) {
	name, err := normalName(spec.Container.Image)
	if err != nil {
		return nil, nil, err
	}
	pinned := spec.Container.Pinned()
	release = e.cache.hold(name, pinned)
	defer func() {
		if err != nil {
			release()
		}
	}()
	img, err := e.held(ctx, name, pinned, spec.Container.Pull)
	if img != nil || err != nil {
		if err == nil {
			e.noteUse(ctx, img.Name())
			err = e.unpack(ctx, img, progress)
		}
		return img, release, err
	}
	if pinned == "" {
		img, err = e.pulled(ctx, name, name, spec.Credentials, progress)
		return img, release, err
	}
	img, err = e.pulled(ctx, pinnedName(name, pinned), name+"@"+pinned[:min(len(pinned), len("sha256:")+12)],
		spec.Credentials, progress)
	if err == nil {
		e.nameAsPinned(ctx, name, img)
	}
	return img, release, err
}

// held returns a usable local image, or nil if it must be pulled. With a pinned digest the image has that digest.
func (e *Executor) held(ctx context.Context, name, pinned string, policy cluster.PullPolicy) (client.Image, error) {
	if policy == cluster.PullAlways {
		return nil, nil //nolint:nilnil // see above
	}
	names := []string{name}
	if pinned != "" {
		names = append(names, pinnedName(name, pinned))
	}
	for _, n := range names {
		img, err := e.client.GetImage(ctx, n)
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
func (e *Executor) nameAsPinned(ctx context.Context, name string, img client.Image) {
	named := metadata.Image{Name: name, Target: img.Target(), Labels: e.labelsOfPulled(ctx, name)}
	_, err := e.client.ImageService().Create(ctx, named)
	if isA(err, errdefs.IsAlreadyExists) {
		var old metadata.Image
		if old, err = e.client.ImageService().Get(ctx, name); err == nil && old.Labels[labelKeep] == "" &&
			old.Labels[labelUsed] != "" {
			_, err = e.client.ImageService().Update(ctx, named, "target", "labels."+labelUsed)
		}
	}
	if err != nil {
		e.cfg.Logger.Debug("an image did not get its name", "image", name, "error", err)
	}
}

func (e *Executor) unpack(ctx context.Context, img client.Image, progress func(string)) error {
	done, err := img.IsUnpacked(ctx, e.cfg.Snapshotter)
	if err == nil && !done {
		progress("unpacking " + img.Name())
		err = img.Unpack(ctx, e.cfg.Snapshotter)
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
func (e *Executor) config(ctx context.Context, img client.Image) (ocispec.ImageConfig, error) {
	key := img.Target().Digest.String()
	e.configs.mu.Lock()
	cfg, ok := e.configs.seen[key]
	e.configs.mu.Unlock()
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
	e.configs.mu.Lock()
	defer e.configs.mu.Unlock()
	if e.configs.seen == nil || len(e.configs.seen) >= maxConfigs {
		e.configs.seen = map[string]ocispec.ImageConfig{}
	}
	e.configs.seen[key] = cfg
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
func (e *Executor) LoadImages(ctx context.Context, archive io.Reader) ([]executor.Image, error) {
	ctx = e.in(ctx)
	ctx, done, err := e.client.WithLease(ctx)
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
	loaded, err := e.client.Import(ctx, archive, client.WithImageRefTranslator(normal), client.WithAllPlatforms(false),
		client.WithImageLabels(map[string]string{
			labelKeep: keepLoaded,
			labelUsed: strconv.FormatInt(time.Now().Unix(), 10),
		}))
	if err != nil {
		return nil, unreadable(ctx, err)
	}
	images := make([]executor.Image, 0, len(loaded))
	for _, i := range loaded {
		img := client.NewImage(e.client, i)
		if err := e.unpack(ctx, img, func(string) {}); err != nil {
			return nil, err
		}
		images = append(images, e.describe(ctx, img))
	}
	return sorted(images), nil
}

// ImageNames implements executor.ImageNamer.
func (e *Executor) ImageNames(ctx context.Context) ([]string, error) {
	ctx = e.in(ctx)
	all, err := e.client.ImageService().List(ctx)
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

func (e *Executor) describe(ctx context.Context, img client.Image) executor.Image {
	h := &holding{names: []string{img.Name()}, digest: img.Target().Digest.String(), target: img.Target()}
	e.measure(ctx, h)
	return executor.Image{Name: img.Name(), Digest: h.digest, Size: cluster.Bytes(h.content)}
}

func sorted(images []executor.Image) []executor.Image {
	slices.SortFunc(images, func(a, b executor.Image) int { return strings.Compare(a.Name, b.Name) })
	return images
}
