package agentapi

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/transport"
)

// Bounds of image requests to nodes.
const (
	// maxConcurrentNodes is how many nodes a request asks at a time.
	maxConcurrentNodes = 16
	// maxImagePull is how many images one request may name, and imagePullTime is the time limit of a node for all of
	// them.
	maxImagePull  = 100
	imagePullTime = time.Hour
	// pinTime is how long a write waits for the digests of tags, and pinNodes is how many nodes look up each image.
	pinTime  = 5 * time.Second
	pinNodes = 2
)

func (a *ImagesAPI) pullImages(w http.ResponseWriter, r *http.Request) error {
	var ask api.ImagePull
	if err := strictjson.ReadBody(w, r, &ask); err != nil {
		return err
	}
	var faults cluster.Faults
	if n := len(ask.Images); n == 0 || n > maxImagePull {
		faults = append(faults, cluster.Fault{
			Path:    "images",
			Message: fmt.Sprintf("holds %d images, want 1 to %d", n, maxImagePull),
		})
	}
	for i, name := range ask.Images[:min(len(ask.Images), maxImagePull)] {
		if !cluster.ValidImage(name) {
			faults = append(faults, cluster.Fault{
				Path:    fmt.Sprintf("images[%d]", i),
				Message: fmt.Sprintf("%q is not the name of an image", respond.Clip(name)),
			})
		}
	}
	nodes, err := namedNodes(a.Tables.Snapshot(), ask.Nodes, faults)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), imagePullTime)
	defer cancel()
	out := newPullProgress(w, r)
	reply := api.ImagesReply{Items: []api.ImageView{}}
	reply.Items, reply.Faults = askNodes(nodes, reply.Items,
		func(node string) (all []api.ImageView, faults cluster.Faults) {
			defer out.done(node)
			for _, name := range ask.Images {
				progress := out.reporter(node, name)
				got, err := askImagesAs[[]transport.Image](ctx, a.Agents, node, transport.StreamImagePull,
					transport.ImagesRequest{Name: name, Keep: ask.Keep}, progress)
				if err != nil {
					faults = append(faults, cluster.Fault{Path: node, Message: respond.ProblemOf(err).Detail})
					continue
				}
				for _, i := range got {
					all = append(all, api.ImageView{Node: node, Name: i.Name, Digest: i.Digest, Size: i.Size})
				}
			}
			return all, faults
		})
	if out != nil {
		return out.end(&reply)
	}
	return respond.JSON(w, http.StatusOK, reply)
}

func (a *ImagesAPI) pruneImages(w http.ResponseWriter, r *http.Request) error {
	var ask api.ImagePrune
	if err := strictjson.ReadBody(w, r, &ask); err != nil {
		return err
	}
	var faults cluster.Faults
	if ask.Unused < 0 {
		faults = append(faults, cluster.Fault{Path: "unused", Message: "must not be negative"})
	}
	nodes, err := namedNodes(a.Tables.Snapshot(), ask.Nodes, faults)
	if err != nil {
		return err
	}
	reply := api.ImagePruneReply{Items: []api.PrunedImage{}}
	reply.Items, reply.Faults = askNodes(nodes, reply.Items,
		func(node string) (all []api.PrunedImage, faults cluster.Faults) {
			got, err := askImages[[]transport.PrunedImage](r.Context(), a.Agents, node, transport.StreamImagePrune,
				transport.ImagesRequest{All: ask.All, DryRun: ask.DryRun, Unused: ask.Unused})
			if err != nil {
				return nil, cluster.Faults{{Path: node, Message: respond.ProblemOf(err).Detail}}
			}
			for _, i := range got {
				all = append(all, api.PrunedImage{
					Node: node, Names: i.Names, Digest: i.Digest, Size: i.Size,
					Used:    i.Used,
					Removed: i.Removed, Kept: i.Kept,
				})
			}
			return all, nil
		})
	return respond.JSON(w, http.StatusOK, reply)
}

