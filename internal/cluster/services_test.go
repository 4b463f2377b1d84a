package cluster_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
)

// follower is a definition that uses services in every way.
func follower() *cluster.TaskDefinition {
	return &cluster.TaskDefinition{
		Name: "web", Version: 1, Ports: []cluster.Port{{Name: "http"}},
		Containers: []cluster.Container{{
			Name: "main", Command: []string{"run"}, Env: map[string]string{"LEVEL": "info"},
			Secrets: []cluster.SecretUse{{Secret: "password", Env: "PASSWORD"}},
			Services: []cluster.ServiceUse{
				{Service: "db", Port: "sql", Env: "DB"},
				{Service: "cache", Cluster: "shared", Optional: true},
			},
			Files: []cluster.File{
				{
					Path: "/etc/app/app.conf", Template: true, OnChange: cluster.ChangeSignal,
					Content: `{{range service "cache.shared" "tcp"}}{{.}}{{end}}{{env "LEVEL"}}{{env "DB"}}{{env "PORT_HTTP"}}{{env "BERTH_NODE"}}`,
				},
				{Path: "/etc/app/static.conf", Content: "{{ as it is"},
				{Path: "/etc/other.conf", Content: "x"},
			},
		}},
	}
}

func TestServicesOfADefinition(t *testing.T) {
	t.Parallel()
	d := follower()
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	d.SetDefaults()
	c := &d.Containers[0]
	if c.Services[0].OnChange != cluster.ChangeRestart || c.Services[1].OnChange != "" || c.Files[0].Signal != "HUP" ||
		c.Files[1].OnChange != "" {
		t.Errorf("defaults: %+v, %+v", c.Services, c.Files)
	}
	shared := cluster.ServiceName{Cluster: "shared", Service: "cache"}
	want := []cluster.Need{
		{ServicePort: cluster.ServicePort{ServiceName: cluster.ServiceName{Service: "db"}, Port: "sql"}},
		{ServicePort: cluster.ServicePort{ServiceName: shared}, Optional: true},
		{ServicePort: cluster.ServicePort{ServiceName: shared, Port: "tcp"}, Optional: true},
	}
	if diff := cmp.Diff(want, c.Needs()); diff != "" {
		t.Errorf("needs (-want +got):\n%s", diff)
	}
	if got := d.Services("prod"); !slices.Equal(got, []cluster.ServiceName{{Cluster: "prod", Service: "db"}, shared}) {
		t.Errorf("uses %v", got)
	}
	if got := c.TemplateFolders(); !slices.Equal(got, []string{"/etc/app"}) {
		t.Errorf("folders %v", got)
	}
}

