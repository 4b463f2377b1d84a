package cluster

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestHandOut(t *testing.T) {
	node := []Device{
		{ID: "a", Type: "gpu", Model: "X", Memory: 40 * GiB},
		{ID: "b", Type: "gpu", Model: "Y", Memory: 80 * GiB},
		{ID: "c", Type: "gpu", Model: "Z", Memory: 80 * GiB},
		{ID: "cpu4", Type: CoreType},
		{ID: "cpu5", Type: CoreType},
		{ID: "f", Type: "fpga"},
	}
	all := func(ids ...string) (uses []DeviceUse) {
		for _, id := range ids {
			uses = append(uses, DeviceUse{ID: id, Share: WholeDevice})
		}
		return uses
	}
	asks := func(init bool, r ...DeviceRequest) Container {
		return Container{Name: "x", Init: init, Resources: Resources{Devices: r}}
	}
	for name, c := range map[string]struct {
		containers []Container
		uses       []DeviceUse
		want       [][]DeviceUse
		fault      string
	}{
		"none": {containers: []Container{asks(false)}, want: [][]DeviceUse{nil}},
		"one each": {[]Container{
			asks(false, DeviceRequest{Models: []string{"Y"}}), asks(false),
			asks(false, DeviceRequest{}),
		}, all("a", "b"), [][]DeviceUse{all("b"), nil, all("a")}, ""},
		"by lists of models that overlap": {
			[]Container{
				asks(false, DeviceRequest{Models: []string{"X", "Y"}}),
				asks(false, DeviceRequest{Models: []string{"X", "Z"}}),
			},
			all("a", "c"),
			[][]DeviceUse{all("a"), all("c")},
			"",
		},
		"by lists of models that only go one way round": {
			[]Container{
				asks(false, DeviceRequest{Models: []string{"X", "Y"}}),
				asks(false, DeviceRequest{Models: []string{"Z", "X"}}),
			},
			all("a", "b"),
			[][]DeviceUse{all("b"), all("a")},
			"",
		},
		"init containers have their pick": {
			[]Container{
				asks(true, DeviceRequest{Count: 2}), asks(true), asks(false, DeviceRequest{}),
				asks(false, DeviceRequest{Type: "fpga"}),
			},
			all("a", "b", "f"),
			[][]DeviceUse{all("a", "b"), nil, all("a"), all("f")},
			"",
		},
		"shares": {
			[]Container{
				asks(false, DeviceRequest{Share: 300, Memory: 10 * GiB}, DeviceRequest{Share: 200}),
				asks(false, DeviceRequest{Share: 400}),
			},
			[]DeviceUse{{ID: "a", Share: 900, Memory: 10 * GiB}},
			[][]DeviceUse{{{ID: "a", Share: 500, Memory: 10 * GiB}}, {{ID: "a", Share: 400}}},
			"",
		},
		"cores": {
			[]Container{
				{Resources: Resources{CPU: 1000, CPUPinning: PinCores}},
				{Resources: Resources{CPU: 1000, CPUPinning: PinNuma}},
				{Resources: Resources{CPU: 1000}},
			},
			all("cpu4", "cpu5"),
			[][]DeviceUse{all("cpu4"), all("cpu5"), nil},
			"",
		},
		"one that is gone": {
			[]Container{asks(false, DeviceRequest{})},
			all("z"), nil,
			"the node has no device z any more",
		},
		"one too few": {
			[]Container{asks(false, DeviceRequest{Count: 2})},
			all("a"), nil,
			"are not those that its containers request: [a]",
		},
		"too few for an init": {
			[]Container{asks(true, DeviceRequest{Count: 2}), asks(false, DeviceRequest{})},
			all("a"), nil, "are not those that container x requests",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := TaskDefinition{Containers: c.containers}
			got, err := d.AssignDevices(c.uses, node)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
				t.Errorf("error %v, want %q", err, c.fault)
			}
		})
	}
}

// The devices of a task suffice for each of its containers, and no device is assigned twice.
func TestHandOutCoversTheRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		request := rapid.Custom(func(t *rapid.T) DeviceRequest {
			r := DeviceRequest{Type: rapid.SampledFrom([]string{"gpu", "fpga"}).Draw(t, "type"), Count: 1}
			if rapid.Bool().Draw(t, "shared") {
				r.Share = rapid.IntRange(1, WholeDevice).Draw(t, "share")
			} else {
				r.Count = rapid.IntRange(1, 3).Draw(t, "count")
			}
			return r
		})
		d := TaskDefinition{Containers: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Container {
			return Container{
				Init:      rapid.Bool().Draw(t, "init"),
				Resources: Resources{Devices: rapid.SliceOfN(request, 0, 2).Draw(t, "devices")},
			}
		}), 1, 4).Draw(t, "containers")}
		var node []Device
		var uses []DeviceUse
		for i, r := range d.Devices() { // each unit gets a device of its own
			for j := range max(r.Count, 1) {
				dev := Device{ID: fmt.Sprintf("%s-%d-%d", r.Type, i, j), Type: r.Type}
				u := DeviceUse{ID: dev.ID, Share: WholeDevice}
				if r.Share > 0 {
					u.Share = r.Share
				}
				node, uses = append(node, dev), append(uses, u)
			}
		}
		given, err := d.AssignDevices(uses, node)
		if err != nil {
			t.Fatalf("%+v: %v", d.Containers, err)
		}
		left := map[string]int{}
		for _, u := range uses {
			left[u.ID] = u.Share
		}
		for i := range d.Containers {
			want, got := 0, 0
			for _, r := range d.Containers[i].Resources.Devices {
				if r.Share > 0 {
					want += r.Share
				} else {
					want += r.Count * WholeDevice
				}
			}
			for _, u := range given[i] {
				if got += u.Share; !d.Containers[i].Init {
					left[u.ID] -= u.Share
				}
			}
			if got != want {
				t.Fatalf("container %d got %d thousandths, requests %d", i, got, want)
			}
		}
		for id, rest := range left {
			if rest < 0 {
				t.Fatalf("%s was given away more than once", id)
			}
		}
	})
}
