package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// tree makes files and folders below a folder: "name/ mode", "name mode content", "name -> target".
func tree(t testing.TB, lines ...string) string {
	t.Helper()
	dir := t.TempDir()
	var modes []func() error
	for _, line := range lines {
		name, rest, _ := strings.Cut(line, " ")
		at := filepath.Join(dir, name)
		if to, ok := strings.CutPrefix(rest, "-> "); ok {
			must(t, os.Symlink(to, at))
			continue
		}
		mode, content, _ := strings.Cut(rest, " ")
		var bits uint32
		_, err := fmt.Sscanf(mode, "%o", &bits)
		must(t, err)
		if strings.HasSuffix(name, "/") {
			must(t, os.MkdirAll(at, 0o700))
		} else {
			must(t, os.WriteFile(at, []byte(content), 0o600))
		}
		modes = append(modes, func() error { return os.Chmod(at, fs.FileMode(bits)) })
	}
	for _, m := range slices.Backward(modes) {
		must(t, m())
	}
	return dir
}

// listing lists the content of a folder in the format of tree.
func listing(t testing.TB, dir string) (lines []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil || at == dir {
			return err
		}
		name := strings.TrimPrefix(at, dir+"/")
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			lines = append(lines, fmt.Sprintf("%s/ %o", name, info.Mode().Perm()))
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(at)
			lines = append(lines, name+" -> "+to)
			return err
		default:
			b, err := os.ReadFile(at)
			lines = append(lines, fmt.Sprintf("%s %o %s", name, info.Mode().Perm(), b))
			return err
		}
		return nil
	}))
	return lines
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	must(t, err)
	t.Cleanup(func() { _ = root.Close() })
	return root
}

// carry copies as both ends do.
func carry(t testing.TB, from string, p Packing, to, dest string) error {
	t.Helper()
	p.Root = open(t, from)
	r, w := io.Pipe()
	go func() { _ = w.CloseWithError(Pack(w, p)) }()
	_, err := Unpack(r, open(t, to), dest)
	_ = r.CloseWithError(err)
	return err
}

