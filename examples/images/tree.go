package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// tree is the content of an image: its files by their paths, without a leading slash.
// The directories above them are implied. All belongs to root, at time zero.
type tree map[string]file

// file is one entry of a tree.
type file struct {
	mode    int64
	data    []byte
	link    string // target of a symbolic link
	folder  bool
	ownedBy int // user and group
}

// base adds what programs expect of any system.
func (t tree) base() {
	t["etc/passwd"] = file{
		mode: 0o644,
		data: []byte("root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n"),
	}
	t["etc/group"] = file{mode: 0o644, data: []byte("root:x:0:\nnogroup:x:65534:\n")}
	t["tmp"] = file{mode: 0o1777, folder: true}
}

// addFile copies a file of this machine with its mode.
func (t tree) addFile(name, from string) error {
	info, err := os.Stat(from)
	if err != nil {
		return fmt.Errorf("read a file: %w", err)
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("read a file: %w", err)
	}
	mode := int64(0o644)
	if info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	t[name] = file{mode: mode, data: data}
	return nil
}

// image returns the image of a single layer that holds the tree.
func (t tree) image(config v1.Config) (v1.Image, error) {
	var layerTar bytes.Buffer
	if err := t.write(&layerTar); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(layerTar.Bytes())), nil
	})
	if err != nil {
		return nil, fmt.Errorf("make the layer: %w", err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, fmt.Errorf("append the layer: %w", err)
	}
	config.Env = append([]string{"PATH=/usr/bin:/bin"}, config.Env...)
	image, err = mutate.ConfigFile(image, withConfig(image, config))
	if err != nil {
		return nil, fmt.Errorf("set the configuration: %w", err)
	}
	return image, nil
}

// withConfig returns the image's configuration file with the platform and the config.
func withConfig(image v1.Image, config v1.Config) *v1.ConfigFile {
	file, err := image.ConfigFile()
	if err != nil {
		file = &v1.ConfigFile{}
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", runtime.GOARCH
	file.Config = config
	return file
}

// write writes the tree as a tar stream, in the order of names, directories first.
func (t tree) write(w io.Writer) error {
	all := maps.Clone(t)
	for name := range t {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, ok := all[dir]; !ok {
				all[dir] = file{mode: 0o755, folder: true}
			}
		}
	}
	tw := tar.NewWriter(w)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f := all[name]
		head := &tar.Header{
			Name: name, Mode: f.mode, Size: int64(len(f.data)), ModTime: time.Unix(0, 0),
			Uid: f.ownedBy, Gid: f.ownedBy, Typeflag: tar.TypeReg, Format: tar.FormatPAX,
		}
		switch {
		case f.folder:
			head.Typeflag, head.Name = tar.TypeDir, name+"/"
		case f.link != "":
			head.Typeflag, head.Linkname = tar.TypeSymlink, f.link
		}
		if err := tw.WriteHeader(head); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if _, err := tw.Write(f.data); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	if err := tw.Close(); err != nil {
		return fmt.Errorf("end the layer: %w", err)
	}
	return nil
}
