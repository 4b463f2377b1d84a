package agentapi

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/transport"
)

// VolumesAPI lists and removes volumes on nodes.
type VolumesAPI struct {
	Tables snapshot.Tables
	Agents Streams
}

// volumeTimeout bounds the answer of a node about its volumes, or the removal of one.
const volumeTimeout = 30 * time.Second

// Routes returns the operations of volumes.
func (a *VolumesAPI) Routes() []route.Route {
	node := route.QueryParam("node", "string", "the node; default all")
	return []route.Route{
		{
			Method: "GET", Path: "/v1/volumes", Name: "listVolumes", Role: cluster.RoleViewer,
			Summary: "The volumes of tasks on nodes, and the host volumes that nodes declare.",
			Query:   []route.Parameter{node}, Reply: reflect.TypeFor[api.VolumesReply](), Long: true,
			Serve: a.listVolumes,
		},
		{
			Method: "POST", Path: "/v1/volumes/remove", Name: "removeVolume", Role: cluster.RoleOperator,
			Summary: "Removes a volume with its data from a node. A volume in use is never removed.",
			Body:    reflect.TypeFor[api.VolumeRemove](), Reply: reflect.TypeFor[api.VolumeView](), Long: true,
			Serve: a.removeVolume,
		},
	}
}

func (a *VolumesAPI) listVolumes(w http.ResponseWriter, r *http.Request) error {
	snap := a.Tables.Snapshot()
	nodes, err := imageNodes(snap, r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), volumeTimeout)
	defer cancel()
	reply := api.VolumesReply{Items: []api.VolumeView{}}
	reply.Items, reply.Faults = askNodes(nodes, reply.Items,
		func(node string) (all []api.VolumeView, faults cluster.Faults) {
			got, err := a.askVolumes(ctx, node, transport.StreamRequest{Kind: transport.StreamVolumeList})
			if err != nil {
				return nil, cluster.Faults{{Path: node, Message: respond.ProblemOf(err).Detail}}
			}
			for i := range got {
				all = append(all, volumeView(snap, node, &got[i]))
			}
			return all, nil
		})
	return respond.JSON(w, http.StatusOK, reply)
}

func (a *VolumesAPI) removeVolume(w http.ResponseWriter, r *http.Request) error {
	var ask api.VolumeRemove
	if err := strictjson.ReadBody(w, r, &ask); err != nil {
		return err
	}
	snap := a.Tables.Snapshot()
	var faults cluster.Faults
	if _, ok := snap.NodeStatus(ask.Node); !ok {
		faults = append(faults, cluster.Fault{
			Path:    "node",
			Message: fmt.Sprintf("there is no node %q", respond.Clip(ask.Node)),
		})
	}
	if strings.Count(ask.Name, "/") != 2 {
		faults = append(faults, cluster.Fault{
			Path: "name",
			Message: fmt.Sprintf("%q is not the name of a volume: want CLUSTER/OWNER/VOLUME, as `berth "+
				"volume ls` prints it", respond.Clip(ask.Name)),
		})
	}
	if len(faults) > 0 {
		return respond.Invalid(faults)
	}
	if owner := volumeOwner(snap, ask.Name); owner != "" && !ask.Force {
		return respond.Problemf(http.StatusConflict,
			"volume %s belongs to %s, whose next task would begin with an empty one", ask.Name, owner)
	}
	ctx, cancel := context.WithTimeout(r.Context(), volumeTimeout)
	defer cancel()
	got, err := a.askVolumes(ctx, ask.Node,
		transport.StreamRequest{Kind: transport.StreamVolumeRemove, Volume: ask.Name})
	switch {
	case err != nil:
		return err
	case len(got) != 1:
		return respond.Problemf(http.StatusBadGateway, "node %s answered with %d volumes, want one", ask.Node, len(got))
	}
	return respond.JSON(w, http.StatusOK, volumeView(snap, ask.Node, &got[0]))
}

// askVolumes asks one node. When ctx ends it closes the stream.
func (a *VolumesAPI) askVolumes(ctx context.Context, node string, ask transport.StreamRequest) ([]transport.Volume,
	error,
) {
	stream, err := a.Agents.open(ctx, node, ask)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = stream.Close() }) // ends the read below
	defer stop()
	defer stream.Close() // it was only read
	return imageAnswer[[]transport.Volume](stream, node, nil)
}

func volumeView(snap *store.Snapshot, node string, v *transport.Volume) api.VolumeView {
	return api.VolumeView{
		Node: node, Name: v.Key, HostVolume: v.HostVolume, Path: v.Path, ReadOnly: v.ReadOnly, Pin: v.Pin,
		Sticky: v.Sticky,
		Owner:  volumeOwner(snap, v.Key), Used: v.Used, Counted: v.At, Size: v.Size, Free: v.Free, By: v.By,
		Last: v.Last, Until: v.Until,
	}
}

// volumeOwner returns the service or job of a volume, "" if it does not exist any more.
func volumeOwner(snap *store.Snapshot, key string) string {
	parts := strings.Split(key, "/")
	if len(parts) != 3 {
		return ""
	}
	if _, ok := snap.Service(parts[0], parts[1]); ok {
		return cluster.OwnerRef{Kind: cluster.KindService, Cluster: parts[0], Name: parts[1]}.String()
	}
	if _, ok := snap.Job(parts[0], parts[1]); ok {
		return cluster.OwnerRef{Kind: cluster.KindJob, Cluster: parts[0], Name: parts[1]}.String()
	}
	return ""
}
