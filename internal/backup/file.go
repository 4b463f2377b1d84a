package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	timeFormat = "20060102T150405Z"
	suffix     = ".snapshot"
	sumSuffix  = ".sha256"
	partPrefix = ".berth-snapshot-"
	// firstCopyRoom is the free space, in bytes, that the first copy needs, as its size is unknown.
	firstCopyRoom = 64 << 20
)

// namePattern matches the names of copies: berth-<time in UTC>-r<revision>.snapshot.
var namePattern = regexp.MustCompile(`^berth-(\d{8}T\d{6}Z)-r(\d{1,20})\.snapshot$`)

// File is a copy of the store.
type File struct {
	Name string
	// Time is the start of the copy, to the second; Revision is the least that it holds.
	Time     time.Time
	Revision uint64
	Size     int64 // bytes
}

func fileName(at time.Time, revision uint64) string {
	return fmt.Sprintf("berth-%s-r%d%s", at.UTC().Format(timeFormat), revision, suffix)
}

// listCopies returns the copies in a folder, oldest first. It ignores other files.
func listCopies(dir string) ([]File, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []File
	for _, e := range entries {
		m := namePattern.FindStringSubmatch(e.Name())
		if m == nil || !e.Type().IsRegular() {
			continue
		}
		at, err := time.Parse(timeFormat, m[1])
		if err != nil {
			continue
		}
		revision, err := strconv.ParseUint(m[2], 10, 64)
		if err != nil {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // the file was removed meanwhile
		}
		out = append(out, File{Name: e.Name(), Time: at, Revision: revision, Size: info.Size()})
	}
	slices.SortFunc(out, func(a, b File) int {
		if c := a.Time.Compare(b.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return out, nil
}

// saveCopy makes one good copy, or none. files are the present copies.
func (b *Backups) saveCopy(ctx context.Context, now time.Time, files []File) (File, error) {
	dir := b.config.Dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return File{}, fmt.Errorf("make the folder: %w", err)
	}
	removeLeftovers(dir)
	room, err := b.maxCopyBytes(files)
	if err != nil {
		return File{}, err
	}
	f := File{Time: now.UTC().Truncate(time.Second), Revision: b.config.Revision()}
	f.Name = fileName(f.Time, f.Revision)
	part, err := os.CreateTemp(dir, partPrefix) // mode 0600
	if err != nil {
		return File{}, err
	}
	defer os.Remove(part.Name())
	sum := sha256.New()
	counted := &boundedWriter{to: io.MultiWriter(part, sum), left: room}
	err = b.config.Snapshot(ctx, counted)
	if err == nil {
		err = part.Sync()
	}
	if err = errors.Join(err, part.Close()); err != nil {
		return File{}, fmt.Errorf("write a copy: %w", err)
	}
	f.Size = counted.size
	if err := b.verify(part.Name(), f.Size, sum.Sum(nil)); err != nil {
		return File{}, fmt.Errorf("read the copy back: %w", err)
	}
	if err := writeSum(dir, f.Name, sum.Sum(nil)); err != nil {
		return File{}, fmt.Errorf("write the copy's sum: %w", err)
	}
	if err := os.Rename(part.Name(), filepath.Join(dir, f.Name)); err != nil {
		return File{}, errors.Join(err, os.Remove(filepath.Join(dir, f.Name+sumSuffix)))
	}
	return f, syncDir(dir)
}

// maxCopyBytes returns how many bytes a new copy may take: half of the free bytes. It is an error if that is less than
// the larger of the last two copies.
func (b *Backups) maxCopyBytes(files []File) (int64, error) {
	free, err := b.config.Free(b.config.Dir)
	if err != nil {
		return 0, fmt.Errorf("ask how much of the disk is free: %w", err)
	}
	last := int64(firstCopyRoom)
	if n := len(files); n > 0 {
		last = files[n-1].Size
		if n > 1 {
			last = max(last, files[n-2].Size)
		}
	}
	if free/2 < uint64(last) {
		return 0, fmt.Errorf("%w: %d bytes are free, and %d are wanted, twice what one takes", ErrNoRoom, free, 2*last)
	}
	return int64(min(free/2, 1<<62)), nil
}

// boundedWriter refuses bytes beyond its limit.
type boundedWriter struct {
	to         io.Writer
	left, size int64
}

// Write writes all of p, or returns ErrNoRoom.
func (w *boundedWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > w.left {
		return 0, fmt.Errorf("%w: it is larger than half of what is free", ErrNoRoom)
	}
	n, err := w.to.Write(p)
	w.left -= int64(n)
	w.size += int64(n)
	return n, err
}

// verify reads a copy back, so that a disk that loses or changes data is found now, and not when the copy is needed.
func (b *Backups) verify(path string, size int64, want []byte) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	switch {
	case err != nil:
		return err
	case n == 0:
		return errors.New("it is empty")
	case n != size || string(sum.Sum(nil)) != string(want):
		return errors.New("it is not what was written")
	case b.config.Inspect == nil:
		return nil
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return b.config.Inspect(f)
}

// writeSum writes the sum of a copy in the format of sha256sum, so that `sha256sum -c` checks it.
func writeSum(dir, name string, sum []byte) error {
	f, err := os.OpenFile(filepath.Join(dir, name+sumSuffix), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s  %s\n", hex.EncodeToString(sum), name)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// removeLeftovers removes temporary files that a crash left, and sums without a copy.
func removeLeftovers(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	there := map[string]bool{}
	for _, e := range entries {
		there[e.Name()] = true
	}
	for _, e := range entries {
		copied, isSum := strings.CutSuffix(e.Name(), sumSuffix)
		if strings.HasPrefix(e.Name(), partPrefix) || isSum && namePattern.MatchString(copied) && !there[copied] {
			_ = os.Remove(filepath.Join(dir, e.Name())) // a leftover only takes room; the next call tries again
		}
	}
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
