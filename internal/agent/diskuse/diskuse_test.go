package diskuse

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
)

// The count equals that of du: no holes, no second name of a file, no targets of links.
func TestCount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string, size int) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700),
			os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("a", 100_000)
	write("deep/er/b", 3_000_000)
	for i := range 700 { // more than are read at a time
		write(fmt.Sprint("many/", i), 1)
	}
	if err := errors.Join(
		os.Link(filepath.Join(dir, "deep/er/b"), filepath.Join(dir, "again")),
		os.Symlink("/usr", filepath.Join(dir, "usr")),
		os.Truncate(filepath.Join(dir, "a"), 1<<40),
	); err != nil {
		t.Fatal(err)
	}
	use, err := Count(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := 1 + 3 + 701 + 1; use.Files != want { // a; deep, er, b or again; many with its files; usr
		t.Errorf("%d files, want %d", use.Files, want)
	}
	testkit.NeedCommand(t, "du")
	out, err := exec.CommandContext(t.Context(), "du", "-s", "--block-size=1", dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	number, _, _ := strings.Cut(string(out), "\t")
	du, _ := strconv.ParseInt(number, 10, 64)
	if own := du - int64(use.Bytes); own < 0 || own > 64<<10 { // du counts the first folder, too
		t.Errorf("counted %d bytes, du %d", use.Bytes, du)
	}
	if use.Bytes > 10*cluster.MiB {
		t.Errorf("counted %s: the hole of a sparse file, or what a link leads to", use.Bytes)
	}
}

func TestCountEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Count(ctx, t.TempDir()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := Count(t.Context(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// A count pauses most of the time.
func TestCountRests(t *testing.T) {
	t.Parallel()
	c := counter{began: time.Now().Add(-2 * workSpan)}
	before := time.Now()
	if err := c.rest(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rested := time.Since(before); rested < 2*workSpan*restSpans {
		t.Errorf("it rested %v after %v of work", rested, 2*workSpan)
	}
}

func TestRoom(t *testing.T) {
	t.Parallel()
	size, free, err := Room(t.TempDir())
	if err != nil || size < cluster.MiB || free < 0 || free > size {
		t.Errorf("size %s, free %s, %v", size, free, err)
	}
	if _, _, err := Room("/none/such"); err == nil {
		t.Error("no error of a folder that is not there")
	}
}