func TestCopies(t *testing.T) {
	t.Parallel()
	source := []string{
		"abs -> /data/a", "circle -> circle2", "circle2 -> circle", "data/ 755", "data/a 640 one", "data/deep/ 555",
		"data/deep/b 755 two", "data/deep/up -> ../a",
		"data/empty/ 700", "data/side -> deep/b", "empty 600 ", "out -> ../..",
	}
	whole := []string{"a 640 one", "deep/ 555", "deep/b 755 two", "deep/up -> ../a", "empty/ 700", "side -> deep/b"}
	below := func(top string) []string {
		all := []string{top + "/ 755"}
		for _, l := range whole {
			all = append(all, top+"/"+l)
		}
		return all
	}
	for name, c := range map[string]struct {
		path    string
		follow  bool
		there   []string // at the target before
		dest    string
		want    []string
		refused string
	}{
		"a file by its name": {path: "/data/a", dest: "/", want: []string{"a 640 one"}},
		"a file by another":  {path: "data/a", dest: "/x", want: []string{"x 640 one"}},
		"an empty file":      {path: "empty", dest: "/", want: []string{"empty 600 "}},
		"a file over another": {
			path: "/data/a", there: []string{"x 600 a longer one"}, dest: "/x",
			want: []string{"x 640 one"},
		},
		"through a link": {path: "/abs", dest: "/", want: []string{"abs 640 one"}},
		"through a link to the target": {
			path: "/data/a", there: []string{"to/ 755", "l -> /to"}, dest: "/l",
			want: []string{"l -> /to", "to/ 755", "to/a 640 one"},
		},
		"a link that would be left": {
			path: "/data/a", there: []string{"d/ 755", "d/a -> ../x", "x 600 mine"},
			dest: "/d", want: []string{"d/ 755", "d/a 640 one", "x 600 mine"},
		},
		"a folder":                       {path: "/data", dest: "/", want: below("data")},
		"a folder with a slash":          {path: "/data/", dest: "/", want: below("data")},
		"a folder by another name":       {path: "/data", dest: "/new", want: below("new")},
		"a folder by a new one":          {path: "/data", dest: "/new/", want: below("new")},
		"the content of a folder":        {path: "/data/.", dest: "/", want: whole},
		"the content of a folder, again": {path: "/data/.", dest: "/new", want: below("new")},
		"into a folder that is there": {
			path: "/data/deep", there: []string{"deep/ 700", "deep/c 600 kept"}, dest: "/",
			refused: "up points to ../a, which leads",
		},
		"followed": {
			path: "/data/deep", follow: true, there: []string{"deep/ 700", "deep/c 600 kept"}, dest: "/",
			want: []string{"deep/ 700", "deep/b 755 two", "deep/c 600 kept", "deep/up 640 one"},
		},
		"not there":              {path: "/data/z", dest: "/", refused: "/data/z: no such file"},
		"a circle of links":      {path: "/circle", dest: "/", refused: "too many levels"},
		"out of the root":        {path: "/../../etc/passwd", dest: "/", refused: "no such file"},
		"no folder for it":       {path: "/data/a", dest: "/no/x", refused: "the parent folder /no"},
		"no folder of that name": {path: "/data/a", dest: "/no/", refused: "folder does not exist"},
		"a folder over a file": {
			path: "/data", there: []string{"x 600 "}, dest: "/x",
			refused: "a file, but a folder",
		},
		"a folder over a file within": {
			path: "/data", there: []string{"data 600 "}, dest: "/",
			refused: "in place of the folder",
		},
		"a folder over a link": {
			path: "/data", there: []string{"real/ 700", "data -> real"}, dest: "/",
			refused: "in place of the folder",
		},
		"a file over a folder": {
			path: "/data/a", there: []string{"a/ 700"}, dest: "/",
			refused: "in place of the file",
		},
		"a file into a file's contents": {path: "/data/a", there: []string{"x 600 "}, dest: "/x/", refused: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := tree(t, source...), tree(t, c.there...)
			err := carry(t, from, Packing{Path: c.path, Follow: c.follow}, to, c.dest)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("got %v, want a refusal with %q", err, c.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, listing(t, to)); diff != "" {
				t.Errorf("what came (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOtherThings checks that special files are left out and reported, and that reading does not block on them.
func TestOtherThings(t *testing.T) {
	t.Parallel()
	from, to := tree(t, "d/ 755", "d/a 644 one"), tree(t)
	must(t, syscall.Mkfifo(filepath.Join(from, "d", "pipe"), 0o600))
	var left []string
	must(t, carry(t, from, Packing{Path: "/d", LeftOut: func(name, what string) {
		left = append(left, name+" is "+what)
	}}, to, "/"))
	if diff := cmp.Diff([]string{"d/pipe is a named pipe"}, left); diff != "" {
		t.Error(diff)
	}
	if err := carry(t, from, Packing{Path: "/d/pipe"}, to, "/"); err == nil ||
		!strings.Contains(err.Error(), "is a named pipe") {
		t.Errorf("a pipe alone: %v", err)
	}
	must(t, syscall.Mkfifo(filepath.Join(to, "a"), 0o600))
	if err := carry(t, from, Packing{Path: "/d/a"}, to, "/a"); err == nil ||
		!strings.Contains(err.Error(), "named pipe") {
		t.Errorf("into a pipe: %v", err)
	}
}

// TestTimes checks that an archive keeps the times of files.
func TestTimes(t *testing.T) {
	t.Parallel()
	from, to := tree(t, "d/ 755", "d/a 644 one"), tree(t)
	at := time.Date(2020, 2, 3, 4, 5, 6, 7000, time.UTC)
	for _, name := range []string{"d/a", "d"} {
		must(t, os.Chtimes(filepath.Join(from, name), at, at))
	}
	must(t, carry(t, from, Packing{Path: "/d"}, to, "/"))
	for _, name := range []string{"d/a", "d"} {
		info, err := os.Stat(filepath.Join(to, name))
		must(t, err)
		if !info.ModTime().Equal(at) {
			t.Errorf("%s has the time %v, want %v", name, info.ModTime(), at)
		}
	}
}

// entries makes an archive of "name", "name/" and "name -> target".
func entries(t testing.TB, lines ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, line := range lines {
		h := tar.Header{Name: line, Mode: 0o644, Typeflag: tar.TypeReg, Size: 4}
		if name, to, ok := strings.Cut(line, " -> "); ok {
			h = tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeSymlink}
		} else if name, to, ok := strings.Cut(line, " = "); ok {
			h = tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeLink}
		} else if strings.HasSuffix(line, "/") {
			h = tar.Header{Name: line, Mode: 0o755, Typeflag: tar.TypeDir}
		}
		must(t, w.WriteHeader(&h))
		if h.Size > 0 {
			_, err := w.Write([]byte("evil"))
			must(t, err)
		}
	}
	must(t, w.Close())
	return b.Bytes()
}

// evil are archives that try to get out of their target.
var evil = map[string][]string{
	"up":                           {"../x"},
	"up within":                    {"d/", "d/../../x"},
	"absolute":                     {"/x"},
	"beside the top":               {"d/", "e"},
	"the top again, otherwise":     {"d/", "d2/x"},
	"an absolute link":             {"d/", "d/l -> /"},
	"a link out":                   {"d/", "d/l -> .."},
	"a link out and a file":        {"d/", "d/l -> ..", "d/l/x"},
	"a link within and a file":     {"d/", "d/e/", "d/l -> e", "d/l/x"},
	"a link over a link":           {"d/", "d/e/", "d/e/f/", "d/e/f/l -> ../..", "d/m -> e/f/l/../.."},
	"a link over a link, stepwise": {"d/", "d/e/", "d/e/f -> ..", "d/g -> e/f/../..", "d/g/x"},
	"a link is the top":            {"d -> .."},
	"a hard link":                  {"d/", "d/l = ../secret"},
	"no folder":                    {"d/", "d/e/x"},
	"nothing":                      {},
}

func TestRefusesWhatLeaves(t *testing.T) {
	t.Parallel()
	for name, lines := range evil {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := tree(t, "in/ 755", "secret 600 kept")
			root := open(t, dir)
			if _, err := Unpack(bytes.NewReader(entries(t, lines...)), root, "/in"); err == nil {
				t.Error("it was taken")
			} else {
				t.Log(err)
			}
			for _, l := range listing(t, dir) {
				if strings.Contains(l, "evil") && !strings.HasPrefix(l, "in/") || strings.HasPrefix(l, "x") {
					t.Errorf("it got out: %s", l)
				}
			}
		})
	}
	if _, err := Unpack(bytes.NewReader(entries(t, "../x")), open(t, t.TempDir()), "/"); !errors.Is(err, ErrLeaves) {
		t.Errorf("got %v, want ErrLeaves", err)
	}
}

// TestCutArchive checks that an error of the underlying reader is never taken for the archive's end, at any position.
func TestCutArchive(t *testing.T) {
	t.Parallel()
	whole, cut := entries(t, "d/", "d/a", "d/b"), errors.New("cut")
	for n := 0; n < len(whole); n += 100 {
		from := io.MultiReader(bytes.NewReader(whole[:n]), iotest.ErrReader(cut))
		if _, err := Unpack(from, open(t, t.TempDir()), "/"); !errors.Is(err, cut) &&
			!errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("after %d bytes of %d: got %v, want that it is cut", n, len(whole), err)
		}
	}
}

