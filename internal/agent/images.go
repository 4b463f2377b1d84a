package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/plain"
	"github.com/berthd/berth/internal/transport"
)

// errNoImages means that no executor of the node holds images.
var errNoImages = errors.New("no executor of this node holds images: it runs tasks as plain processes")

// images returns the first working executor that holds images, or nil.
func (m *machine) images() executor.ImageStore {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.working {
		if s, ok := e.Executor.(executor.ImageStore); ok {
			return s
		}
	}
	return nil
}

// imagesReportInterval is the shortest time between two reports of changed images. Each report writes a record in the
// store for each node, and a new image reaches all nodes at about the same time. Placement by image does not need
// faster reports.
const imagesReportInterval = 5 * time.Minute

// probeImages returns the images on the machine, by normal name in order: those of its tasks and the newest others.
func (a *Agent) probeImages(ctx context.Context, working []named) []string {
	used := map[string]bool{}
	a.mu.Lock()
	for _, d := range a.definitions { // order-free: a set
		for _, name := range d.Images() {
			used[name] = true
		}
	}
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var first, rest []string
	for _, e := range working {
		namer, ok := e.Executor.(executor.ImageNamer)
		if !ok {
			continue
		}
		names, err := namer.ImageNames(ctx)
		if err != nil {
			a.Logger.Warn("an executor does not list its images", "executor", e.name, "error", err)
		}
		for _, name := range names {
			if !cluster.ValidImage(name) || strings.HasPrefix(name, "sha256:") {
				continue // not a reference, such as the bare digest of an image
			}
			if name = cluster.NormalImage(name); len(name) > cluster.MaxImage {
				continue
			}
			if used[name] {
				first = append(first, name)
			} else {
				rest = append(rest, name)
			}
		}
	}
	all := append(first, rest...)
	all = all[:min(len(all), cluster.MaxNodeImages)]
	slices.Sort(all)
	return slices.Compact(all)
}

// imagesToReport returns the current images, or for a while the reported ones. machine.mu is held.
func (a *Agent) imagesToReport(there []string) []string {
	m := &a.machine
	begun := m.known.BootID != "" || m.known.CPU != 0
	if !begun || slices.Equal(there, m.known.Images) {
		return there
	}
	if now := a.Boot(); m.imagesReportedAt == 0 || now-m.imagesReportedAt >= imagesReportInterval {
		m.imagesReportedAt = now
		return there
	}
	return m.known.Images
}

// requestProbe makes the agent probe its machine soon.
func (m *machine) requestProbe() {
	select {
	case m.probeNow <- struct{}{}:
	default:
	}
}

// maxPullText limits one progress text of a pull, in bytes.
const maxPullText = 2 << 10

// serveImages performs the stream's request on the node's images and sends the result.
func (a *Agent) serveImages(ctx context.Context, r transport.StreamRequest, stream io.ReadWriter) error {
	frames := transport.NewFrameWriter(stream)
	out, err := a.imagesFor(ctx, r, stream, frames)
	if err != nil {
		return errors.Join(err, frames.End(transport.ExecEnd{Error: plain.Text(err)}))
	}
	if err := json.NewEncoder(frames.Channel(transport.ChannelStdout)).Encode(out); err != nil {
		return err
	}
	return frames.End(transport.ExecEnd{})
}

// imagesFor performs the request. Progress of a pull goes into frames of ChannelStderr, one for each text, which
// servers of earlier builds ignore.
func (a *Agent) imagesFor(ctx context.Context, r transport.StreamRequest, in io.Reader,
	frames *transport.FrameWriter,
) (any, error) {
	held := a.machine.images()
	switch {
	case held == nil:
		return nil, errNoImages
	case r.Kind == transport.StreamImageList && a.machine.keeper() == nil:
		all, err := held.Images(ctx)
		return wireImages(all), err
	case r.Kind != transport.StreamImageLoad:
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		a.work.Go(func() {
			defer cancel() // the client went away: nobody waits for the pull
			_, _ = io.Copy(io.Discard, in)
		})
		return a.keepImages(ctx, r, func(text string) {
			// The client may be gone; the pull ends then.
			_, _ = io.WriteString(frames.Channel(transport.ChannelStderr), text[:min(len(text), maxPullText)])
		})
	}
	archive := &archiveReader{frames: transport.NewFrameReader(in)}
	images, err := held.LoadImages(ctx, archive)
	if err != nil {
		return nil, err
	}
	a.machine.requestProbe()
	// An archive may end before the stream does.
	if _, err := io.Copy(io.Discard, archive); err != nil {
		return nil, fmt.Errorf("read the archive: %w", err)
	}
	return wireImages(images), nil
}

// archiveReader reads the bytes of an archive out of its frames. An empty frame ends the archive. A stream that ends
// before is an error, so that a partial archive never counts as complete.
type archiveReader struct {
	frames *transport.FrameReader
	rest   []byte
	ended  bool
}

func (r *archiveReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.ended {
			return 0, io.EOF
		}
		f, err := r.frames.Next()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, err
		}
		if f.Channel == transport.ChannelStdin {
			r.rest, r.ended = f.Body, len(f.Body) == 0
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
