package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/transport"
)

// Bounds of image requests.
const (
	imageListTimeout = 30 * time.Second
	// imageStall is how long the client of a load may send nothing.
	imageStall    = time.Minute
	maxImageReply = 8 << 20
)

func (s *Server) listImages(w http.ResponseWriter, r *http.Request) error {
	nodes, err := imageNodes(s.cfg.Tables.Snapshot(), r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), imageListTimeout)
	defer cancel()
	reply := api.ImagesReply{Items: []api.ImageView{}}
	for _, node := range nodes {
		images, err := s.imagesOf(ctx, node)
		if err != nil {
			if len(nodes) == 1 {
				return err
			}
			reply.Faults = append(reply.Faults, cluster.Fault{Path: node, Message: problemOf(err).Detail})
			continue
		}
		reply.Items = append(reply.Items, images...)
	}
	return answer(w, http.StatusOK, reply)
}

// imageNodes returns the node that is asked for, or all that have registered.
func imageNodes(snap *store.Snapshot, r *http.Request) ([]string, error) {
	if name := r.URL.Query().Get("node"); name != "" {
		if _, ok := snap.NodeStatus(name); !ok {
			return nil, notFound("node", clip(name))
		}
		return []string{name}, nil
	}
	var all []string
	for e := range snap.NodeStatuses() {
		all = append(all, e.Value.Name)
	}
	return all, nil
}

func (s *Server) imagesOf(ctx context.Context, node string) ([]api.ImageView, error) {
	stream, err := s.openStream(ctx, node, transport.StreamRequest{Kind: transport.StreamImageList})
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = stream.Close() }) // ends the read below
	defer stop()
	defer stream.Close() //nolint:errcheck // it was only read
	return imageReply(stream, node)
}

// imageReply reads what an agent answers to a request for images.
func imageReply(stream io.Reader, node string) ([]api.ImageView, error) {
	var body bytes.Buffer
	for in := transport.NewFrameReader(stream); ; {
		f, err := in.Next()
		if err != nil {
			return nil, problemf(http.StatusBadGateway, "the connection to node %s broke: %v", node, err)
		}
		if f.Channel == transport.ChannelStdout && body.Len()+len(f.Body) <= maxImageReply {
			body.Write(f.Body)
		}
		if f.Channel != transport.ChannelExit {
			continue
		}
		end, err := f.End()
		if err != nil {
			return nil, fmt.Errorf("read the end of an image request: %w", err)
		}
		if end.Error != "" {
			return nil, problemf(http.StatusUnprocessableEntity, "node %s: %s", node, end.Error)
		}
		break
	}
	var images []transport.Image
	if err := json.Unmarshal(body.Bytes(), &images); err != nil && body.Len() > 0 {
		return nil, fmt.Errorf("decode images: %w", err)
	}
	views := make([]api.ImageView, len(images))
	for i, image := range images {
		views[i] = api.ImageView{Node: node, Name: image.Name, Digest: image.Digest, Size: image.Size}
	}
	return views, nil
}

// loadImages passes a tar archive on to a node as it comes.
func (s *Server) loadImages(w http.ResponseWriter, r *http.Request) error {
	nodes, err := imageNodes(s.cfg.Tables.Snapshot(), r)
	if err != nil {
		return err
	}
	if len(nodes) != 1 {
		return badQuery("node", "is missing, and there are %s: name the one that the images go to", plural(len(nodes), "node"))
	}
	stream, err := s.openStream(r.Context(), nodes[0], transport.StreamRequest{Kind: transport.StreamImageLoad})
	if err != nil {
		return err
	}
	defer stream.Close() //nolint:errcheck // its end was told by a frame
	ctl := http.NewResponseController(w)
	sent := make(chan error, 1)
	go func() {
		out := transport.NewFrameWriter(stream)
		_, err := io.Copy(out.Channel(transport.ChannelStdin), patient{r.Body, ctl})
		if err == nil {
			err = out.CloseInput()
		}
		if err != nil {
			_ = stream.Close() // ends the read below
		}
		sent <- err
	}()
	images, err := imageReply(stream, nodes[0])
	if err != nil {
		// What stopped the sending is the cause; an agent that refused the archive early is not waited for.
		_ = ctl.SetReadDeadline(time.Now())
		_ = stream.Close()
	}
	if cause := <-sent; cause != nil && err != nil && !isRefusal(err) {
		return problemf(http.StatusBadRequest, "the archive did not arrive whole: %v", cause)
	}
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, api.ImagesReply{Items: images})
}

func isRefusal(err error) bool {
	var p *problem
	return errors.As(err, &p) && p.Status == http.StatusUnprocessableEntity
}

// patient reads a body of any length whose sender may not stall.
type patient struct {
	io.Reader
	ctl *http.ResponseController
}

// Read puts the deadline off.
func (p patient) Read(b []byte) (int, error) {
	_ = p.ctl.SetReadDeadline(time.Now().Add(imageStall)) // not every connection has deadlines
	return p.Reader.Read(b)
}
