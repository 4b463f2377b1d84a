package cluster_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
)

// plainDefinition requests nothing that needs a permission.
func plainDefinition() *cluster.TaskDefinition {
	d := &cluster.TaskDefinition{
		Name: "web", Version: 1, Network: cluster.NetworkBridge,
		Containers: []cluster.Container{{Name: "main", Image: "web:1"}},
	}
	d.SetDefaults()
	return d
}

// Each field that reaches beyond the task needs its own permission, and nothing else does.
func TestPrivileges(t *testing.T) {
	t.Parallel()
	main := func(change func(*cluster.Container)) func(*cluster.TaskDefinition) {
		return func(d *cluster.TaskDefinition) { change(&d.Containers[0]) }
	}
	user := func(name string) func(*cluster.TaskDefinition) {
		return main(func(c *cluster.Container) { c.User = name })
	}
	for name, tc := range map[string]struct {
		change func(*cluster.TaskDefinition)
		want   string // the permission and the path, or none
	}{
		"nothing":    {func(*cluster.TaskDefinition) {}, ""},
		"no network": {func(d *cluster.TaskDefinition) { d.Network = cluster.NetworkNone }, ""},
		"host network": {func(d *cluster.TaskDefinition) {
			d.Network = cluster.NetworkHost
		}, "host-network network"},
		"network left out": {func(d *cluster.TaskDefinition) { d.Network = "" }, "host-network network"},
		"a user":           {user("1000:100"), ""},
		"a name like root": {user("rooted"), ""},
		"root":             {user("root"), "root containers[0].user"},
		"0":                {user("0"), "root containers[0].user"},
		"00":               {user("00:1000"), "root containers[0].user"},
		"-0":               {user("-0"), "root containers[0].user"},
		"the group root":   {user("1000:root"), "root containers[0].user"},
		"the group 0":      {user("www-data:0"), "root containers[0].user"},
		"isolation":        {main(func(c *cluster.Container) { c.Isolation = cluster.IsolationRequired }), ""},
		"no isolation": {main(func(c *cluster.Container) {
			c.Isolation = cluster.IsolationNone
		}), "no-isolation containers[0].isolation"},
		"capabilities": {main(func(c *cluster.Container) {
			c.Capabilities = []string{"CHOWN"}
		}), "capabilities containers[0].capabilities"},
		"devices": {main(func(c *cluster.Container) {
			c.Resources.Devices = []cluster.DeviceRequest{{Count: 1}}
		}), "devices containers[0].resources.devices"},
		"own cores": {main(func(c *cluster.Container) {
			c.Resources.CPU, c.Resources.CPUPinning = 1000, cluster.PinCores
		}), ""},
		"a registration in consul": {func(d *cluster.TaskDefinition) {
			d.Discovery.Consul = []cluster.ConsulService{{}}
		}, "discovery discovery.consul"},
		"a volume": {func(d *cluster.TaskDefinition) { d.Volumes = []cluster.Volume{{Name: "data"}} }, ""},
		"a declared volume": {func(d *cluster.TaskDefinition) {
			d.Volumes = []cluster.Volume{{Name: "data", HostVolume: "models"}}
		}, ""},
		"a path": {func(d *cluster.TaskDefinition) {
			d.Volumes = []cluster.Volume{{Name: "data"}, {Name: "etc", Host: "/etc"}}
		}, "host-path volumes[1].host"},
		"an image of the node": {main(func(c *cluster.Container) {
			c.ImageSource.Source = "file:///srv/web.tar"
		}), "host-path containers[0].image_source.source"},
		"an artifact of an address": {main(func(c *cluster.Container) {
			c.Artifacts = []cluster.Artifact{{Source: "https://files.example/tool", Path: "/tool"}}
		}), ""},
		"an artifact of the node": {main(func(c *cluster.Container) {
			c.Artifacts = []cluster.Artifact{{Source: "file:///srv/tool", Path: "/tool"}}
		}), "host-path containers[0].artifacts[0].source"},
	} {
		d := plainDefinition()
		tc.change(d)
		var got []string
		for _, p := range d.Privileges() {
			got = append(got, string(p.Permission)+" "+p.Path)
		}
		if strings.Join(got, "; ") != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

// A cluster that lacks permissions gets one fault for each, with its remedy. A cluster with all permissions gets none.
func TestCheckPermissions(t *testing.T) {
	t.Parallel()
	d := plainDefinition()
	d.Network = ""
	d.Discovery.Consul = []cluster.ConsulService{{}}
	d.Volumes = []cluster.Volume{{Name: "etc", Host: "/etc"}}
	c := &d.Containers[0]
	c.User, c.Isolation, c.Capabilities = "root", cluster.IsolationNone, []string{"SYS_ADMIN"}
	c.Resources.Devices = []cluster.DeviceRequest{{Count: 1}}
	in := &cluster.Cluster{Name: "shop"}
	faults := in.CheckPermissions("steps[0].definition", d)
	if len(faults) != len(cluster.Permissions()) {
		t.Errorf("%d faults, want one for each of %d permissions: %v", len(faults), len(cluster.Permissions()), faults)
	}
	want := cluster.Fault{
		Path: "steps[0].definition",
		Message: `web@1: containers[0].user is "root", which needs the permission root, and cluster shop does not have it: ` +
			"name another user, or ask an admin to add root to the permissions of the cluster",
	}
	if diff := cmp.Diff(want, faults[0]); diff != "" {
		t.Errorf("the first fault (-want +got):\n%s", diff)
	}
	for i, p := range cluster.Permissions() {
		in.Permissions = cluster.Permissions()[:i+1]
		for _, f := range in.CheckPermissions("", d) {
			if strings.Contains(f.Message, "the permission "+string(p)+",") {
				t.Errorf("with %v: %v", in.Permissions, f)
			}
		}
	}
	if faults := in.CheckPermissions("", d); faults != nil {
		t.Errorf("with all permissions: %v", faults)
	}
}

func TestPermissionsOfClusters(t *testing.T) {
	t.Parallel()
	c := &cluster.Cluster{Name: "shop", Permissions: []cluster.Permission{"root", "sudo", "root"}}
	err := c.Validate()
	for _, want := range []string{
		`permissions[1]: is "sudo", want one of capabilities, devices`,
		`permissions[2]: "root" is repeated`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	for text, want := range map[string]int{
		"": 0, "all": len(cluster.Permissions()), "root, host-network": 2,
		"root,root": 1,
	} {
		if got, err := cluster.ParsePermissions(text); err != nil || len(got) != want {
			t.Errorf("%q: got %v, %v; want %d permissions", text, got, err, want)
		}
	}
	if _, err := cluster.ParsePermissions("root,everything"); err == nil ||
		!strings.Contains(err.Error(), "everything") {
		t.Errorf("a permission that does not exist: %v", err)
	}
	if !cluster.SamePermissions([]cluster.Permission{"root", "devices"}, []cluster.Permission{"devices", "root"}) ||
		cluster.SamePermissions(nil, cluster.Permissions()) {
		t.Error("the order of permissions counts, or nothing does")
	}
}
