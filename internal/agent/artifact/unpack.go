package artifact

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/berthd/berth/internal/archive"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/shorten"
)

// maxWindow limits the memory that a zstd archive makes its reader allocate.
const maxWindow = 128 << 20

// unpack unpacks an untrusted archive into a new folder. It translates the archive for package archive, which lets
// nothing out of the folder, and limits the size of the result.
func (s *Store) unpack(ctx context.Context, file, dir string) error {
	if err := removeTree(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // all users of the task read it
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	r, w := io.Pipe()
	stop := context.AfterFunc(ctx, func() { _ = w.CloseWithError(ctx.Err()) })
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		t := &translator{
			to: tar.NewWriter(w), folders: map[string]bool{}, bytes: s.MaxUnpacked, entries: s.MaxEntries,
			maxBytes: s.MaxUnpacked, maxEntries: s.MaxEntries,
		}
		_ = w.CloseWithError(t.translate(f)) // nil ends the stream
	}()
	_, err = archive.Unpack(r, root, ".")
	_ = r.CloseWithError(errors.New("no more is read"))
	<-done
	return err
}

// translator translates an archive: below one top folder, with each folder before its contents, and readable by all
// users.
type translator struct {
	to                  *tar.Writer
	folders             map[string]bool
	bytes, maxBytes     cluster.Bytes // remaining, and limit
	entries, maxEntries int
}

func (t *translator) translate(f *os.File) error {
	if err := t.folder("."); err != nil {
		return err
	}
	in := bufio.NewReaderSize(f, 64<<10)
	magic, err := in.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch {
	case bytes.HasPrefix(magic, []byte("PK\x03\x04")), bytes.HasPrefix(magic, []byte("PK\x05\x06")):
		err = t.zip(f)
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, failed := gzip.NewReader(in)
		if failed != nil {
			return failed
		}
		err = t.tar(z)
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, failed := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow),
			zstd.WithDecoderLowmem(true))
		if failed != nil {
			return failed
		}
		defer z.Close()
		err = t.tar(z)
	default:
		if head, _ := in.Peek(262); len(head) < 262 || string(head[257:262]) != "ustar" {
			return errors.New("not a supported archive: want tar, tar with gzip or zstd, or zip")
		}
		err = t.tar(in)
	}
	if err != nil {
		return err
	}
	return t.to.Close()
}

func (t *translator) tar(from io.Reader) error {
	in := tar.NewReader(from)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
		kind := h.Typeflag
		switch kind {
		case tar.TypeXGlobalHeader:
			continue // metadata of the archiver
		case tar.TypeGNUSparse, tar.TypeCont:
			kind = tar.TypeReg
		}
		if err := t.entry(entry{
			name: h.Name, kind: kind, mode: h.Mode, link: h.Linkname, size: h.Size,
			changed: h.ModTime, content: in,
		}); err != nil {
			return err
		}
	}
}

func (t *translator) zip(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	in, err := zip.NewReader(f, info.Size())
	if err != nil {
		return fmt.Errorf("read the archive: %w", err)
	}
	for _, z := range in.File {
		if err := t.zipped(z); err != nil {
			return err
		}
	}
	return nil
}

func (t *translator) zipped(z *zip.File) error {
	mode := z.Mode()
	e := entry{name: z.Name, kind: tar.TypeReg, mode: int64(mode.Perm()), changed: z.Modified}
	if mode.Perm() == 0 { // made on a system without modes
		e.mode = 0o644
	}
	switch {
	case mode.IsDir() || strings.HasSuffix(z.Name, "/"):
		e.kind = tar.TypeDir
		return t.entry(e)
	case mode&os.ModeSymlink == 0 && !mode.IsRegular():
		return fmt.Errorf("the archive has %q, which is not a file, folder or link", clip(z.Name))
	}
	if z.UncompressedSize64 > uint64(t.maxBytes) {
		return t.tooMuch()
	}
	content, err := z.Open()
	if err != nil {
		return fmt.Errorf("read %q of the archive: %w", clip(z.Name), err)
	}
	defer content.Close()
	if mode&os.ModeSymlink != 0 {
		to, err := io.ReadAll(io.LimitReader(content, 4097))
		if err != nil || len(to) > 4096 {
			return fmt.Errorf("read %q of the archive: it is not a link: %w", clip(z.Name), err)
		}
		e.kind, e.link = tar.TypeSymlink, string(to)
		return t.entry(e)
	}
	e.content, e.size = content, int64(z.UncompressedSize64)
	return t.entry(e)
}

