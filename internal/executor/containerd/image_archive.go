package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	metadata "github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/berthd/berth/internal/executor"
)

// archiveDomain begins the names of images from archives on the node. No registry has that name, so such an image never
// stands for one of a registry, or the other way round.
const archiveDomain = "archive.berth"

// archivedName returns the name of the image of an archive. Images of one archive have one name, and others another.
func archivedName(image, checksum string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", fmt.Errorf("image: %q is not the name of an image: %w", image, err)
	}
	_, digits, _ := strings.Cut(checksum, ":")
	return archiveDomain + "/" + reference.Path(named) + ":" + digits, nil
}

// archivedImage returns the unpacked image of an archive. It opens the archive only if the node lacks the image.
// Nothing removes the image until release is called.
func (src *imageSource) archivedImage(ctx context.Context, spec *executor.Spec, progress func(string)) (_ client.Image,
	release func(), err error,
) {
	name, err := archivedName(spec.Container.Image, spec.ImageArchive.Checksum)
	if err != nil {
		return nil, nil, err
	}
	held := src.index.cache.hold(name)
	defer func() {
		if err != nil {
			held()
		}
	}()
	unlock, err := src.importing.Lock(ctx, name) // containers of one image import it once
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	img, err := src.client.GetImage(ctx, name)
	switch {
	case err == nil:
		src.index.noteUse(ctx, name)
	case !isA(err, errdefs.IsNotFound):
		return nil, nil, failed(ctx, "find image", err)
	default:
		if img, err = src.importArchive(ctx, spec, name, progress); err != nil {
			return nil, nil, err
		}
	}
	return img, held, src.unpack(ctx, img, progress)
}

// importArchive reads the image of an archive into containerd under a name.
func (src *imageSource) importArchive(ctx context.Context, spec *executor.Spec, name string,
	progress func(string),
) (client.Image, error) {
	body, err := spec.ImageArchive.Open(ctx, progress)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	ctx, done, err := src.client.WithLease(ctx)
	if err != nil {
		return nil, failed(ctx, "read the archive of image "+spec.Container.Image, err)
	}
	defer func() { _ = done(context.WithoutCancel(ctx)) }()
	progress("reading the archive of " + spec.Container.Image)
	fault := func(err error) error {
		return fmt.Errorf("image %s: its archive: %w", spec.Container.Image, err)
	}
	store := src.client.ContentStore()
	index, err := archive.ImportIndex(ctx, store, body)
	if err != nil {
		return nil, fault(unreadable(ctx, err))
	}
	target, err := findImage(ctx, store, index, spec.Container.Image)
	if err != nil {
		return nil, fault(err)
	}
	record := metadata.Image{Name: name, Target: target, Labels: src.index.labelsOfPulled(ctx, name)}
	if err := checkMachine(ctx, store, client.NewImage(src.client, record)); err != nil {
		return nil, fault(err)
	}
	keep := metadata.SetChildrenLabels(store, presentChildren(store))
	if err := metadata.Walk(ctx, keep, target); err != nil {
		return nil, fault(failed(ctx, "read it", err))
	}
	created, err := src.client.ImageService().Create(ctx, record)
	if err != nil {
		return nil, fault(failed(ctx, "name it", err))
	}
	return client.NewImage(src.client, created), nil
}

// presentChildren returns the handler of the parts of an image. An archive may lack the parts for other machines.
func presentChildren(store content.Store) metadata.HandlerFunc {
	return func(ctx context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		children, err := metadata.Children(ctx, store, d)
		if errdefs.IsNotFound(err) {
			return nil, metadata.ErrSkipDesc
		}
		return slices.DeleteFunc(children, func(c ocispec.Descriptor) bool {
			_, err := store.Info(ctx, c.Digest)
			return errdefs.IsNotFound(err)
		}), err
	}
}

// errOtherMachines is the fault of an archive without the image for this kind of machine.
var errOtherMachines = errors.New("it has the image for other kinds of machines only")

// checkMachine checks that an image is there for this machine. containerd finds the right one of several, but runs a
// single one on any machine.
func checkMachine(ctx context.Context, store content.Store, img client.Image) error {
	config, err := img.Config(ctx)
	if isA(err, errdefs.IsNotFound) && strings.Contains(err.Error(), "no match for platform") {
		return errOtherMachines
	}
	var machine ocispec.Platform
	if err == nil {
		machine, err = metadata.ConfigPlatform(ctx, store, config)
	}
	switch {
	case isA(err, errdefs.IsNotFound):
		return fmt.Errorf("it lacks a part, or that part was changed: %w", err)
	case err != nil:
		return failed(ctx, "read it", err)
	case metadata.IsManifestType(img.Target().MediaType) && machine.Architecture != "" &&
		(machine.Architecture != runtime.GOARCH || machine.OS != "linux"):
		return errOtherMachines
	}
	return nil
}

// findImage reads the index of an archive and returns its image, as chooseImage does.
func findImage(ctx context.Context, store content.Store, at ocispec.Descriptor, image string) (ocispec.Descriptor,
	error,
) {
	raw, err := content.ReadBlob(ctx, store, at)
	if err != nil {
		return ocispec.Descriptor{}, failed(ctx, "read it", err)
	}
	var index ocispec.Index
	if err := json.Unmarshal(raw, &index); err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("read its index: %w", err)
	}
	return chooseImage(at, index.Manifests, image)
}

// chooseImage returns the image of a list: the one with the name, or the only one. The list is an image as a whole if
// each entry is the image for another kind of machine.
func chooseImage(list ocispec.Descriptor, entries []ocispec.Descriptor, image string) (ocispec.Descriptor, error) {
	want, err := normalName(image)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	var images []ocispec.Descriptor
	var names []string
	for _, m := range entries {
		name := m.Annotations[metadata.AnnotationImageName]
		if name == "" {
			name = m.Annotations[ocispec.AnnotationRefName]
		}
		if normal, err := normalName(name); err == nil && normal == want {
			return m, nil
		}
		if m.Annotations["vnd.docker.reference.type"] != "" { // of an attestation
			continue
		}
		if !slices.ContainsFunc(images, func(d ocispec.Descriptor) bool { return d.Digest == m.Digest }) {
			images = append(images, m)
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	switch {
	case len(images) == 0:
		return ocispec.Descriptor{}, errors.New("it holds no image")
	case len(images) == 1:
		return images[0], nil
	case len(names) == 1 && !slices.ContainsFunc(images, func(d ocispec.Descriptor) bool { return d.Platform == nil }):
		return list, nil // one image for several kinds of machines
	}
	return ocispec.Descriptor{}, fmt.Errorf("it holds %s, and none of them is %s", strings.Join(names, ", "), want)
}
