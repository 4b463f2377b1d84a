package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/transport"
)

// imageExecutor is a test executor with images on a disk of 1000 bytes.
type imageExecutor struct {
	*testExecutor

	mu     sync.Mutex
	folder string               // of the images, "" if it does not exist
	others func() cluster.Bytes // other content of the disk, nil for none
	used   cluster.Bytes
	images []executor.PrunedImage // by last use
	prunes []executor.ImagePrune
	wanted []map[string]string
}

func (s *imageExecutor) ImageDisk(context.Context) (executor.DiskUse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	use := executor.DiskUse{Folder: cmp.Or(s.folder, "/images"), Used: s.used, Total: 1000}
	if s.others != nil {
		use.Used += s.others()
	}
	return use, nil
}

func (s *imageExecutor) PruneImages(_ context.Context, p executor.ImagePrune) ([]executor.PrunedImage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := p.Wanted()
	s.prunes, s.wanted = append(s.prunes, p), append(s.wanted, wanted)
	var freed cluster.Bytes
	var out, left []executor.PrunedImage
	for _, i := range s.images {
		i.Kept = wanted[i.Names[0]]
		i.Removed = i.Kept == "" && (p.Need == 0 || freed < p.Need)
		if i.Removed {
			freed += i.Size
		} else {
			left = append(left, i)
		}
		out = append(out, i)
	}
	if !p.DryRun {
		s.images = left
		s.used -= freed
	}
	return out, nil
}

func (s *imageExecutor) PullImage(
	_ context.Context, p executor.ImagePull, progress func(string),
) (executor.Image, error) {
	progress("pulling " + p.Name + ", far " + strings.Repeat("x", 3000))
	if p.Name == "none:1" {
		return executor.Image{}, fmt.Errorf("pull %s: registry docker.io does not have it", p.Name)
	}
	return executor.Image{Name: p.Name, Digest: "sha256:1", Kept: fmt.Sprint(p.Keep)}, nil
}

func (s *imageExecutor) ResolveImage(context.Context, string, func(string) (string, string)) (string, error) {
	return "sha256:2", nil
}

func (s *imageExecutor) ListImages(_ context.Context, wanted func() map[string]string) ([]executor.Image, error) {
	return []executor.Image{{Name: "x", Kept: wanted()["docker.io/library/web:1"]}}, nil
}

func (s *imageExecutor) LoadImages(context.Context, io.Reader) ([]executor.Image, error) {
	return nil, nil
}
func (s *imageExecutor) Images(context.Context) ([]executor.Image, error) { return nil, nil }

// pruned returns the number of PruneImages calls.
func (s *imageExecutor) pruned() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.prunes)
}

func (s *imageExecutor) names() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.images {
		all = append(all, i.Names[0])
	}
	return all
}

// withImages runs a test with an agent whose executor has images.
func withImages(t *testing.T, test func(w *world, s *imageExecutor)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := &imageExecutor{testExecutor: w.executor, used: 500}
		for i := range 5 {
			s.images = append(s.images,
				executor.PrunedImage{Names: []string{fmt.Sprintf("docker.io/library/web:%d", i)}, Size: 60})
		}
		w.attach = func() executor.Executor { return s }
		w.start()
		defer w.stop()
		test(w, s)
	})
}

// imaged returns a definition with one container of an image.
func imaged(name, image, digest string) *cluster.TaskDefinition {
	d := definition(name, "app")
	d.Containers[0].Image, d.Containers[0].Digest = image, digest
	return d
}

