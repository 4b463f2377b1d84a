package main

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// written returns the folder of a layout with two small binaries.
func written(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	args := []string{"-out", filepath.Join(t.TempDir(), "layout"), "-version", "1.2.3", "-epoch", "1700000000"}
	for _, arch := range []string{"amd64", "arm64"} {
		file := filepath.Join(bin, arch)
		if err := os.WriteFile(file, []byte("binary for "+arch), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, arch+"="+file)
	}
	if err := run(args, io.Discard); err != nil {
		t.Fatal(err)
	}
	return args[1]
}

// content returns the files of a folder.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		files[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestSameBinariesGiveTheSameBytes(t *testing.T) {
	if diff := cmp.Diff(content(t, written(t)), content(t, written(t))); diff != "" {
		t.Errorf("two layouts of the same binaries differ (-first +second):\n%s", diff)
	}
}

func TestIndexHasAnImageForEachArchitecture(t *testing.T) {
	index, err := layout.ImageIndexFromPath(written(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Errorf("the index is not valid: %v", err)
	}
	top, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(top.Manifests) != 1 || top.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "1.2.3" {
		t.Fatalf("the layout has %+v, want one index named 1.2.3", top.Manifests)
	}
	release, err := index.ImageIndex(top.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	images, err := release.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range images.Manifests {
		image, err := release.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Architecture != m.Platform.Architecture {
			t.Errorf("the image for %s says %s", m.Platform.Architecture, config.Architecture)
		}
		got = append(got, m.Platform.Architecture+": "+binaryOf(t, image))
	}
	want := []string{"amd64: binary for amd64", "arm64: binary for arm64"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("binaries (-want +got):\n%s", diff)
	}
}

// binaryOf returns the content of the image's binary.
func binaryOf(t *testing.T, image v1.Image) string {
	t.Helper()
	files := mutate.Extract(image)
	defer files.Close()
	r := tar.NewReader(files)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			t.Fatal("the image has no usr/bin/berth")
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Name != "usr/bin/berth" {
			continue
		}
		if h.Mode != 0o755 || h.ModTime.Unix() != 1700000000 {
			t.Errorf("the binary has mode %o and time %v", h.Mode, h.ModTime)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
}

func TestWrongArguments(t *testing.T) {
	for _, args := range [][]string{
		nil,
		{"-out", "x", "-version", "1"},
		{"-out", "x", "-version", "1", "amd64"},
		{"-out", "x", "-version", "1", "amd64=/missing"},
	} {
		if err := run(args, io.Discard); err == nil {
			t.Errorf("run(%q) succeeded", args)
		}
	}
}
