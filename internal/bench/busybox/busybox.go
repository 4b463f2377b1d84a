// Package busybox makes an image for benchmarks of containers.
package busybox

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Image writes an archive of an image into a folder and opens it. The image has the given name and holds the machine's
// static busybox as /bin/busybox and empty folders. The caller closes the file.
func Image(dir, image string) (*os.File, error) {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return nil, fmt.Errorf("a static busybox is needed (apt-get install busybox-static): %w", err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	for _, d := range []string{"bin", "flag", "tmp"} {
		if err := w.WriteHeader(&tar.Header{Name: d + "/", Typeflag: tar.TypeDir, Mode: 0o755}); err != nil {
			return nil, err
		}
	}
	if err := w.WriteHeader(&tar.Header{Name: "bin/busybox", Mode: 0o755, Size: int64(len(program))}); err != nil {
		return nil, err
	}
	if _, err := w.Write(program); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files.Bytes())), nil
	})
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", "amd64"
	config.Config.Env = []string{"PATH=/bin"}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return nil, err
	}
	tag, err := name.NewTag(image)
	if err != nil {
		return nil, err
	}
	archive := filepath.Join(dir, "image.tar")
	if err := tarball.WriteToFile(archive, tag, img); err != nil {
		return nil, err
	}
	return os.Open(archive)
}