// Between the two levels the agent removes nothing. Above the upper level it removes as much as brings the disk to the
// lower one, and never an image in use.
func TestImagesGoWhenTheDiskIsFull(t *testing.T) {
	withImages(t, func(w *world, s *imageExecutor) {
		w.service("u1", imaged("web", "web:1", ""))
		set := func(used cluster.Bytes) {
			s.mu.Lock()
			s.used = used
			s.mu.Unlock()
			w.pass(diskCheckEvery + time.Second)
		}
		set(840)
		if s.pruned() != 0 {
			t.Errorf("below the mark %d prunes", s.pruned())
		}
		set(860) // to 750: two images
		want := []string{"docker.io/library/web:1", "docker.io/library/web:3", "docker.io/library/web:4"}
		if diff := gocmp.Diff(want, s.names()); diff != "" || s.pruned() != 1 {
			t.Errorf("%d prunes, left (-want +got):\n%s", s.pruned(), diff)
		}
		if diff := gocmp.Diff(map[string]string{"docker.io/library/web:1": "task default.web.1.0"},
			s.wanted[0]); diff != "" {
			t.Errorf("wanted (-want +got):\n%s", diff)
		}
		if use := w.agent.meter.Stats.Latest(); use.ImagesRemoved != 2 || use.ImagesFreed != 120 {
			t.Errorf("reported %d images and %v", use.ImagesRemoved, use.ImagesFreed)
		}
		set(1000) // more than all that can be removed: no second attempt soon
		if diff := gocmp.Diff(want[:1], s.names()); diff != "" {
			t.Errorf("left (-want +got):\n%s", diff)
		}
		tries := s.pruned()
		w.pass(2 * time.Minute)
		if s.pruned() != tries {
			t.Errorf("%d tries in two minutes where nothing can go", s.pruned()-tries)
		}
		w.pass(cleanupRetryEvery)
		if s.pruned() == tries {
			t.Error("it was never tried again")
		}
	})
}

// An attempt wants its image until it has ended; a pinned attempt wants the digest, whatever the name refers to.
func TestWantedImages(t *testing.T) {
	withImages(t, func(w *world, s *imageExecutor) {
		digest := "sha256:" + strings.Repeat("a", 64)
		d := w.service("u1", imaged("web", "web:1", digest))
		if diff := gocmp.Diff(map[string]string{digest: "task default.web.1.0"},
			w.agent.cleaner.Wanted.Images()); diff != "" {
			t.Errorf("wanted (-want +got):\n%s", diff)
		}
		w.stopTask(d, true)
		w.pass(time.Minute)
		if got := w.agent.cleaner.Wanted.Images(); len(got) != 0 {
			t.Errorf("after its end: %v", got)
		}
	})
}

// A server's requests for images are performed, and failures are reported.
func TestImageStreams(t *testing.T) {
	withImages(t, func(w *world, s *imageExecutor) {
		w.service("u1", imaged("web", "web:1", ""))
		ask := func(kind transport.StreamKind, r transport.ImagesRequest) string {
			t.Helper()
			stream := w.carry(string(kind)+r.Name, transport.StreamRequest{Kind: kind, Images: &r})
			defer stream.Close()
			var out strings.Builder
			for in := transport.NewFrameReader(stream); ; {
				f, err := in.Next()
				if err != nil {
					t.Fatal(err)
				}
				if f.Channel == transport.ChannelExit {
					end, err := f.End()
					if err != nil {
						t.Fatal(err)
					}
					return out.String() + end.Error
				}
				if f.Channel == transport.ChannelStderr &&
					(!strings.HasPrefix(string(f.Body), "pulling "+r.Name) || len(f.Body) > maxPullText) {
					t.Errorf("sent %d bytes %.20q", len(f.Body), f.Body)
				}
				out.Write(f.Body)
			}
		}
		for _, tc := range []struct {
			kind transport.StreamKind
			r    transport.ImagesRequest
			want string
		}{
			{transport.StreamImageList, transport.ImagesRequest{}, `"kept":"task default.web.1.0"`},
			{
				transport.StreamImagePull,
				transport.ImagesRequest{Name: "web:2", Keep: true},
				`"name":"web:2","digest":"sha256:1","size":0,"kept":"true"`,
			},
			{transport.StreamImagePull, transport.ImagesRequest{Name: "none:1"}, "registry docker.io does not have it"},
			{transport.StreamImageResolve, transport.ImagesRequest{Name: "web:2"}, `"digest":"sha256:2"`},
			{transport.StreamImagePrune, transport.ImagesRequest{DryRun: true}, `"removed":true`},
		} {
			if got := ask(tc.kind, tc.r); !strings.Contains(got, tc.want) {
				t.Errorf("%s %+v: %s, want %s", tc.kind, tc.r, got, tc.want)
			}
		}
		if len(s.names()) != 5 {
			t.Errorf("a dry run left %q", s.names())
		}
		var gone []transport.PrunedImage
		if err := json.Unmarshal([]byte(ask(transport.StreamImagePrune, transport.ImagesRequest{})),
			&gone); err != nil || len(gone) != 5 {
			t.Errorf("%+v %v", gone, err)
		}
		if diff := gocmp.Diff([]string{"docker.io/library/web:1"}, s.names()); diff != "" {
			t.Errorf("left (-want +got):\n%s", diff)
		}
	})
}
