package fleet

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/devices"
)

// keepers are services that keep devices.
var keepers = []cluster.OwnerRef{
	{Kind: cluster.KindService, Cluster: "c", Name: "a"},
	{Kind: cluster.KindService, Cluster: "c", Name: "b"},
	{Kind: cluster.KindService, Cluster: "b", Name: "z"},
}

// fewDevices draws some of five devices of a node.
func fewDevices(t *rapid.T) (list []cluster.Device) {
	for i, has := range rapid.SliceOfN(rapid.Bool(), 5, 5).Draw(t, "devices") {
		if has {
			list = append(list, cluster.Device{
				ID: fmt.Sprintf("gpu-%d", i), Type: "gpu", Model: []string{"T4", "A100"}[i%2], Memory: 40 * cluster.GiB,
				Numa: i / 3,
			})
		}
	}
	return list
}

func drawnRequests(t *rapid.T) (list []cluster.DeviceRequest) {
	for range rapid.IntRange(1, 2).Draw(t, "requests") {
		r := cluster.DeviceRequest{Type: "gpu", Count: rapid.IntRange(1, 3).Draw(t, "count")}
		if rapid.Bool().Draw(t, "of a model") {
			r.Models = []string{"A100"}
		}
		if rapid.Bool().Draw(t, "a share") {
			r.Count, r.Share, r.Memory = 1, 400, 10*cluster.GiB
		} else {
			r.OneNuma = rapid.Bool().Draw(t, "on one NUMA node")
		}
		list = append(list, r)
	}
	return list
}

// TestKeptDevicesFollowTheNode checks after each of many changes that a fleet uses the same devices as one that is
// built anew of the same node, reservations and kept room, and that no device is held that a task uses.
func TestKeptDevicesFollowTheNode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := New()
		var node *Node
		held, kept := map[string]Reservation{}, map[cluster.OwnerRef]KeptRoom{}
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			uuid := rapid.SampledFrom([]string{"u1", "u2", "u3"}).Draw(t, "attempt")
			owner := rapid.SampledFrom(keepers).Draw(t, "owner")
			switch rapid.IntRange(0, 6).Draw(t, "change") {
			case 0:
				node = &Node{
					Name: "n1", State: cluster.NodeReady, Capacity: cluster.Demand{CPU: 9000}, Devices: fewDevices(t),
				}
				f.SetNode(*node)
			case 1:
				f.RemoveNode("n1")
				node = nil
			case 2:
				var uses devices.Uses
				for _, d := range fewDevices(t) {
					uses = uses.Add(cluster.DeviceUse{ID: d.ID, Share: cluster.WholeDevice}, 1)
				}
				r := Reservation{UUID: uuid, Node: "n1", Demand: cluster.Demand{CPU: 100}, Devices: uses}
				f.Reserve(r)
				held[uuid] = r
			case 3:
				f.Release(uuid)
				delete(held, uuid)
			case 4, 5:
				k := KeptRoom{
					Owner: owner, Node: "n1", Demand: cluster.Demand{CPU: 100}, Devices: drawnRequests(t),
				}
				f.Keep(k)
				kept[owner] = k
			case 6:
				f.EndKeep(owner)
				delete(kept, owner)
			}
			if rapid.Bool().Draw(t, "go on with a copy") {
				f = f.Clone()
			}
			sameDevices(t, f, node, held, kept)
		}
	})
}

// sameDevices compares the devices of a fleet with those of a fleet that is built anew.
func sameDevices(t *rapid.T, f *Fleet, node *Node, held map[string]Reservation, kept map[cluster.OwnerRef]KeptRoom) {
	t.Helper()
	want := New()
	for _, uuid := range slices.Sorted(maps.Keys(held)) {
		want.Reserve(held[uuid])
	}
	for _, o := range keepers {
		if k, keeps := kept[o]; keeps {
			want.Keep(k)
		}
	}
	if node == nil {
		if _, found := f.byName["n1"]; found != (len(held)+len(kept) > 0) {
			t.Fatalf("the node has a slot: %v, with %d reservations and %d services", found, len(held), len(kept))
		}
		return
	}
	want.SetNode(*node)
	i, j := f.byName["n1"], want.byName["n1"]
	if diff := cmp.Diff(want.slots[j].devices, f.slots[i].devices, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("uses (-anew +got):\n%s", diff)
	}
	same := cmp.AllowUnexported(devices.Group{})
	if diff := cmp.Diff(want.slots[j].deviceGroups, f.slots[i].deviceGroups, same); diff != "" {
		t.Fatalf("groups (-anew +got):\n%s", diff)
	}
	tasks := map[string]bool{}
	for _, r := range held {
		for _, u := range r.Devices {
			tasks[u.ID] = true
		}
	}
	for o := range kept {
		k, _ := f.Kept(o)
		for _, u := range k.Held() {
			if tasks[u.ID] {
				t.Fatalf("%s is held for %v, and a task uses it", u.ID, o)
			}
		}
	}
}