// FuzzUnpack checks that no input makes or changes files outside of the target, and that no link leads out of it.
func FuzzUnpack(f *testing.F) {
	for _, lines := range evil { // order-free: seeds
		f.Add(entries(f, lines...))
	}
	f.Add(entries(f, "d/", "d/a", "d/e/", "d/e/l -> ../a"))
	f.Fuzz(func(t *testing.T, in []byte) {
		dir := tree(t, "in/ 755", "secret 600 kept")
		_, _ = Unpack(bytes.NewReader(in), open(t, dir), "/in")
		inside, err := os.OpenRoot(filepath.Join(dir, "in"))
		must(t, err)
		defer inside.Close()
		_ = filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
			rel := strings.TrimPrefix(strings.TrimPrefix(at, dir), "/")
			switch {
			case err != nil: // a folder that may not be read
				return fs.SkipDir
			case rel != "" && rel != "in" && rel != "secret" && !strings.HasPrefix(rel, "in/"):
				t.Errorf("%q was made", rel)
			case d.Type()&fs.ModeSymlink != 0:
				if _, err := inside.Stat(strings.TrimPrefix(rel, "in/")); err != nil &&
					strings.Contains(err.Error(), "escapes") {
					t.Errorf("%q leads out", rel)
				}
			}
			return nil
		})
		if b, err := os.ReadFile(filepath.Join(dir, "secret")); err != nil || string(b) != "kept" {
			t.Errorf("the file outside is now %q %v", b, err)
		}
	})
}
