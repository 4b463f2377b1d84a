package artifact_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/berthd/berth/internal/agent/artifact"
	"github.com/berthd/berth/internal/cluster"
)

func tarOf(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range headers {
		h := &headers[i]
		if h.Mode == 0 && h.Typeflag != tar.TypeXGlobalHeader {
			h.Mode = 0o600
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(bytes.Repeat([]byte("x"), int(h.Size))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zipOf(t *testing.T, files map[string]string, links map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	add := func(name, content string, mode fs.FileMode) {
		h := &zip.FileHeader{Name: name, Method: zip.Deflate}
		h.SetMode(mode)
		f, err := w.CreateHeader(h)
		if err == nil {
			_, err = f.Write([]byte(content))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range files {
		add(name, content, 0o755)
	}
	for name, to := range links {
		add(name, to, fs.ModeSymlink|0o777)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(b)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zstandard(t *testing.T, b []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(b, nil)
}

// tree returns the content of a folder.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		text := info.Mode().String()
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(name)
			if err != nil {
				return err
			}
			text = "-> " + to
		case info.Mode().IsRegular():
			b, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			text += " " + string(b)
		}
		all[rel] = text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Archives of each format become their content, readable by all users, also with missing folders, several tops and hard
// links.
func TestUnpack(t *testing.T) {
	t.Parallel()
	plain := tarOf(t,
		tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "made by hand"}},
		tar.Header{Name: "bin/tool", Size: 2, Mode: 0o4700},
		tar.Header{Name: "./README", Size: 1},
		tar.Header{Name: "lib/deep/a", Typeflag: tar.TypeSymlink, Linkname: "../../bin/tool"},
		tar.Header{Name: "lib/b", Typeflag: tar.TypeLink, Linkname: "bin/tool"},
		tar.Header{Name: "bin/", Typeflag: tar.TypeDir, Mode: 0o700},
	)
	want := map[string]string{
		".": "drwxr-xr-x", "bin": "drwxr-xr-x", "bin/tool": "-rwxr-xr-x xx", "README": "-rw-r--r-- x",
		"lib": "drwxr-xr-x", "lib/deep": "drwxr-xr-x", "lib/deep/a": "-> ../../bin/tool", "lib/b": "-> ../bin/tool",
	}
	for name, tc := range map[string]struct {
		archive []byte
		want    map[string]string
	}{
		"tar": {plain, want}, "tar.gz": {gzipped(t, plain), want}, "tar.zst": {zstandard(t, plain), want},
		"zip": {
			zipOf(t, map[string]string{"bin/tool": "x"}, map[string]string{"lib/a": "../bin/tool"}),
			map[string]string{
				".": "drwxr-xr-x", "bin": "drwxr-xr-x", "bin/tool": "-rwxr-xr-x x", "lib": "drwxr-xr-x",
				"lib/a": "-> ../bin/tool",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, s := newSite(t, tc.archive), newStore(t)
			path, err := s.Get(t.Context(),
				&cluster.Artifact{Source: srv.URL, Checksum: sha256Of(tc.archive), Path: "/opt/tool", Unpack: true},
				nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, tree(t, path)); diff != "" {
				t.Errorf("tree (-want +got):\n%s", diff)
			}
		})
	}
}

// Malicious archives write nothing outside of their folder, stay within the limits, and are not kept.
func TestUnpackAttacks(t *testing.T) {
	t.Parallel()
	few := func(c *artifact.Config) { c.MaxUnpacked, c.MaxEntries = 10*cluster.KiB, 20 }
	deep := strings.Repeat("d/", 30) + "f"
	lying := zipOf(t, map[string]string{"bomb": strings.Repeat("\x00", 1<<20)}, nil)
	// The archive's directory gets a wrong, small size.
	for i := range len(lying) - 4 {
		if bytes.Equal(lying[i:i+4], []byte{0, 0, 16, 0}) {
			copy(lying[i:], []byte{100, 0, 0, 0})
		}
	}
	for name, tc := range map[string]struct {
		archive []byte
		words   string
	}{
		"a path out":       {tarOf(t, tar.Header{Name: "../evil", Size: 1}), "points outside"},
		"a deep path out":  {tarOf(t, tar.Header{Name: "a/../../evil", Size: 1}), "points outside"},
		"an absolute path": {tarOf(t, tar.Header{Name: "/evil", Size: 1}), "points outside"},
		"a zip path out":   {zipOf(t, map[string]string{"../evil": "x"}, nil), "points outside"},
		"an absolute link": {
			tarOf(t, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/etc"}),
			"points outside",
		},
		"a link out": {
			tarOf(t, tar.Header{Name: "a/l", Typeflag: tar.TypeSymlink, Linkname: "../../x"}),
			"points outside",
		},
		"a zip link out": {zipOf(t, nil, map[string]string{"l": "../x"}), "points outside"},
		"a hard link out": {
			tarOf(t, tar.Header{Name: "l", Typeflag: tar.TypeLink, Linkname: "../x"}),
			"points outside",
		},
		"a hard link to /": {
			tarOf(t, tar.Header{Name: "l", Typeflag: tar.TypeLink, Linkname: "/etc/shadow"}),
			"points outside",
		},
		"through a link": {tarOf(t, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "."},
			tar.Header{Name: "l/evil", Size: 1}), "in place of the folder"},
		"links in a row": {tarOf(t, tar.Header{Name: "a/b", Typeflag: tar.TypeSymlink, Linkname: "."},
			tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "a/b/../.."}), "leads out"},
		"a device": {
			tarOf(t, tar.Header{Name: "sda", Typeflag: tar.TypeBlock, Devmajor: 8}),
			"not a file, folder or link",
		},
		"a pipe": {tarOf(t, tar.Header{Name: "p", Typeflag: tar.TypeFifo}), "not a file, folder or link"},
		"too much": {
			tarOf(t, tar.Header{Name: "a", Size: 8 << 10}, tar.Header{Name: "b", Size: 3 << 10}),
			"more than 10 KiB",
		},
		"a gzip bomb":       {gzipped(t, tarOf(t, tar.Header{Name: "a", Size: 1 << 20})), "more than 10 KiB"},
		"a zip bomb":        {zipOf(t, map[string]string{"a": strings.Repeat("\x00", 1<<20)}, nil), "more than 10 KiB"},
		"a zip that lies":   {lying, "its length or checksum is wrong"},
		"too many folders":  {tarOf(t, tar.Header{Name: deep, Size: 1}), "more than 20 files"},
		"cut off":           {gzipped(t, tarOf(t, tar.Header{Name: "a", Size: 100}))[:60], ""},
		"not an archive":    {body(100), "not a supported archive"},
		"nothing":           {[]byte("x"), "not a supported archive"},
		"the folder itself": {tarOf(t, tar.Header{Name: ".", Size: 1}), "is not a folder"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, s := newSite(t, tc.archive), newStore(t, few)
			above, err := os.ReadDir(filepath.Dir(s.Dir))
			if err != nil {
				t.Fatal(err)
			}
			path, err := s.Get(t.Context(),
				&cluster.Artifact{Source: srv.URL, Checksum: sha256Of(tc.archive), Path: "/opt/tool", Unpack: true},
				nil)
			if err == nil || !strings.Contains(err.Error(), tc.words) {
				t.Errorf("got %s, %v; want it to say %q", path, err, tc.words)
			}
			for _, dir := range []string{"kept", "coming"} {
				if left, _ := os.ReadDir(filepath.Join(s.Dir, dir)); len(left) > 0 {
					t.Errorf("left in %s: %v", dir, left)
				}
			}
			if now, err := os.ReadDir(filepath.Dir(s.Dir)); err != nil || len(now) != len(above) {
				t.Errorf("beside the store: %v, %v", now, err)
			}
		})
	}
}

// FuzzUnpack: no archive writes anything outside of its folder.
func FuzzUnpack(f *testing.F) {
	var t testing.T
	f.Add(tarOf(&t, tar.Header{Name: "a/b", Size: 3},
		tar.Header{Name: "a/l", Typeflag: tar.TypeSymlink, Linkname: "b"}))
	f.Add(tarOf(&t, tar.Header{Name: "../a", Size: 3}))
	f.Add(zipOf(&t, map[string]string{"a": "x"}, map[string]string{"l": "a"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		file := filepath.Join(dir, "archive")
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s := artifact.New(artifact.Config{Dir: filepath.Join(dir, "store"), MaxUnpacked: cluster.MiB, MaxEntries: 100})
		err := s.Unpack(t.Context(), file, filepath.Join(dir, "out"))
		left, readErr := os.ReadDir(dir)
		if readErr != nil || len(left) > 2 {
			t.Fatalf("beside the folder: %v, %v", left, readErr)
		}
		if err != nil {
			return
		}
		for name, text := range tree(t, filepath.Join(dir, "out")) {
			if to, link := strings.CutPrefix(text, "-> "); link &&
				(filepath.IsAbs(to) || !filepath.IsLocal(filepath.Join(filepath.Dir(name), to))) {
				t.Errorf("%s leads to %s", name, to)
			}
		}
	})
}
