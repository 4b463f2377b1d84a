package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
)

// registered is a definition with one port that is registered in Consul.
func registered(services ...cluster.ConsulService) *cluster.TaskDefinition {
	d := plainDefinition()
	d.Ports = []cluster.Port{{Name: "http"}}
	d.Discovery.Consul = services
	return d
}

func TestDiscoveryFaults(t *testing.T) {
	t.Parallel()
	one := func(s cluster.ConsulService) *cluster.TaskDefinition { return registered(s) }
	native := func(checks ...cluster.Check) *cluster.TaskDefinition {
		d := one(cluster.ConsulService{Checks: cluster.ConsulNative})
		d.Checks = checks
		return d
	}
	many := func(n int) (words []string, meta map[string]string) {
		meta = map[string]string{}
		for i := range n {
			words = append(words, fmt.Sprint("w", i))
			meta[fmt.Sprint("w", i)] = "x"
		}
		return words, meta
	}
	tags, _ := many(cluster.MaxConsulTags + 1)
	_, meta := many(cluster.MaxConsulMeta + 1)
	for name, test := range map[string]struct {
		def  *cluster.TaskDefinition
		want []string
	}{
		"nothing":   {registered(), nil},
		"an entry":  {one(cluster.ConsulService{}), nil},
		"two names": {registered(cluster.ConsulService{Name: "a"}, cluster.ConsulService{Name: "b"}), nil},
		"the same twice": {registered(cluster.ConsulService{}, cluster.ConsulService{Port: "http"}), []string{
			"discovery.consul[1]: has the name and the port of discovery.consul[0]",
		}},
		"too many": {registered(make([]cluster.ConsulService, cluster.MaxConsulServices+1)...), append(
			[]string{"discovery.consul: holds 21 services, at most 20"},
			slices.Repeat([]string{"discovery.consul[n]: has the name and the port"}, cluster.MaxConsulServices)...)},
		"a name": {one(cluster.ConsulService{Name: "Web_1"}), []string{
			`discovery.consul[0].name: "Web_1" is not a name`,
		}},
		"an unknown port": {one(cluster.ConsulService{Port: "htp"}), []string{
			`discovery.consul[0].port: "htp" is not the name of one of the definition's ports`,
		}},
		"which port": {func() *cluster.TaskDefinition {
			d := one(cluster.ConsulService{})
			d.Ports = append(d.Ports, cluster.Port{Name: "admin"})
			return d
		}(), []string{"discovery.consul[0].port: is missing: the definition has several ports"}},
		"no port": {func() *cluster.TaskDefinition {
			d := one(cluster.ConsulService{})
			d.Ports = nil
			return d
		}(), nil},
		"tags": {one(cluster.ConsulService{Tags: []string{"", "a", "a", "b\n", strings.Repeat("x", 256)}}), []string{
			`discovery.consul[0].tags[0]: "" is not a tag`,
			`discovery.consul[0].tags[2]: "a" is repeated`,
			"discovery.consul[0].tags[3]: is not a tag",
			"discovery.consul[0].tags[4]: is not a tag",
		}},
		"too many tags": {one(cluster.ConsulService{Tags: tags}), []string{"discovery.consul[0].tags: holds 65 tags"}},
		"meta": {one(cluster.ConsulService{Meta: map[string]string{
			"a b": "x", "berth-task": "x", "consul-x": "x", "long": strings.Repeat("x", 513), "ok_1-A": "x",
		}}), []string{
			`discovery.consul[0].meta["a b"]: is not a key of Consul's metadata`,
			`discovery.consul[0].meta["berth-task"]: begins with berth-`,
			`discovery.consul[0].meta["consul-x"]: begins with consul-`,
			`discovery.consul[0].meta["long"]: has a value that is longer than 512`,
		}},
		"too much meta": {one(cluster.ConsulService{Meta: meta}), []string{"discovery.consul[0].meta: holds 49 keys"}},
		"checks": {one(cluster.ConsulService{Checks: "script"}), []string{
			`discovery.consul[0].checks: is "script", want one of ttl, native`,
		}},
		"native without a check": {native(), []string{"discovery.consul[0].checks: has no readiness check"}},
		"native with liveness only": {native(cluster.Check{
			Type: cluster.CheckTCP, Meaning: cluster.MeaningLiveness,
		}), []string{"discovery.consul[0].checks: has no readiness check"}},
		"native": {native(cluster.Check{Type: cluster.CheckHTTP}, cluster.Check{
			Type: cluster.CheckExec, Command: []string{"true"}, Meaning: cluster.MeaningLiveness,
		}), nil},
		"native with statuses": {native(cluster.Check{
			Type: cluster.CheckHTTP, Statuses: []cluster.StatusRange{{First: 401, Last: 401}},
		}), []string{"discovery.consul[0].checks: is native, but Consul accepts the statuses 200 to 299 only"}},
		"native with a command": {native(cluster.Check{Type: cluster.CheckTCP}, cluster.Check{
			Type: cluster.CheckExec, Command: []string{"true"},
		}, cluster.Check{Type: cluster.CheckTTL}), []string{
			`discovery.consul[0].checks: cannot make the readiness check "exec" of type exec`,
			`discovery.consul[0].checks: cannot make the readiness check "ttl" of type ttl`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faults := cluster.FaultsOf(test.def.Validate())
			if len(faults) != len(test.want) {
				t.Fatalf("got %v, want %q", faults, test.want)
			}
			for i, f := range faults {
				path, part, _ := strings.Cut(test.want[i], ": ")
				path = strings.ReplaceAll(path, "[n]", fmt.Sprintf("[%d]", i))
				if f.Path != path || !strings.Contains(f.Message, part) {
					t.Errorf("got %s, want %s", f, test.want[i])
				}
			}
		})
	}
}

