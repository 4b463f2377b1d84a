package agentapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/transport"
)

// ImagesAPI lists, loads, pulls and removes images on nodes.
type ImagesAPI struct {
	Tables snapshot.Tables
	Agents Streams
}

// Bounds of image requests.
const (
	imageListTimeout = 30 * time.Second
	// imageStall is how long the client may send nothing during a load, or a node read nothing.
	imageStall    = time.Minute
	maxImageReply = 8 << 20
)

func (a *ImagesAPI) listImages(w http.ResponseWriter, r *http.Request) error {
	nodes, err := imageNodes(a.Tables.Snapshot(), r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), imageListTimeout)
	defer cancel()
	reply := api.ImagesReply{Items: []api.ImageView{}}
	for _, node := range nodes {
		images, err := a.imagesOf(ctx, node)
		if err != nil {
			if len(nodes) == 1 {
				return err
			}
			reply.Faults = append(reply.Faults, cluster.Fault{Path: node, Message: respond.ProblemOf(err).Detail})
			continue
		}
		reply.Items = append(reply.Items, images...)
	}
	return respond.JSON(w, http.StatusOK, reply)
}

// imageNodes returns the node in the query, or all registered nodes.
func imageNodes(snap *store.Snapshot, r *http.Request) ([]string, error) {
	if name := r.URL.Query().Get("node"); name != "" {
		if _, ok := snap.NodeStatus(name); !ok {
			return nil, respond.NotFound("node", respond.Clip(name))
		}
		return []string{name}, nil
	}
	var all []string
	for e := range snap.NodeStatuses() {
		all = append(all, e.Value.Name)
	}
	return all, nil
}

func (a *ImagesAPI) imagesOf(ctx context.Context, node string) ([]api.ImageView, error) {
	stream, err := a.Agents.open(ctx, node, transport.StreamRequest{Kind: transport.StreamImageList})
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = stream.Close() }) // ends the read below
	defer stop()
	defer stream.Close() // it was only read
	return imageReply(stream, node)
}

// imageReply reads an agent's list of images.
func imageReply(stream io.Reader, node string) ([]api.ImageView, error) {
	images, err := imageAnswer[[]transport.Image](stream, node, nil)
	if err != nil {
		return nil, err
	}
	views := make([]api.ImageView, len(images))
	for i, image := range images {
		views[i] = api.ImageView{
			Node: node, Name: image.Name, Digest: image.Digest, Size: image.Size, Frees: image.Frees, Used: image.Used,
			Kept: image.Kept,
		}
	}
	return views, nil
}

// imageAnswer reads an agent's answer to a request for images. It calls progress, unless nil, with the messages before
// the answer.
func imageAnswer[T any](stream io.Reader, node string, progress func(text string)) (answer T, err error) {
	var body bytes.Buffer
	for in := transport.NewFrameReader(stream); ; {
		f, err := in.Next()
		if err != nil {
			return answer, respond.Problemf(http.StatusBadGateway,
				"the connection to node %s broke, or its agent is too old for this: %v; ask again, `berth "+
					"node status %s` shows its state", node, err, node)
		}
		if f.Channel == transport.ChannelStdout && body.Len()+len(f.Body) <= maxImageReply {
			body.Write(f.Body)
		}
		if f.Channel == transport.ChannelStderr && progress != nil {
			progress(strings.ToValidUTF8(string(f.Body), ""))
		}
		if f.Channel != transport.ChannelExit {
			continue
		}
		end, err := f.End()
		if err != nil {
			return answer, fmt.Errorf("read the end of an image request: %w", err)
		}
		if end.Error != "" {
			return answer, respond.Problemf(http.StatusUnprocessableEntity, "node %s: %s", node, end.Error)
		}
		break
	}
	if err := json.Unmarshal(body.Bytes(), &answer); err != nil && body.Len() > 0 {
		return answer, fmt.Errorf("decode images: %w", err)
	}
	return answer, nil
}

