package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Unpacked counts the files and bytes of an archive.
type Unpacked struct {
	Files int
	Bytes int64
}

// Unpack extracts an archive to dest, a path below the root. If dest is a folder, the top is created in it under
// its own name; otherwise the top gets the name dest. The parent folder must exist. Existing files are overwritten.
// Existing folders keep their permissions and get the new entries; nothing is removed.
//
// The archive is not trusted. A name or a link that leads out of the top ends the copy with ErrLeaves. An entry
// that is not a file, a folder or a link ends it with another error. Entries that were unpacked before stay. Unpack
// returns read errors of from.
func Unpack(from io.Reader, root *os.Root, dest string) (Unpacked, error) {
	u := &unpacker{tar: tar.NewReader(from), buf: make([]byte, 64<<10), known: map[string]bool{}}
	defer u.close()
	for {
		h, err := u.tar.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = u.take(h, root, dest)
		}
		if err != nil {
			return u.done, err
		}
	}
	if u.top == "" {
		return u.done, errors.New("the archive is empty")
	}
	if _, err := io.Copy(io.Discard, from); err != nil { // what fills the last block
		return u.done, err
	}
	return u.done, u.finish()
}

type unpacker struct {
	tar  *tar.Reader
	buf  []byte
	top  string   // the first part of all names
	in   *os.Root // the parent folder of the top; if the top is ".", the top itself
	as   string   // what the top is called there, or "."
	dest string   // as the caller wrote it
	// folders that were made get their permissions and times at the end: they may forbid to write.
	folders []*tar.Header
	// known holds the folders of the target that no link leads through. Entries are created only in these.
	known map[string]bool
	done  Unpacked
}

func (u *unpacker) close() {
	if u.in != nil {
		_ = u.in.Close()
	}
}

// take unpacks one entry.
func (u *unpacker) take(h *tar.Header, root *os.Root, dest string) error {
	name := path.Clean(h.Name)
	if path.IsAbs(h.Name) || !filepath.IsLocal(name) {
		return fmt.Errorf("the archive contains %q, which %w", clip(h.Name), ErrLeaves)
	}
	if u.in == nil {
		if err := u.begin(name, h.Typeflag == tar.TypeDir, root, dest); err != nil {
			return err
		}
	} else if u.top != "." && !strings.HasPrefix(name, u.top+"/") {
		return fmt.Errorf("the archive contains %q beside %q, which %w", clip(h.Name), u.top, ErrLeaves)
	}
	rel := name // within the top
	if u.top != "." {
		rel = strings.TrimPrefix(strings.TrimPrefix(name, u.top), "/")
	}
	if rel == "" {
		rel = "."
	}
	at := path.Join(u.as, rel)
	if rel != "." && !u.known[path.Dir(at)] {
		return fmt.Errorf("the archive contains %q, but not its parent folder", clip(h.Name))
	}
	var err error
	switch h.Typeflag {
	case tar.TypeDir:
		err = u.folder(at, h)
	case tar.TypeReg:
		err = u.file(at, h)
	case tar.TypeSymlink:
		err = u.link(at, rel, h)
	default:
		err = fmt.Errorf("the archive contains %q, which is not a file, a folder or a link", clip(h.Name))
	}
	return err
}

// begin finds the place for the top.
func (u *unpacker) begin(name string, folder bool, root *os.Root, dest string) error {
	u.top, _, _ = strings.Cut(name, "/")
	u.dest = dest
	at, err := resolve(root, dest, true)
	var info fs.FileInfo
	if err == nil {
		info, err = root.Lstat(at)
	}
	switch {
	case err == nil && info.IsDir():
		u.in, err = root.OpenRoot(at)
		u.as = u.top
		return wrap(err, dest)
	case err == nil && (folder || u.top == "." || strings.HasSuffix(dest, "/")):
		return fmt.Errorf("%s is a file, but a folder is needed there", dest)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err != nil && strings.HasSuffix(dest, "/") && !folder:
		return fmt.Errorf("%s: this folder does not exist", dest)
	}
	above := path.Dir(at)
	if info, err := root.Lstat(above); err != nil || !info.IsDir() {
		return fmt.Errorf("%s: the parent folder /%s does not exist; create it first", dest,
			strings.TrimPrefix(above, "."))
	}
	u.in, err = root.OpenRoot(above)
	u.as = path.Base(at)
	return wrap(err, dest)
}

