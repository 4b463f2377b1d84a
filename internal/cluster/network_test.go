package cluster_test

import (
	"strings"
	"testing"

	"github.com/berthd/berth/internal/cluster"
)

func TestNetworkIsValidated(t *testing.T) {
	for name, c := range map[string]struct {
		fields string
		want   []string // parts of the faults, in order; none: it is valid
	}{
		"left out":       {`"ports": [{"name": "http"}]`, nil},
		"host":           {`"network": "host", "ports": [{"name": "http", "port": 80}]`, nil},
		"bridge":         {`"network": "bridge", "ports": [{"name": "http", "port": 8080, "to": 80}, {"name": "admin"}]`, nil},
		"none":           {`"network": "none"`, nil},
		"unknown":        {`"network": "overlay"`, []string{"network"}},
		"ports of none":  {`"network": "none", "ports": [{"name": "http"}]`, []string{"with network none"}},
		"to on the host": {`"ports": [{"name": "http", "to": 80}]`, []string{"ports[0].to"}},
		"to out of range": {
			`"network": "bridge", "ports": [{"name": "http"}, {"name": "x", "to": 65536}]`,
			[]string{"ports[1].to"},
		},
		"all faults together": {
			`"network": "none", "ports": [{"name": "a", "to": -1}, {"name": "b", "to": 1}]`,
			[]string{"ports", "ports[0].to"},
		},
		"both ports the same": {
			`"network": "bridge", "ports": [{"name": "a", "to": 80}, {"name": "b", "to": 80}]`,
			nil,
		},
	} {
		d := parse[cluster.TaskDefinition](t,
			`{"name": "web", "version": 1, "containers": [{"name": "a", "command": ["/x"]}], `+c.fields+`}`)
		err := d.Validate()
		if (err == nil) != (c.want == nil) {
			t.Errorf("%s: got %v, want faults %q", name, err, c.want)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want a fault about %q", name, err, want)
			}
		}
	}
}

func TestInsideNumbers(t *testing.T) {
	d := cluster.TaskDefinition{
		Network: cluster.NetworkBridge,
		Ports:   []cluster.Port{{Name: "http", To: 80}, {Name: "admin"}},
	}
	if http, admin := d.PortInside("http", 30001), d.PortInside("admin", 30002); http != 80 || admin != 30002 {
		t.Errorf("in a bridge: got %d and %d, want 80 and 30002", http, admin)
	}
	d.Network = ""
	if got := d.PortInside("http", 30001); got != 30001 {
		t.Errorf("on the node's network: got %d, want 30001", got)
	}
}

func TestLacksNetwork(t *testing.T) {
	facts := []cluster.NetworkFact{{Mode: cluster.NetworkBridge, Lacks: "no plugins"}, {Mode: cluster.NetworkNone}}
	for _, c := range []struct {
		facts []cluster.NetworkFact
		mode  cluster.NetworkMode
		want  string
	}{
		{nil, "", ""},
		{nil, cluster.NetworkHost, ""},
		{nil, cluster.NetworkNone, "network none: its agent offers no such network; the agent's log gives the reason"},
		{facts, cluster.NetworkBridge, "network bridge: no plugins"},
		{facts, cluster.NetworkNone, ""},
	} {
		if got := cluster.LacksNetwork(c.facts, c.mode); got != c.want {
			t.Errorf("network %q: got %q, want %q", c.mode, got, c.want)
		}
	}
}