// loadImages passes a tar archive on to one node or to all while it arrives. If there are several nodes, the refusal of
// one is a fault in the reply.
func (a *ImagesAPI) loadImages(w http.ResponseWriter, r *http.Request) error {
	nodes, err := imageNodes(a.Tables.Snapshot(), r)
	if err != nil {
		return err
	}
	if len(nodes) == 0 {
		return respond.Problemf(http.StatusConflict,
			"no node is ready to load the images into; `berth node ls` lists the nodes")
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	loads := make([]*imageLoad, len(nodes))
	for i, node := range nodes {
		loads[i] = a.beginLoad(ctx, node)
	}
	defer func() {
		for _, l := range loads {
			l.close()
		}
	}()
	ctl := http.NewResponseController(w)
	sendErr := sendArchive(slowReader{r.Body, ctl}, loads)
	if sendErr != nil {
		return respond.Problemf(http.StatusBadRequest, "the archive is incomplete: %v", sendErr)
	}
	reply := api.ImagesReply{Items: []api.ImageView{}}
	for _, l := range loads {
		images, err := l.result()
		if err != nil {
			if len(loads) == 1 {
				return err
			}
			reply.Faults = append(reply.Faults, cluster.Fault{Path: l.node, Message: respond.ProblemOf(err).Detail})
		}
		reply.Items = append(reply.Items, images...)
	}
	return respond.JSON(w, http.StatusOK, reply)
}

// imageLoad is the load of an archive into one node.
type imageLoad struct {
	node   string
	stream io.ReadWriteCloser // nil if it was not opened
	out    *transport.FrameWriter
	err    error // why the load has failed
	// done carries the node's answer. A node may answer before the archive's end, to refuse it.
	done chan struct{}
	got  []api.ImageView
	fail error
}

func (a *ImagesAPI) beginLoad(ctx context.Context, node string) *imageLoad {
	l := &imageLoad{node: node, done: make(chan struct{})}
	l.stream, l.err = a.Agents.open(ctx, node, transport.StreamRequest{Kind: transport.StreamImageLoad})
	if l.err != nil {
		close(l.done)
		return l
	}
	l.out = transport.NewFrameWriter(l.stream)
	go func() {
		defer close(l.done)
		l.got, l.fail = imageReply(l.stream, node)
		if l.fail != nil {
			_ = l.stream.Close() // unblocks a write
		}
	}()
	return l
}

// sendArchive reads an archive once and writes it to all loads that have not failed. It returns an error of the
// archive, and stops early when all loads have failed.
func sendArchive(from io.Reader, loads []*imageLoad) error {
	buf := make([]byte, transport.MaxFrame)
	for {
		n, err := from.Read(buf)
		taking := 0
		for _, l := range loads {
			if l.err == nil && n > 0 {
				l.err = l.write(buf[:n])
			}
			if l.err == nil {
				taking++
			}
		}
		switch {
		case taking == 0:
			return nil
		case errors.Is(err, io.EOF):
			for _, l := range loads {
				if l.err == nil {
					l.err = l.out.CloseInput()
				}
			}
			return nil
		case err != nil:
			return err
		}
	}
}

// write sends a part of the archive. The load fails if the node reads nothing for imageStall.
func (l *imageLoad) write(part []byte) error {
	stall := time.AfterFunc(imageStall, func() { _ = l.stream.Close() }) // unblocks the write
	defer stall.Stop()
	_, err := l.out.Channel(transport.ChannelStdin).Write(part)
	return err
}

// result waits for the node's answer. The answer says more than a failed write.
func (l *imageLoad) result() ([]api.ImageView, error) {
	<-l.done
	if l.stream == nil {
		return nil, l.err
	}
	return l.got, l.fail
}

// close ends the stream and waits for its reader.
func (l *imageLoad) close() {
	if l.stream != nil {
		_ = l.stream.Close() // a frame has carried its end, or the load has failed
	}
	<-l.done
}

// slowReader reads a body of any length and fails if the sender stalls.
type slowReader struct {
	io.Reader
	ctl *http.ResponseController
}

// Read moves the deadline.
func (p slowReader) Read(b []byte) (int, error) {
	_ = p.ctl.SetReadDeadline(time.Now().Add(imageStall)) // some connections have no deadlines
	return p.Reader.Read(b)
}

// Routes returns the operations of images.
func (a *ImagesAPI) Routes() []route.Route {
	node := route.QueryParam("node", "string", "the node; default all")
	return []route.Route{
		{
			Method: "GET", Path: "/v1/images", Name: "listImages", Role: cluster.RoleViewer,
			Summary: "The images that nodes hold.",
			Query:   []route.Parameter{node}, Reply: reflect.TypeFor[api.ImagesReply](), Long: true,
			Serve: a.listImages,
		},
		{
			Method: "POST", Path: "/v1/images", Name: "loadImages", Role: cluster.RoleOperator,
			Summary: "Loads images from a tar archive into a node.", Query: []route.Parameter{node},
			Upload: "application/x-tar", Reply: reflect.TypeFor[api.ImagesReply](), Long: true, Serve: a.loadImages,
		},
		{
			Method: "POST", Path: "/v1/images/pull", Name: "pullImages", Role: cluster.RoleOperator,
			Summary: "Pulls images on nodes.", Body: reflect.TypeFor[api.ImagePull](),
			Reply: reflect.TypeFor[api.ImagesReply](), Long: true, Serve: a.pullImages,
		},
		{
			Method: "POST", Path: "/v1/images/prune", Name: "pruneImages", Role: cluster.RoleOperator,
			Summary: "Removes unused images from nodes, or only lists them.",
			Body:    reflect.TypeFor[api.ImagePrune](), Reply: reflect.TypeFor[api.ImagePruneReply](), Long: true,
			Serve: a.pruneImages,
		},
	}
}
