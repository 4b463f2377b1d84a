// Command image writes the OCI image of a release:
//
//	go run ./packaging/image -version 0.1.0 -epoch 1795768027 -out DIR amd64=FILE arm64=FILE
//
// DIR becomes an OCI image layout with one index, which has an image for each architecture. An image holds the binary
// and empty folders for its data and socket, and nothing else. The same binaries give the same bytes.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	err := run(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.SetOutput(stderr)
	out := flags.String("out", "", "`DIR` of the image layout; made if missing")
	version := flags.String("version", "", "the version of the release")
	epoch := flags.Int64("epoch", 0, "the time of all files, in `SECONDS` since 1970")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("parse flags: %w", err)
	}
	if *out == "" || *version == "" || flags.NArg() == 0 {
		return errors.New("want -out DIR, -version VERSION and ARCHITECTURE=FILE for each binary")
	}
	made := time.Unix(*epoch, 0).UTC()
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arg := range flags.Args() {
		arch, file, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("%q: want ARCHITECTURE=FILE", arg)
		}
		binary, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read the binary for %s: %w", arch, err)
		}
		image, err := newImage(binary, arch, *version, made)
		if err != nil {
			return fmt.Errorf("make the image for %s: %w", arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	dir, err := layout.Write(*out, empty.Index)
	if err != nil {
		return fmt.Errorf("write the image layout: %w", err)
	}
	// Tools that load a layout take the name of the image from this annotation.
	name := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": *version})
	if err := dir.AppendIndex(index, name); err != nil {
		return fmt.Errorf("write the image layout: %w", err)
	}
	return nil
}

// newImage returns the image of one architecture.
func newImage(binary []byte, arch, version string, made time.Time) (v1.Image, error) {
	files, err := layer(binary, made)
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil }
	content, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		types.OCIConfigJSON), mutate.Addendum{
		Layer:   content,
		History: v1.History{Created: v1.Time{Time: made}, CreatedBy: "berth " + version},
	})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: made}
	config.Config = v1.Config{
		Entrypoint: []string{"/usr/bin/berth"},
		Cmd:        []string{"server"},
		Env:        []string{"PATH=/usr/bin"},
		Volumes:    map[string]struct{}{"/var/lib/berth": {}},
		Labels: map[string]string{
			"org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.source":   "https://github.com/berthd/berth",
			"org.opencontainers.image.title":    "berth",
			"org.opencontainers.image.version":  version,
		},
	}
	return mutate.ConfigFile(image, config)
}

// layer returns the files of the image as a tar archive.
func layer(binary []byte, made time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	dirs := []string{"run/", "run/berth/", "tmp/", "usr/", "usr/bin/", "var/", "var/lib/", "var/lib/berth/"}
	for _, dir := range dirs {
		mode := int64(0o755)
		if dir == "tmp/" {
			mode = 0o1777
		}
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: mode, ModTime: made})
		if err != nil {
			return nil, err
		}
	}
	header := &tar.Header{Name: "usr/bin/berth", Mode: 0o755, Size: int64(len(binary)), ModTime: made}
	if err := w.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := w.Write(binary); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