// namedNodes returns the named nodes, or all registered nodes without names. Its error holds the request's other faults
// too.
func namedNodes(snap *store.Snapshot, names []string, faults cluster.Faults) ([]string, error) {
	for i, name := range names {
		if _, ok := snap.NodeStatus(name); !ok {
			faults = append(faults, cluster.Fault{
				Path:    fmt.Sprintf("nodes[%d]", i),
				Message: fmt.Sprintf("there is no node %q", respond.Clip(name)),
			})
		}
	}
	if len(faults) > 0 {
		return nil, respond.Invalid(faults)
	}
	if len(names) == 0 {
		for e := range snap.NodeStatuses() {
			names = append(names, e.Value.Name)
		}
	}
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names), nil
}

// askNodes asks nodes, some at a time, and returns all answers in the order of the nodes.
func askNodes[T any](nodes []string, none []T, ask func(node string) ([]T, cluster.Faults)) (all []T,
	faults cluster.Faults,
) {
	answers := make([][]T, len(nodes))
	wrong := make([]cluster.Faults, len(nodes))
	room := make(chan struct{}, maxConcurrentNodes)
	var asking sync.WaitGroup
	for i, node := range nodes {
		room <- struct{}{}
		asking.Go(func() {
			defer func() { <-room }()
			answers[i], wrong[i] = ask(node)
		})
	}
	asking.Wait()
	return append(none, slices.Concat(answers...)...), slices.Concat(wrong...)
}

// askImages asks one node. When ctx ends it closes the stream, and the agent gives up.
func askImages[T any](ctx context.Context, agents Streams, node string, kind transport.StreamKind,
	ask transport.ImagesRequest,
) (got T, err error) {
	return askImagesAs[T](ctx, agents, node, kind, ask, nil)
}

// askImagesAs does the same. It calls progress, unless nil, with the agent's messages before the answer.
func askImagesAs[T any](ctx context.Context, agents Streams, node string, kind transport.StreamKind,
	ask transport.ImagesRequest, progress func(string),
) (got T, err error) {
	stream, err := agents.open(ctx, node, transport.StreamRequest{Kind: kind, Images: &ask})
	if err != nil {
		return got, err
	}
	stop := context.AfterFunc(ctx, func() { _ = stream.Close() }) // ends the read below
	defer stop()
	defer stream.Close() // it was only read
	return imageAnswer[T](stream, node, progress)
}

// Unpinned holds, by version, why its images could not be pinned. Definitions inside of owners have the version 0.
type Unpinned map[cluster.Ref]string

// Note adds these reasons to the changes of an apply; changes[i] is that of set[i].
func (l Unpinned) Note(set []draft.AppliedObject, changes []api.Change) {
	for i := range changes {
		c := &changes[i]
		if c.Action == api.ActionNone {
			continue
		}
		for _, d := range draft.DefinitionsOf(set[i : i+1]) {
			if why := l[d.Ref()]; why != "" && !strings.Contains(c.Note, why) {
				c.Note = strings.TrimPrefix(c.Note+"; "+why, "; ")
			}
		}
	}
}

// pinners returns nodes that can ask registries, the last registered first. Fit, unless nil, reports whether a node may
// be asked.
func pinners(snap *store.Snapshot, fit func(node string) bool) []string {
	var all []cluster.NodeStatus
	for e := range snap.NodeStatuses() {
		n, ok := snap.Node(e.Value.Name)
		holds := slices.ContainsFunc(e.Value.Facts.Executors, func(x cluster.ExecutorFact) bool {
			return x.Name == "containerd"
		})
		if ok && n.Value.State == cluster.NodeReady && holds && (fit == nil || fit(e.Value.Name)) {
			all = append(all, cluster.NodeStatus{Name: e.Value.Name, Registered: e.Value.Registered})
		}
	}
	slices.SortFunc(all, func(a, b cluster.NodeStatus) int {
		return cmp.Or(b.Registered.Compare(a.Registered), cmp.Compare(a.Name, b.Name))
	})
	names := make([]string, 0, pinNodes)
	for _, n := range all[:min(len(all), pinNodes)] {
		names = append(names, n.Name)
	}
	return names
}
