package apiserver

import (
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// TestVolumesAreListedAndRemoved checks that volumes are listed with their owners. A volume of a present service is
// removed only by force, and never if its agent refuses.
func TestVolumesAreListedAndRemoved(t *testing.T) {
	w, _ := withImages(t)
	w.put(map[string]any{"service/default/db": cluster.Service{
		Cluster: "default", Name: "db",
		Definition: cluster.Ref{Name: "db", Version: 1}, Count: 1,
	}})
	var asked []string
	w.nodes.set(agent(func(r transport.StreamRequest, conn net.Conn) {
		out := transport.NewFrameWriter(conn)
		all := []transport.Volume{
			{
				Key: "default/db/data", Path: "/v/1", Pin: true, Used: 7, At: noon, Size: 9, Free: 2,
				By: []cluster.TaskID{"default.db.1.0"},
			},
			{Key: "default/old/data", Path: "/v/2", Until: noon},
			{HostVolume: "models", Path: "/m", ReadOnly: true},
		}
		if r.Kind == transport.StreamVolumeRemove {
			asked = append(asked, r.Volume)
			if r.Volume == "default/db/data" {
				_ = out.End(transport.ExecEnd{
					Error: "the volume default/db/data is in use by task default.db.1.0: stop it first",
				})
				return
			}
			all = all[1:2]
		}
		_ = json.NewEncoder(out.Channel(transport.ChannelStdout)).Encode(all)
		_ = out.End(transport.ExecEnd{})
	}))
	got := read[api.VolumesReply](t, w.want(200, "GET", "/v1/volumes?node=n1", nil))
	want := api.VolumesReply{Items: []api.VolumeView{
		{
			Node: "n1", Name: "default/db/data", Path: "/v/1", Pin: true,
			Owner: "default/service/db", Used: 7, Counted: noon,
			Size: 9, Free: 2, By: []cluster.TaskID{"default.db.1.0"},
		},
		{Node: "n1", Name: "default/old/data", Path: "/v/2", Until: noon},
		{Node: "n1", HostVolume: "models", Path: "/m", ReadOnly: true},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	if v := read[api.VolumeView](t,
		w.want(200, "POST", "/v1/volumes/remove",
			api.VolumeRemove{Node: "n1", Name: "default/old/data"})); v.Name != "default/old/data" {
		t.Errorf("removed %+v", v)
	}
	if got := w.want(409, "POST", "/v1/volumes/remove",
		api.VolumeRemove{Node: "n1", Name: "default/db/data"}); !strings.Contains(string(got.body),
		"belongs to default/service/db, whose next task") {
		t.Errorf("%s", got.body)
	}
	if len(asked) != 1 {
		t.Errorf("the node got requests for %q", asked)
	}
	if got := w.want(422, "POST", "/v1/volumes/remove",
		api.VolumeRemove{Node: "n1", Name: "default/db/data", Force: true}); !strings.Contains(string(got.body),
		"in use by task") {
		t.Errorf("%s", got.body)
	}
	if got := w.want(422, "POST", "/v1/volumes/remove",
		api.VolumeRemove{Node: "nowhere", Name: "data"}); strings.Count(string(got.body), `"path"`) != 2 {
		t.Errorf("%s", got.body)
	}
	w.nodes.set(agent(func(transport.StreamRequest, net.Conn) {})) // an agent that is too old
	old := read[api.VolumesReply](t, w.want(200, "GET", "/v1/volumes", nil))
	if len(old.Faults) != 1 || !strings.Contains(old.Faults[0].Message, "too old") {
		t.Errorf("%+v", old)
	}
}
