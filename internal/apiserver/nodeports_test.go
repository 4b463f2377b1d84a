package apiserver

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// TestReservedPorts does everything twice: the second time nothing is written. An event names the ports that changed.
func TestReservedPorts(t *testing.T) {
	w := newWorld(t)
	w.put(map[string]any{"node/n1": cluster.Node{Name: "n1", State: cluster.NodeReady, Domain: "default"}})
	for _, step := range []struct {
		verb, body string
		want       []cluster.PortRange
	}{
		{"unreserve-ports", `{"ports": ["22"]}`, nil}, // no settings yet, and none are made
		{"reserve-ports", `{"ports": ["8000-8100", "22"]}`, []cluster.PortRange{"22", "8000-8100"}},
		{"reserve-ports", `{"ports": ["23", "8050-8101"]}`, []cluster.PortRange{"22-23", "8000-8101"}},
		{"unreserve-ports", `{"ports": ["8001-8099", "9000"]}`, []cluster.PortRange{"22-23", "8000", "8100-8101"}},
		{"pool", `{"pool": "gpu"}`, []cluster.PortRange{"22-23", "8000", "8100-8101"}},
		{"unreserve-ports", `{"ports": ["1-4000", "8000-8101"]}`, nil},
	} {
		first := read[api.NodeView](t, w.want(200, "POST", "/v1/nodes/n1/"+step.verb, step.body))
		h, _ := w.host("n1")
		if diff := cmp.Diff(step.want, h.ReservedPorts); diff != "" {
			t.Errorf("%s %s: (-want +got):\n%s", step.verb, step.body, diff)
		}
		if diff := cmp.Diff(step.want, first.ReservedPorts); diff != "" {
			t.Errorf("%s %s: the answer shows (-want +got):\n%s", step.verb, step.body, diff)
		}
		again := read[api.NodeView](t, w.want(200, "POST", "/v1/nodes/n1/"+step.verb, step.body))
		if again.Revision != first.Revision {
			t.Errorf("%s %s again wrote something", step.verb, step.body)
		}
	}
	var got []string
	for e := range w.tables.Snapshot().EventBatches() {
		for _, one := range e.Value.Events {
			got = append(got, one.Type+" "+one.Node+": "+one.Message)
		}
	}
	want := []string{
		"node-settings.created n1: ports 22,8000-8100 reserved",
		"node-settings.updated n1: ports 23,8101 reserved",
		"node-settings.updated n1: ports 8001-8099 not reserved any more",
		"node-settings.updated n1: put into the pool gpu",
		"node-settings.updated n1: ports 22-23,8000,8100-8101 not reserved any more",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestReservedPortFaults(t *testing.T) {
	w := newWorld(t)
	w.put(map[string]any{"node/n1": cluster.Node{Name: "n1", State: cluster.NodeReady, Domain: "default"}})
	const kind = " is not a port or a range of ports: want numbers from 1 to 65535, such as 22 or 8000-8100"
	for _, tt := range []struct{ verb, body, want string }{
		{"reserve-ports", `{"ports": []}`, "ports: holds 0 ports and ranges, want 1 to 4096"},
		{"unreserve-ports", `{}`, "ports: holds 0 ports and ranges, want 1 to 4096"},
		{
			"reserve-ports", `{"ports": ["0", "22", "9-8"]}`,
			`ports[0]: "0"` + kind + `; ports[2]: "9-8"` + kind,
		},
		{"unreserve-ports", `{"ports": ["ssh"]}`, `ports[0]: "ssh"` + kind},
		{"reserve-ports", `{"port": ["1"]}`, `port: is not a known field; did you mean "ports"?`},
	} {
		if got := w.want(422, "POST", "/v1/nodes/n1/"+tt.verb, tt.body).faults(); got != tt.want {
			t.Errorf("%s %s:\ngot  %s\nwant %s", tt.verb, tt.body, got, tt.want)
		}
	}
	if _, ok := w.host("n1"); ok {
		t.Error("a refused request wrote settings")
	}
	// The number of reserved ports is limited, whichever request adds them.
	const tooMany = "reserved_ports: names 5000 ports, at most 4096 are allowed"
	w.want(409, "POST", "/v1/nodes/n1/reserve-ports", `{"ports": ["1-5000"]}`)
	w.want(200, "POST", "/v1/nodes/n1/reserve-ports", `{"ports": ["1-4000"]}`)
	r := w.want(409, "POST", "/v1/nodes/n1/reserve-ports", `{"ports": ["5000-5999"]}`)
	if got := r.problem().Detail; !strings.Contains(got, tooMany) {
		t.Errorf("got %s, want %s in it", got, tooMany)
	}
	w.want(404, "POST", "/v1/nodes/n9/reserve-ports", `{"ports": ["1"]}`)
	w.want(412, "POST", "/v1/nodes/n1/reserve-ports", `{"ports": ["1"]}`, "If-Match", `"1"`)
	w.want(422, "PUT", "/v1/nodes/n1", `{"reserved_ports": ["x"]}`)
	w.want(200, "PUT", "/v1/nodes/n1", `{"reserved_ports": ["80"]}`)
	if h, _ := w.host("n1"); len(h.ReservedPorts) != 1 || h.ReservedPorts[0] != "80" {
		t.Errorf("after a PUT: %v", h.ReservedPorts)
	}
}