func TestFaultsOfServices(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*cluster.Container)
		path   string
		want   string
	}{
		"no port for a variable": {func(c *cluster.Container) {
			c.Services[0].Port = ""
		}, "containers[0].services[0].port", "want the name of the port of db whose addresses DB is to hold"},
		"a signal for a variable": {
			func(c *cluster.Container) { c.Services[0].OnChange = cluster.ChangeSignal },
			"containers[0].services[0].on_change", "the variables of a running program cannot change",
		},
		"no variable that could change": {func(c *cluster.Container) {
			c.Services[1].OnChange = cluster.ChangeNoop
		}, "containers[0].services[1].on_change", "is for entries with env"},
		"a variable twice": {func(c *cluster.Container) {
			c.Services[0].Env = "LEVEL"
		}, "containers[0].services[0].env", `"LEVEL" is set already`},
		"a variable of a secret": {func(c *cluster.Container) {
			c.Services[0].Env = "PASSWORD"
		}, "containers[0].services[0].env", "is set already"},
		"a variable of Berth": {func(c *cluster.Container) {
			c.Services[0].Env = "BERTH_DB"
		}, "containers[0].services[0].env", "reserved for variables"},
		"a bad name": {func(c *cluster.Container) {
			c.Services[0].Service = "Db"
		}, "containers[0].services[0].service", "Db"},
		"waited for and not": {
			func(c *cluster.Container) {
				c.Services = append(c.Services, cluster.ServiceUse{Service: "db", Optional: true})
			},
			"containers[0].services[2].optional", "differs from services[0]",
		},
		"a secret in a file": {
			func(c *cluster.Container) { c.Files[0].Content = "\n{{env \"PASSWORD\"}}" },
			"containers[0].files[0].content",
			"line 2: PASSWORD is a secret, and files made from templates are on the node's disk: pass " +
				"it with secrets",
		},
		"an unknown variable": {func(c *cluster.Container) {
			c.Files[0].Content = `{{env "DEGREE"}}`
		}, "containers[0].files[0].content", `line 1: the container has no variable "DEGREE"`},
		"an unknown field": {
			func(c *cluster.Container) {
				c.Files[0].Content = "\n{{range service \"db\" \"sql\"}}{{.Host}}{{end}}"
			}, "containers[0].files[0].content",
			"line 2: <.Host>: there is no field Host: want Address, Port, Node or Task",
		},
		"no data of its own": {func(c *cluster.Container) {
			c.Files[0].Content = "{{.Env}}"
		}, "containers[0].files[0].content", "there is no field Env: want service, env, node or task"},
		"syntax": {func(c *cluster.Container) {
			c.Files[0].Content = "\n\n{{end}}"
		}, "containers[0].files[0].content", "line 3: unexpected {{end}}"},
		"too much": {func(c *cluster.Container) {
			c.Files[0].Content = "{{range 1000000}}{{end}}"
		}, "containers[0].files[0].content", "its loops take more than"},
		"changes of a plain file": {func(c *cluster.Container) {
			c.Files[1].OnChange = cluster.ChangeNoop
		}, "containers[0].files[1].on_change", "is for files with template: true only"},
		"a bad change": {func(c *cluster.Container) {
			c.Files[0].OnChange, c.Files[0].Signal = "reload", ""
		}, "containers[0].files[0].on_change", "want one of restart, signal, noop"},
		"a bad signal": {func(c *cluster.Container) {
			c.Files[0].Signal = "KILL"
		}, "containers[0].files[0].signal", `"KILL" cannot be sent`},
		"a change of what ended": {func(c *cluster.Container) {
			c.Init = true
		}, "containers[0].files[0].on_change", "an init container has ended"},
		"a folder of the system": {
			func(c *cluster.Container) {
				c.Files[0].Path = "/etc/app.conf"
			}, "containers[0].files[0].path",
			`would hide the folder /etc: want a path in a folder of its own, such as "/etc/app/app.conf"`,
		},
		"a file below": {func(c *cluster.Container) {
			c.Files[2].Path = "/etc/app/more/x.conf"
		}, "containers[0].files[0].path", "hides the folder of /etc/app/more/x.conf (files[2])"},
		"a secret beside it": {func(c *cluster.Container) {
			c.Secrets[0] = cluster.SecretUse{Secret: "password", File: "/etc/app/password"}
		}, "containers[0].files[0].path", "secrets[0] overlap"},
		"memory over it": {func(c *cluster.Container) {
			c.Tmpfs = []cluster.Tmpfs{{Path: "/etc/app/tmp"}}
		}, "containers[0].files[0].path", "tmpfs[0] overlap"},
		"folders in each other": {
			func(c *cluster.Container) {
				c.Files[2] = cluster.File{Path: "/etc/app/d/x.conf", Template: true}
			},
			"containers[0].files[0].path", "the folder /etc/app/d overlap",
		},
	} {
		d := follower()
		if c.change(&d.Containers[0]); d.Containers[0].Init {
			d.Containers = append(d.Containers, cluster.Container{Name: "other", Command: []string{"run"}})
		}
		var found bool
		faults := cluster.FaultsOf(d.Validate())
		for _, f := range faults {
			found = found || f.Path == c.path && strings.Contains(f.Message, c.want)
		}
		if !found {
			t.Errorf("%s: got %v, want %s: %s", name, faults, c.path, c.want)
		}
	}
}