// entry is an entry of an archive of any format.
type entry struct {
	name    string
	kind    byte // as in tar
	mode    int64
	link    string
	size    int64
	changed time.Time
	content io.Reader
}

// entry writes one entry, after the parent folders that the archive left out.
func (t *translator) entry(e entry) error {
	name := path.Clean(e.name)
	if strings.HasPrefix(e.name, "/") || !filepath.IsLocal(name) || strings.ContainsRune(name, 0) {
		return fmt.Errorf("the archive has %q, which points outside its folder", clip(e.name))
	}
	if e.kind == tar.TypeDir {
		return t.folder(name)
	}
	if name == "." {
		return fmt.Errorf("the archive has %q, which is not a folder", clip(e.name))
	}
	if err := t.folder(path.Dir(name)); err != nil {
		return err
	}
	if err := t.count(); err != nil {
		return err
	}
	h := &tar.Header{Name: "./" + name, Typeflag: e.kind, ModTime: e.changed, Format: tar.FormatPAX}
	if !h.ModTime.After(time.Unix(0, 0)) {
		h.ModTime = time.Unix(0, 0)
	}
	switch e.kind {
	case tar.TypeReg:
		h.Mode, h.Size = 0o444|e.mode&0o755, e.size
		if e.mode&0o100 != 0 {
			h.Mode |= 0o111
		}
		if e.size < 0 || cluster.Bytes(e.size) > t.bytes {
			return t.tooMuch()
		}
		t.bytes -= cluster.Bytes(e.size)
	case tar.TypeLink: // package archive creates no hard links; a symbolic link leads to the same file
		to := path.Clean(e.link)
		if strings.HasPrefix(e.link, "/") || !filepath.IsLocal(to) {
			return fmt.Errorf("the archive has the link %q to %q, which points outside its folder", clip(e.name),
				clip(e.link))
		}
		up, err := filepath.Rel(path.Dir(name), to)
		if err != nil {
			return fmt.Errorf("the archive has the link %q to %q: %w", clip(e.name), clip(e.link), err)
		}
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, up, 0o777
	case tar.TypeSymlink:
		if strings.HasPrefix(e.link, "/") || !filepath.IsLocal(path.Join(path.Dir(name), e.link)) {
			return fmt.Errorf("the archive has the link %q to %q, which points outside its folder", clip(e.name),
				clip(e.link))
		}
		h.Linkname, h.Mode = e.link, 0o777
	default:
		return fmt.Errorf("the archive has %q, which is not a file, folder or link", clip(e.name))
	}
	if err := t.to.WriteHeader(h); err != nil {
		return fmt.Errorf("unpack %q: %w", clip(e.name), err)
	}
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	_, err := io.CopyN(t.to, e.content, e.size)
	if err == nil {
		// A zip verifies its own checksums only here.
		if _, more := io.ReadFull(e.content, make([]byte, 1)); !errors.Is(more, io.EOF) {
			err = errors.Join(errors.New("its length or checksum is wrong"), more)
		}
	}
	if err != nil {
		return fmt.Errorf("read %q of the archive: %w", clip(e.name), err)
	}
	return nil
}

// folder writes a folder and its parents, each once. All users can read it. Its owner can write to it, so that its copy
// can be removed later.
func (t *translator) folder(name string) error {
	if t.folders[name] {
		return nil
	}
	if name != "." {
		if err := t.folder(path.Dir(name)); err != nil {
			return err
		}
	}
	if err := t.count(); err != nil {
		return err
	}
	t.folders[name] = true
	shown := "./" + name
	if name == "." {
		shown = "./"
	}
	return t.to.WriteHeader(&tar.Header{
		Name: shown, Typeflag: tar.TypeDir, Mode: 0o755, ModTime: time.Unix(0, 0),
		Format: tar.FormatPAX,
	})
}

func (t *translator) count() error {
	if t.entries--; t.entries < 0 {
		return fmt.Errorf("the archive has more than %d files, folders and links", t.maxEntries)
	}
	return nil
}

func (t *translator) tooMuch() error {
	return fmt.Errorf("the archive has more than %s when it is unpacked", t.maxBytes)
}

// clip shortens a name from an archive.
func clip(s string) string { return shorten.Marked(s, 200) }
