package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
)

// artifactOf returns an artifact whose checksum consists of one digit.
func artifactOf(digit string) cluster.Artifact {
	return cluster.Artifact{Source: "http://example", Checksum: "sha256:" + strings.Repeat(digit, 64), Path: "/tool"}
}

// keeps puts artifacts of 60 bytes into the agent's folder, each with its last use.
func (s *imageExecutor) keeps(w *world, used map[string]time.Time) {
	w.t.Helper()
	dir := filepath.Join(w.dir, "artifacts", "kept")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	for digit, at := range used { // order-free: each by itself
		name := filepath.Join(dir, "sha256-"+strings.Repeat(digit, 64)+"-0644")
		if err := os.WriteFile(name, make([]byte, 60), 0o600); err != nil {
			w.t.Fatal(err)
		}
		if err := os.Chtimes(name, at, at); err != nil {
			w.t.Fatal(err)
		}
	}
	s.folder = dir
	s.others = func() cluster.Bytes {
		left, _ := os.ReadDir(dir)
		return cluster.Bytes(60 * len(left))
	}
}

// left returns the digits of the kept artifacts.
func (s *imageExecutor) left() (digits string) {
	entries, _ := os.ReadDir(s.folder)
	for _, e := range entries {
		digits += strings.TrimPrefix(e.Name(), "sha256-")[:1]
	}
	return digits
}

// Images and artifacts on one disk are removed in the order of their last use, only as many as necessary and none in
// use. The server gets one report of the sweep, and then that nothing more can be removed.
func TestImagesAndArtifactsMakeRoomTogether(t *testing.T) {
	withImages(t, func(w *world, s *imageExecutor) {
		at := func(hour int) time.Time { return time.Date(2026, 11, 1, hour, 0, 0, 0, time.UTC) }
		for i := range s.images {
			s.images[i].Used = at(10 + 2*i) // 10, 12, 14, 16, 18
		}
		d := imaged("web", "web:1", "")
		d.Containers[0].Artifacts = []cluster.Artifact{artifactOf("2")}
		s.keeps(w, map[string]time.Time{"1": at(13), "2": at(1), "3": at(11)})
		w.service("u1", d)
		s.mu.Lock()
		s.used = 680 // with the artifacts 860, which is to be 750: two of them
		s.mu.Unlock()
		w.pass(diskCheckEvery + time.Second)
		wantImages := []string{
			"docker.io/library/web:1", "docker.io/library/web:2", "docker.io/library/web:3",
			"docker.io/library/web:4",
		}
		if diff := gocmp.Diff(wantImages, s.names()); diff != "" || s.left() != "12" {
			t.Fatalf("left artifacts %q, images (-want +got):\n%s", s.left(), diff)
		}
		w.pass(time.Minute)
		sweep := w.agent.meter.Stats.Latest().Sweep
		if sweep == nil || sweep.Images != 1 || sweep.Artifacts != 1 || sweep.Freed != 120 || sweep.Before != 86 ||
			sweep.After != 74 {
			t.Fatalf("reported %+v", sweep)
		}
		want := "the disk of " + s.folder +
			" was 86.0% full, now 74.0%: removed 1 image and 1 artifact, 120 B unused: " +
			"docker.io/library/web:0, artifact sha256:333333333333; at "
		if got := sweep.Message(); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if w.agent.meter.Stats.Sweep() != sweep {
			t.Error("the server got no report")
		}

		s.mu.Lock()
		s.used = 1200 // more than all that can be removed
		s.mu.Unlock()
		w.pass(2 * diskCheckEvery)
		if diff := gocmp.Diff(wantImages[:1], s.names()); diff != "" || s.left() != "2" {
			t.Errorf("left artifacts %q, images (-want +got):\n%s", s.left(), diff)
		}
		full := w.agent.meter.Stats.Latest().DiskFull
		if full == nil || full.Folder != s.folder ||
			!strings.Contains(full.Message, "no image or artifact on it can be removed") {
			t.Fatalf("the full disk is reported as %+v", full)
		}
		w.pass(2 * cleanupRetryEvery)
		if again := w.agent.meter.Stats.Latest().DiskFull; again != full {
			t.Errorf("the same is reported as new: %+v", again)
		}
		if again := w.agent.meter.Stats.Latest().Sweep; again != nil {
			t.Errorf("an old sweep is reported again: %+v", again)
		}
		s.mu.Lock()
		s.used = 100
		s.mu.Unlock()
		w.pass(2 * diskCheckEvery)
		if now := w.agent.meter.Stats.Latest().DiskFull; now != nil {
			t.Errorf("with room again the report is %+v", now)
		}
	})
}

// The next run of the agent removes what a crash leaves half removed, and then continues.
func TestRoomAfterACrash(t *testing.T) {
	withImages(t, func(w *world, s *imageExecutor) {
		for i := range s.images {
			s.images[i].Used = time.Unix(10, 0)
		}
		s.keeps(w, map[string]time.Time{"1": time.Unix(1, 0), "2": time.Unix(2, 0)})
		half := filepath.Join(w.dir, "artifacts", "coming", "sha256-"+strings.Repeat("9", 64)+"-0644.removed")
		if err := os.MkdirAll(filepath.Join(half, "deep"), 0o700); err != nil {
			t.Fatal(err)
		}
		w.restart()
		s.mu.Lock()
		s.used = 740 // 860 with the artifacts, and both are older than the images
		s.mu.Unlock()
		w.pass(2 * diskCheckEvery)
		if _, err := os.Stat(half); err == nil {
			t.Error("what was half removed is left")
		}
		if s.left() != "" || len(s.names()) != 5 {
			t.Errorf("left artifacts %q and %d images", s.left(), len(s.names()))
		}
	})
}