func TestDiscoveryDefaults(t *testing.T) {
	t.Parallel()
	d := registered(cluster.ConsulService{}, cluster.ConsulService{Name: "x", Checks: cluster.ConsulNative})
	given := slices.Clone(d.Discovery.Consul)
	_ = d.Validate()
	if diff := cmp.Diff(given, d.Discovery.Consul); diff != "" {
		t.Errorf("Validate changed the definition:\n%s", diff)
	}
	d.SetDefaults()
	want := []cluster.ConsulService{
		{Port: "http", Checks: cluster.ConsulTTL},
		{Name: "x", Port: "http", Checks: cluster.ConsulNative},
	}
	if diff := cmp.Diff(want, d.Discovery.Consul); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	for _, test := range []struct {
		service       cluster.ConsulService
		cluster, want string
	}{
		{cluster.ConsulService{}, cluster.DefaultCluster, "web"},
		{cluster.ConsulService{}, "shop", "shop-web"},
		{cluster.ConsulService{Name: "front"}, "shop", "front"},
	} {
		owner := cluster.OwnerRef{Cluster: test.cluster, Kind: cluster.KindService, Name: "web"}
		if got := test.service.ServiceIn(owner); got != test.want {
			t.Errorf("%q in cluster %s: got the name %q, want %q", test.service.Name, test.cluster, got, test.want)
		}
	}
}

// TestDiscoveryNeedsItsNode checks that registered tasks want a node whose agent uses Consul, and that others do not.
func TestDiscoveryNeedsItsNode(t *testing.T) {
	t.Parallel()
	if needs := registered().Needs(); len(needs) != 0 {
		t.Errorf("a definition without a registration needs %v", needs)
	}
	want := []cluster.Constraint{{Attribute: "label.berth.discovery", Op: cluster.OpEqual, Value: "consul"}}
	if diff := cmp.Diff(want, registered(cluster.ConsulService{}).Needs()); diff != "" {
		t.Errorf("needs (-want +got):\n%s", diff)
	}
	facts := cluster.Facts{Discovery: cluster.DiscoveryFact{Name: "consul", Problem: "consul does not answer"}}
	if got := facts.CapabilityLabels()[cluster.LabelDiscovery]; got != "consul" {
		t.Errorf("an agent with Consul has the label %q, want consul", got)
	}
	if _, ok := (&cluster.Facts{}).CapabilityLabels()[cluster.LabelDiscovery]; ok {
		t.Error("an agent without a system for discovery has the label")
	}
}
