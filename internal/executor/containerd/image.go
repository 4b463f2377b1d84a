package containerd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	metadata "github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
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

// image returns an unpacked image, pulled where the policy says so.
func (e *Executor) image(ctx context.Context, spec *executor.Spec, progress func(string)) (client.Image, error) {
	name, err := normalName(spec.Container.Image)
	if err != nil {
		return nil, err
	}
	policy := spec.Container.Pull
	if policy != cluster.PullAlways {
		img, err := e.client.GetImage(ctx, name)
		switch {
		case err == nil:
			return img, e.unpack(ctx, img, progress)
		case !isA(err, errdefs.IsNotFound):
			return nil, failed(ctx, "find image", err)
		case policy == cluster.PullNever:
			return nil, fmt.Errorf("image: %s is not on the node, and pull is %q", name, policy)
		}
	}
	progress("pulling " + name)
	opts := []client.RemoteOpt{client.WithPullUnpack, client.WithResolver(resolver(spec.Credentials))}
	if e.cfg.Snapshotter != "" {
		opts = append(opts, client.WithPullSnapshotter(e.cfg.Snapshotter))
	}
	img, err := e.client.Pull(quiet(ctx), name, opts...)
	if err != nil {
		return nil, failed(ctx, "pull "+name, err)
	}
	return img, nil
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

// resolver speaks https, or plain http to this machine.
func resolver(credentials func(string) (string, string)) remotes.Resolver {
	authorizer := docker.NewDockerAuthorizer(docker.WithAuthCreds(func(registry string) (string, string, error) {
		if credentials == nil {
			return "", "", nil
		}
		if registry == "registry-1.docker.io" {
			registry = "docker.io" // as users write it
		}
		user, secret := credentials(registry)
		return user, secret, nil
	}))
	return docker.NewResolver(docker.ResolverOptions{Hosts: docker.ConfigureDefaultRegistries(
		docker.WithPlainHTTP(docker.MatchLocalhost), docker.WithAuthorizer(authorizer),
	)})
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
		return nil, failed(ctx, "load images", err)
	}
	defer func() { _ = done(context.WithoutCancel(ctx)) }()
	normal := func(name string) string {
		if n, err := normalName(name); err == nil {
			return n
		}
		return name
	}
	loaded, err := e.client.Import(ctx, archive, client.WithImageRefTranslator(normal), client.WithAllPlatforms(false))
	if err != nil {
		return nil, failed(ctx, "load images", err)
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

// Images implements executor.ImageStore.
func (e *Executor) Images(ctx context.Context) ([]executor.Image, error) {
	ctx = e.in(ctx)
	all, err := e.client.ListImages(ctx)
	if err != nil {
		return nil, failed(ctx, "list images", err)
	}
	images := make([]executor.Image, 0, len(all))
	for _, img := range all {
		images = append(images, e.describe(ctx, img))
	}
	return sorted(images), nil
}

func (e *Executor) describe(ctx context.Context, img client.Image) executor.Image {
	size, err := img.Size(ctx)
	if err != nil {
		size = 0 // of another platform, or not whole
	}
	return executor.Image{Name: img.Name(), Digest: img.Target().Digest.String(), Size: cluster.Bytes(size)}
}

func sorted(images []executor.Image) []executor.Image {
	slices.SortFunc(images, func(a, b executor.Image) int { return strings.Compare(a.Name, b.Name) })
	return images
}
