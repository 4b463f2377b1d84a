package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/transport"
)

// errNoImages says that no executor of the node holds images.
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

// serveImages loads an archive of images that the stream carries, or lists the images that are there.
func (a *Agent) serveImages(ctx context.Context, r transport.StreamRequest, stream io.ReadWriter) error {
	frames := transport.NewFrameWriter(stream)
	images, err := a.imagesFor(ctx, r.Kind, stream)
	if err != nil {
		return errors.Join(err, frames.End(transport.ExecEnd{Error: err.Error()}))
	}
	out := make([]transport.Image, len(images))
	for i, image := range images {
		out[i] = transport.Image(image)
	}
	if err := json.NewEncoder(frames.Channel(transport.ChannelStdout)).Encode(out); err != nil {
		return err
	}
	return frames.End(transport.ExecEnd{})
}

func (a *Agent) imagesFor(ctx context.Context, kind transport.StreamKind, in io.Reader) ([]executor.Image, error) {
	held := a.machine.images()
	if held == nil {
		return nil, errNoImages
	}
	if kind == transport.StreamImageList {
		return held.Images(ctx)
	}
	archive := &archiveReader{frames: transport.NewFrameReader(in)}
	images, err := held.LoadImages(ctx, archive)
	if err != nil {
		return nil, err
	}
	// An archive may end before the stream does.
	if _, err := io.Copy(io.Discard, archive); err != nil {
		return nil, fmt.Errorf("read the archive: %w", err)
	}
	return images, nil
}

// archiveReader reads the bytes of an archive out of its frames. The empty frame is its end; a stream that ends
// before is an error, so that half an archive is never taken for a whole one.
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
