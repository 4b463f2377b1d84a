package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
)

// texts reads a log as "stream:text", with "…" for a partial line and "lost n" for a gap.
func texts(t testing.TB, dir string, opt Options) []string {
	t.Helper()
	var got []string
	err := Read(t.Context(), dir, opt, func(l Line) error {
		got = append(got, show(l))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func show(l Line) string {
	switch {
	case l.Lost > 0:
		return fmt.Sprintf("lost %d", l.Lost)
	case l.Partial:
		return string(l.Stream) + ":" + l.Text + "…"
	}
	return string(l.Stream) + ":" + l.Text
}

func TestWriterCutsLines(t *testing.T) {
	long := strings.Repeat("x", MaxLine)
	for name, tc := range map[string]struct {
		in   []string // alternately to stdout and stderr
		want []string
	}{
		"lines":            {[]string{"a\nb\n"}, []string{"stdout:a", "stdout:b"}},
		"two streams":      {[]string{"a", "e\n", "b\n"}, []string{"stderr:e", "stdout:ab"}},
		"unfinished":       {[]string{"a"}, []string{"stdout:a…"}},
		"empty lines":      {[]string{"\n\n"}, []string{"stdout:", "stdout:"}},
		"longest line":     {[]string{long + "\n"}, []string{"stdout:" + long}},
		"too long":         {[]string{long + "yz\n"}, []string{"stdout:" + long + "…", "stdout:yz"}},
		"one byte shorter": {[]string{long[1:] + "\n"}, []string{"stdout:" + long[1:]}},
		"nothing":          {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			w := NewWriter(Config{Dir: dir})
			out := []io.Writer{w.Stream(Stdout), w.Stream(Stderr)}
			for i, s := range tc.in {
				fmt.Fprint(out[i%2], s)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, texts(t, dir, Options{})); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		})
	}
}

// fill writes n numbered lines.
func fill(w io.Writer, from, n int) {
	for i := range n {
		fmt.Fprintf(w, "line %d\n", from+i)
	}
}

func TestRotationKeepsTheNewest(t *testing.T) {
	dir := t.TempDir()
	w := NewWriter(Config{Dir: dir, SegmentSize: 1000, Segments: 3})
	fill(w.Stream(Stdout), 0, 500)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.log"))
	if len(files) != 3 {
		t.Errorf("got %d files, want 3", len(files))
	}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Size() > 1000 {
			t.Errorf("%s: %v %v", f, info, err)
		}
	}
	got := texts(t, dir, Options{})
	if len(got) < 30 || got[len(got)-1] != "stdout:line 499" {
		t.Fatalf("got %d lines, the last %q", len(got), got[len(got)-1])
	}
	first := 500 - len(got)
	if got[0] != fmt.Sprintf("stdout:line %d", first) {
		t.Errorf("the first line is %q, want number %d", got[0], first)
	}
	if got := texts(t, dir, Options{Tail: 30}); len(got) != 30 || got[0] != "stdout:line 470" {
		t.Errorf("tail of 30: %d lines from %q", len(got), got[0])
	}
	if got := texts(t, dir, Options{Tail: -1}); len(got) != 0 {
		t.Errorf("no tail: %q", got)
	}
}

func TestSlowReaderLosesCountedLines(t *testing.T) {
	dir := t.TempDir()
	w := NewWriter(Config{Dir: dir, SegmentSize: 1000, Segments: 2})
	out := w.Stream(Stdout)
	fill(out, 0, 3)
	seen, lost, gaps := int64(0), int64(0), 0
	done := make(chan struct{})
	close(done)
	err := Read(t.Context(), dir, Options{Follow: true, Done: done}, func(l Line) error {
		if l.Lost > 0 {
			lost += l.Lost
			gaps++
			return nil
		}
		if want := fmt.Sprintf("line %d", seen+lost); l.Text != want {
			t.Errorf("got %q, want %q", l.Text, want)
		}
		seen++
		if seen == 2 { // the reader stops here while the task writes on
			fill(out, 3, 1000)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen+lost != 1003 || gaps != 1 || lost < 900 {
		t.Errorf("saw %d lines and lost %d in %d gaps, of 1003", seen, lost, gaps)
	}
}

func TestFollow(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	var mu sync.Mutex
	var got []string
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Read(ctx, dir, Options{Follow: true}, func(l Line) error {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, l.Text)
			return nil
		})
	}()
	w := NewWriter(Config{Dir: dir, SegmentSize: 2000, Segments: 10})
	out := w.Stream(Stdout)
	for round := range 5 {
		fill(out, round*50, 50)
		testkit.Eventually(t, 5*time.Second, func() error {
			mu.Lock()
			defer mu.Unlock()
			if len(got) != (round+1)*50 || got[len(got)-1] != fmt.Sprintf("line %d", round*50+49) {
				return fmt.Errorf("got %d lines", len(got))
			}
			return nil
		})
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}

func TestSinceAndStream(t *testing.T) {
	dir := t.TempDir()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var file []byte
	for i := range 6 {
		file = Append(file, Line{
			Time: at.Add(time.Duration(i) * time.Second), Stream: []Stream{Stdout, Stderr}[i%2],
			Text: fmt.Sprint(i),
		})
	}
	file = append(file, "garbage\n2026-01-01T00:00:06Z stdout F torn"...)
	if err := os.WriteFile(segmentPath(dir, 0), file, 0o600); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"stderr:3", "stdout:4", "stderr:5"},
		texts(t, dir, Options{Since: at.Add(3 * time.Second)})); diff != "" {
		t.Errorf("since: %s", diff)
	}
	if diff := cmp.Diff([]string{"stderr:3", "stderr:5"}, texts(t, dir, Options{Stream: Stderr, Tail: 2})); diff != "" {
		t.Errorf("tail of a stream: %s", diff)
	}
	// A new writer cuts the torn line off and continues.
	w := NewWriter(Config{Dir: dir})
	fill(w.Stream(Stdout), 0, 1)
	if diff := cmp.Diff([]string{"stderr:5", "stdout:line 0"}, texts(t, dir, Options{Tail: 2})); diff != "" {
		t.Errorf("after a crash: %s", diff)
	}
	if w.next != 8 {
		t.Errorf("the next line has number %d, want 8", w.next)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

func TestFullDisk(t *testing.T) {
	testkit.NeedRoot(t)
	disk := t.TempDir()
	if err := syscall.Mount("none", disk, "tmpfs", 0, "size=64k"); err != nil {
		testkit.Skip(t, "cannot mount a small disk: "+err.Error())
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(disk, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 32<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(disk, "log")
	w := NewWriter(Config{Dir: dir})
	out := w.Stream(Stdout)
	fill(out, 0, 5000)
	dropped := w.Dropped()
	if dropped == 0 {
		t.Fatal("nothing was dropped on a full disk")
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	fill(out, 5000, 1)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got := texts(t, dir, Options{})
	want := []string{fmt.Sprintf("lost %d", dropped), "stdout:line 5000"}
	if diff := cmp.Diff(want, got[len(got)-2:]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if int64(len(got)-2)+dropped != 5000 {
		t.Errorf("%d lines kept and %d dropped of 5000", len(got)-2, dropped)
	}
}

func TestTail(t *testing.T) {
	dir := t.TempDir()
	w := NewWriter(Config{Dir: dir, SegmentSize: 1000, Segments: 3})
	out := w.Stream(Stdout)
	fill(out, 0, 50)
	fmt.Fprint(out, "the ends äöü")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[int]string{
		3:  "ü", // never half a character
		4:  "öü",
		18: "49\nthe ends äöü",
		0:  "",
	} {
		if got := Tail(dir, limit); got != want {
			t.Errorf("tail of %d: %q, want %q", limit, got, want)
		}
	}
	if got := Tail(dir, 400); len(got) > 400 || len(got) < 390 {
		t.Errorf("tail over two segments has %d bytes, want 400", len(got))
	}
	if got := Tail(filepath.Join(dir, "none"), 10); got != "" {
		t.Errorf("tail of no log is %q", got)
	}
}

// For all writes, pieces and restarts of the writer, a reader gets the kept lines in order and the number of the
// others.
func TestAnyWrites(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "") //nolint:usetesting // one for each draw
		if err != nil {
			rt.Fatal(err)
		}
		cfg := Config{Dir: dir, SegmentSize: cluster.Bytes(rapid.IntRange(60, 2000).Draw(rt, "segment")), Segments: 3}
		n := rapid.IntRange(1, 60).Draw(rt, "lines")
		w := NewWriter(cfg)
		out := w.Stream(Stdout)
		var want []string
		for i := range n {
			text := fmt.Sprintf("%d %s", i, rapid.StringMatching(`[a-zé ]{0,80}`).Draw(rt, "text"))
			want = append(want, "stdout:"+text)
			all := []byte(text + "\n")
			cut := rapid.IntRange(0, len(all)).Draw(rt, "cut")
			_, _ = out.Write(all[:cut])
			_, _ = out.Write(all[cut:])
			if rapid.IntRange(0, 9).Draw(rt, "restart") == 0 {
				_ = w.Close()
				w = NewWriter(cfg)
				out = w.Stream(Stdout)
			}
		}
		_ = w.Close()
		got := texts(t, dir, Options{})
		if len(got) > n || len(got) == 0 || !slices.Equal(got, want[n-len(got):]) {
			rt.Fatalf("got %q, want the end of %q", got, want)
		}
		firsts, err := segments(dir)
		if err != nil || firsts[0] != int64(n-len(got)) {
			rt.Fatalf("the first line kept has number %d, want %d (%v)", firsts[0], n-len(got), err)
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	w := NewWriter(Config{Dir: b.TempDir()})
	out := w.Stream(Stdout)
	chunk := []byte(strings.Repeat(strings.Repeat("x", 99)+"\n", 100))
	b.SetBytes(int64(len(chunk)))
	for b.Loop() {
		_, _ = out.Write(chunk)
	}
	_ = w.Close()
}
