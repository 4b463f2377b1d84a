package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/transport"
)

// errNoKeeper means that no executor of the node pulls and removes images.
var errNoKeeper = errors.New("no executor of this node pulls images: it runs tasks as plain processes")

// keeper returns the first working executor that pulls and removes images, or nil.
func (m *machine) keeper() executor.ImageKeeper {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.working {
		if k, ok := e.Executor.(executor.ImageKeeper); ok {
			return k
		}
	}
	return nil
}

// wantedContainers yields the containers of the attempts that run or will run, each with its task.
func (a *Agent) wantedContainers(yield func(task cluster.TaskID, c *cluster.Container)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(a.byID)) {
		for _, t := range a.byID[id] {
			v := t.view.Load()
			if def := t.currentDefinition(); def != nil &&
				(v == nil || v.rec.Phase != attempt.PhaseEnded && v.rec.Phase != attempt.PhaseGone) {
				for i := range def.Containers {
					yield(id, &def.Containers[i])
				}
			}
		}
	}
}

// wantedImages returns a user of each image that attempts use or will use. The key is the digest of a pinned image,
// otherwise the image's normal name.
func (a *Agent) wantedImages() map[string]string {
	wanted := map[string]string{}
	a.wantedContainers(func(task cluster.TaskID, c *cluster.Container) {
		if key := imageKey(c); key != "" {
			wanted[key] = "task " + string(task)
		}
	})
	return wanted
}

func imageKey(c *cluster.Container) string {
	switch {
	case c.Image == "":
		return ""
	case c.Pinned() != "":
		return c.Pinned()
	}
	return cluster.NormalImage(c.Image)
}

// keepImages performs a server's request on the node's images, except loading, and returns the result.
func (a *Agent) keepImages(ctx context.Context, r transport.StreamRequest, progress func(string)) (any, error) {
	keeper := a.machine.keeper()
	if keeper == nil {
		return nil, errNoKeeper
	}
	var ask transport.ImagesRequest
	if r.Images != nil {
		ask = *r.Images
	}
	switch r.Kind {
	case transport.StreamImageList:
		all, err := keeper.ListImages(ctx, a.wantedImages)
		return wireImages(all), err
	case transport.StreamImagePull:
		image, err := keeper.PullImage(ctx,
			executor.ImagePull{Name: ask.Name, Keep: ask.Keep, Credentials: a.Credentials}, progress)
		if err == nil {
			a.machine.requestProbe()
		}
		if errors.Is(err, executor.ErrLogin) {
			err = fmt.Errorf("%w; for images that are pulled ahead the node's own logins count, of the file "+
				"of --registry-logins of its agent", err)
		}
		return wireImages([]executor.Image{image}), err
	case transport.StreamImageResolve:
		digest, err := keeper.ResolveImage(ctx, ask.Name, a.lookupLogin(ctx, r))
		return []transport.Image{{Name: ask.Name, Digest: digest}}, err
	case transport.StreamImagePrune:
		all, err := keeper.PruneImages(ctx, executor.ImagePrune{
			Wanted: a.wantedImages, All: ask.All, DryRun: ask.DryRun, Unused: time.Duration(ask.Unused),
		})
		out := make([]transport.PrunedImage, len(all))
		for i := range all {
			out[i] = transport.PrunedImage(all[i])
			if all[i].Removed && !ask.DryRun {
				a.Logger.Info("an image was removed on request", "image", all[i].Names[0], "digest",
					all[i].Digest, "size", all[i].Size.String())
			}
		}
		if !ask.DryRun {
			a.machine.requestProbe()
		}
		return out, err
	}
	return nil, fmt.Errorf("kind %q is not known to this agent", r.Kind)
}

func wireImages(all []executor.Image) []transport.Image {
	out := make([]transport.Image, len(all))
	for i := range all {
		out[i] = transport.Image(all[i])
	}
	return out
}
