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
	timeForm   = "20060102T150405Z"
	suffix     = ".snapshot"
	sumSuffix  = ".sha256"
	partPrefix = ".berth-snapshot-"
	// firstRoom is how much must be free for the first copy, whose size nobody knows.
	firstRoom = 64 << 20
)

// named matches the names of copies: berth-<time in UTC>-r<revision>.snapshot.
var named = regexp.MustCompile(`^berth-(\d{8}T\d{6}Z)-r(\d{1,20})\.snapshot$`)

// File is a copy of the store.
type File struct {
	Name string
	// Time is when it was begun, to the second; Revision one that it holds at the least.
	Time     time.Time
	Revision uint64
	Size     int64 // bytes
}

func fileName(at time.Time, revision uint64) string {
	return fmt.Sprintf("berth-%s-r%d%s", at.UTC().Format(timeForm), revision, suffix)
}

// list returns the copies in a folder, oldest first. Other files are passed over.
func list(dir string) ([]File, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []File
	for _, e := range entries {
		m := named.FindStringSubmatch(e.Name())
		if m == nil || !e.Type().IsRegular() {
			continue
		}
		at, err := time.Parse(timeForm, m[1])
		if err != nil {
			continue
		}
		revision, err := strconv.ParseUint(m[2], 10, 64)
		if err != nil {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // it was removed just now
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

// save makes one good copy, or none. files are those there already.
func (b *Backups) save(ctx context.Context, now time.Time, files []File) (File, error) {
	dir := b.config.Dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return File{}, fmt.Errorf("make the folder: %w", err)
	}
	clearParts(dir)
	room, err := b.room(files)
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
	counted := &bounded{to: io.MultiWriter(part, sum), left: room}
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

// room returns how many bytes a new copy may take: half of what is free, which must be as much as the largest of the
// last two took.
func (b *Backups) room(files []File) (int64, error) {
	free, err := b.config.Free(b.config.Dir)
	if err != nil {
		return 0, fmt.Errorf("ask how much of the disk is free: %w", err)
	}
	last := int64(firstRoom)
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

// bounded refuses what goes beyond the room.
type bounded struct {
	to         io.Writer
	left, size int64
}

// Write writes, or returns ErrNoRoom.
func (w *bounded) Write(p []byte) (int, error) {
	if int64(len(p)) > w.left {
		return 0, fmt.Errorf("%w: it is larger than half of what is free", ErrNoRoom)
	}
	n, err := w.to.Write(p)
	w.left -= int64(n)
	w.size += int64(n)
	return n, err
}

// verify reads a copy back: a disk that lost or changed what was written is found now, and not when it is needed.
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

// writeSum writes the sum of a copy as sha256sum does, so that `sha256sum -c` checks it.
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

// clearParts removes what a crash left, and sums whose copy is not there.
func clearParts(dir string) {
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
		if strings.HasPrefix(e.Name(), partPrefix) || isSum && named.MatchString(copied) && !there[copied] {
			_ = os.Remove(filepath.Join(dir, e.Name())) // it only takes room; the next time again
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
