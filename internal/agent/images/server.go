// Package images performs the requests of servers on a node's images, and knows which images and artifacts its tasks
// need.
package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/berthd/berth/internal/agent/machine"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/agent/secrets"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/plain"
	"github.com/berthd/berth/internal/transport"
)

// errNoImages means that no executor of the node holds images. errNoKeeper means that none pulls and removes them.
var (
	errNoImages = errors.New("no executor of this node holds images: it runs tasks as plain processes")
	errNoKeeper = errors.New("no executor of this node pulls images: it runs tasks as plain processes")
)

// Server performs the requests of servers on the node's images. Its methods may be called concurrently.
type Server struct {
	Node      *node.Node
	Executors *machine.Executors
	Wanted    *Wanted
	Logins    *secrets.Logins
	// Changed makes the node report its facts soon.
	Changed func()
}

// maxPullText limits one progress text of a pull, in bytes.
const maxPullText = 2 << 10

// Serve performs the stream's request on the node's images and sends the result.
func (s *Server) Serve(ctx context.Context, r transport.StreamRequest, stream io.ReadWriter) error {
	frames := transport.NewFrameWriter(stream)
	out, err := s.answer(ctx, r, stream, frames)
	if err != nil {
		return errors.Join(err, frames.End(transport.ExecEnd{Error: plain.Text(err)}))
	}
	if err := json.NewEncoder(frames.Channel(transport.ChannelStdout)).Encode(out); err != nil {
		return err
	}
	return frames.End(transport.ExecEnd{})
}

// answer performs the request. Progress of a pull goes into frames of ChannelStderr, one for each text.
func (s *Server) answer(ctx context.Context, r transport.StreamRequest, in io.Reader,
	frames *transport.FrameWriter,
) (any, error) {
	held := s.Executors.ImageStore()
	switch {
	case held == nil:
		return nil, errNoImages
	case r.Kind == transport.StreamImageList && s.Executors.ImageKeeper() == nil:
		all, err := held.Images(ctx)
		return wireImages(all), err
	case r.Kind != transport.StreamImageLoad:
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		s.Node.Go(func() {
			defer cancel() // the client went away: no client waits for the pull
			_, _ = io.Copy(io.Discard, in)
		})
		return s.keep(ctx, r, func(text string) {
			// The client may be gone; the pull ends then.
			_, _ = io.WriteString(frames.Channel(transport.ChannelStderr), text[:min(len(text), maxPullText)])
		})
	}
	archive := NewArchiveReader(transport.NewFrameReader(in))
	images, err := held.LoadImages(ctx, archive)
	if err != nil {
		return nil, err
	}
	s.Changed()
	// An archive may end before the stream does.
	if _, err := io.Copy(io.Discard, archive); err != nil {
		return nil, fmt.Errorf("read the archive: %w", err)
	}
	return wireImages(images), nil
}

// keep performs a server's request on the node's images, except loading, and returns the result.
func (s *Server) keep(ctx context.Context, r transport.StreamRequest, progress func(string)) (any, error) {
	keeper := s.Executors.ImageKeeper()
	if keeper == nil {
		return nil, errNoKeeper
	}
	var ask transport.ImagesRequest
	if r.Images != nil {
		ask = *r.Images
	}
	switch r.Kind {
	case transport.StreamImageList:
		all, err := keeper.ListImages(ctx, s.Wanted.Images)
		return wireImages(all), err
	case transport.StreamImagePull:
		image, err := keeper.PullImage(ctx,
			executor.ImagePull{Name: ask.Name, Keep: ask.Keep, Credentials: s.Logins.Own}, progress)
		if err == nil {
			s.Changed()
		}
		if errors.Is(err, executor.ErrLogin) {
			err = fmt.Errorf("%w; images that are pulled ahead use the node's own logins, from the file "+
				"of --registry-logins of its agent", err)
		}
		return wireImages([]executor.Image{image}), err
	case transport.StreamImageResolve:
		digest, err := keeper.ResolveImage(ctx, ask.Name, s.Logins.ForRequest(ctx, r))
		return []transport.Image{{Name: ask.Name, Digest: digest}}, err
	case transport.StreamImagePrune:
		all, err := keeper.PruneImages(ctx, executor.ImagePrune{
			Wanted: s.Wanted.Images, All: ask.All, DryRun: ask.DryRun, Unused: time.Duration(ask.Unused),
		})
		out := make([]transport.PrunedImage, len(all))
		for i := range all {
			out[i] = transport.PrunedImage(all[i])
			if all[i].Removed && !ask.DryRun {
				s.Node.Logger.Info("an image was removed on request", "image", all[i].Names[0], "digest",
					all[i].Digest, "size", all[i].Size.String())
			}
		}
		if !ask.DryRun {
			s.Changed()
		}
		return out, err
	}
	return nil, fmt.Errorf("this agent does not support %q", r.Kind)
}

func wireImages(all []executor.Image) []transport.Image {
	out := make([]transport.Image, len(all))
	for i := range all {
		out[i] = transport.Image(all[i])
	}
	return out
}
