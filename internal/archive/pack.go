package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/berthd/berth/internal/shorten"
)

// maxDepth is the deepest nesting of folders. It ends loops of followed links.
const maxDepth = 250

// Packing selects the packed files.
type Packing struct {
	Root *os.Root
	// Path is the file or folder, below the root. With "/." at its end it is the content of the folder without the
	// folder itself.
	Path string
	// Follow packs what links point to instead of the links.
	Follow bool
	// LeftOut, unless nil, is called for each entry that is neither a file, a folder nor a link.
	LeftOut func(name, what string)
}

// Pack writes an archive. After an error the archive is incomplete, and its carrier must not pass it on as complete.
func Pack(to io.Writer, p Packing) error {
	found, err := resolve(p.Root, p.Path, true)
	if err != nil {
		return err
	}
	name := path.Base(path.Clean("/" + p.Path))
	if name == "/" || p.Path == "." || strings.HasSuffix(p.Path, "/.") {
		name = "."
	}
	if name == ".." || strings.HasSuffix(p.Path, "..") {
		name = path.Base(found)
	}
	w := &packer{Packing: p, tar: tar.NewWriter(to), buf: make([]byte, 64<<10)}
	if err := w.add(found, name, 0); err != nil {
		return err
	}
	return w.tar.Close()
}

type packer struct {
	Packing
	tar *tar.Writer
	buf []byte
}

// add packs the entry at a path, under a name.
func (w *packer) add(at, name string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s: folders are nested more than %d deep", clip(at), maxDepth)
	}
	info, err := w.Root.Lstat(at)
	if err == nil && w.Follow && info.Mode()&fs.ModeSymlink != 0 {
		if at, err = resolve(w.Root, at, true); err == nil {
			info, err = w.Root.Lstat(at)
		}
	}
	if err != nil {
		return plain(err, at)
	}
	h := tar.Header{Name: name, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX}
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return w.file(at, h)
	case mode.IsDir():
		return w.folder(at, h, depth)
	case mode&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = w.Root.Readlink(at); err != nil {
			return plain(err, at)
		}
		return w.tar.WriteHeader(&h)
	case depth == 0:
		return fmt.Errorf("%s is %s: only files, folders and links are copied", at, what(info.Mode()))
	case w.LeftOut != nil:
		w.LeftOut(name, what(info.Mode()))
	}
	return nil
}

func what(m fs.FileMode) string {
	switch {
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	}
	return "a device"
}

func (w *packer) folder(at string, h tar.Header, depth int) error {
	h.Typeflag = tar.TypeDir
	h.Name += "/"
	if err := w.tar.WriteHeader(&h); err != nil {
		return err
	}
	dir, err := w.Root.Open(at)
	if err != nil {
		return plain(err, at)
	}
	names, err := dir.Readdirnames(-1)
	_ = dir.Close()
	if err != nil {
		return plain(err, at)
	}
	slices.Sort(names)
	for _, name := range names {
		err := w.add(path.Join(at, name), path.Join(h.Name, name), depth+1)
		if errors.Is(err, fs.ErrNotExist) {
			if _, still := w.Root.Lstat(path.Join(at, name)); errors.Is(still, fs.ErrNotExist) {
				continue // removed meanwhile
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *packer) file(at string, h tar.Header) error {
	// A pipe that took the file's place meanwhile must not be waited for.
	f, err := w.Root.OpenFile(at, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return plain(err, at)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return plain(err, at)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no longer a file", at)
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := w.tar.WriteHeader(&h); err != nil {
		return err
	}
	// data appended meanwhile is not copied
	n, err := io.CopyBuffer(struct{ io.Writer }{w.tar}, io.LimitReader(f, h.Size), w.buf)
	if err == nil && n < h.Size {
		err = fmt.Errorf("%s became shorter while it was copied", at)
	}
	return err
}

// clip shortens a path for a sentence.
func clip(s string) string { return shorten.Marked(s, 100) }