func wrap(err error, name string) error {
	if err == nil {
		return nil
	}
	return plain(err, name)
}

// shown is what a path within the target is called in an error.
func (u *unpacker) shown(at string) string { return path.Join(u.dest, at) }

func (u *unpacker) folder(at string, h *tar.Header) error {
	info, err := u.in.Lstat(at)
	switch {
	case err == nil && info.IsDir():
		u.known[at] = true
		return nil
	case err == nil:
		return fmt.Errorf("%s: a file or a link exists in place of the folder", u.shown(at))
	}
	if err := u.in.Mkdir(at, 0o700); err != nil {
		return plain(err, u.shown(at))
	}
	u.known[at] = true
	made := *h
	made.Name = at
	u.folders = append(u.folders, &made)
	return nil
}

func (u *unpacker) file(at string, h *tar.Header) error {
	if info, err := u.in.Lstat(at); err == nil {
		switch mode := info.Mode(); {
		case mode.IsDir():
			return fmt.Errorf("%s: a folder exists in place of the file", u.shown(at))
		case mode&fs.ModeSymlink != 0: // it is replaced, not what it points to
			if err := u.in.Remove(at); err != nil {
				return plain(err, u.shown(at))
			}
		case !mode.IsRegular():
			return fmt.Errorf("%s is %s, which cannot be overwritten", u.shown(at), what(mode))
		}
	}
	f, err := u.in.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return plain(err, u.shown(at))
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{f}, u.tar, u.buf)
	if err == nil {
		err = f.Chmod(fs.FileMode(h.Mode & keptMode))
	}
	err = errors.Join(err, f.Close())
	if err != nil {
		return plain(err, u.shown(at))
	}
	u.done.Files++
	u.done.Bytes += n
	return u.times(at, h.ModTime)
}

// times sets when something was changed last, unless it is another user's.
func (u *unpacker) times(at string, t time.Time) error {
	err := u.in.Chtimes(at, time.Time{}, t)
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		return plain(err, u.shown(at))
	}
	return nil
}

func (u *unpacker) link(at, rel string, h *tar.Header) error {
	if rel == "." || !stays(rel, h.Linkname) {
		return fmt.Errorf("the link %s points to %s, which %w; copy the targets of links with -L", h.Name,
			clip(h.Linkname), ErrLeaves)
	}
	if info, err := u.in.Lstat(at); err == nil {
		if info.IsDir() {
			return fmt.Errorf("%s: a folder exists in place of the link", u.shown(at))
		}
		if err := u.in.Remove(at); err != nil {
			return plain(err, u.shown(at))
		}
	}
	if err := u.in.Symlink(h.Linkname, at); err != nil {
		return plain(err, u.shown(at))
	}
	return nil
}

// stays reports whether a link at a path below the top leads to what is below the top too. Steps up are counted from
// the folder of the link, so there may be none further on, where another link may have led elsewhere.
func stays(rel, to string) bool {
	if path.IsAbs(to) || to == "" || !filepath.IsLocal(path.Join(path.Dir(rel), to)) {
		return false
	}
	for strings.HasPrefix(to, "../") || strings.HasPrefix(to, "./") {
		_, to, _ = strings.Cut(to, "/")
	}
	return to == ".." || !strings.Contains("/"+to+"/", "/../")
}

// finish gives the folders that were made their permissions and times, the inner ones first.
func (u *unpacker) finish() error {
	for _, h := range slices.Backward(u.folders) {
		if err := u.in.Chmod(h.Name, fs.FileMode(h.Mode&keptMode)); err != nil {
			return plain(err, u.shown(h.Name))
		}
		if err := u.times(h.Name, h.ModTime); err != nil {
			return err
		}
	}
	return nil
}
