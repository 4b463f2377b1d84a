package main

import (
	"reflect"
	"testing"

	"github.com/berthd/berth/internal/cluster"
)

func TestDescriptions(t *testing.T) {
	w := newWording(map[string]reflect.Type{
		"TaskDefinition": reflect.TypeFor[cluster.TaskDefinition](),
		"Container":      reflect.TypeFor[cluster.Container](), "Ref": reflect.TypeFor[cluster.Ref](),
	})
	for name, test := range map[string]struct{ comment, want string }{
		"cluster.TaskDefinition.MinHealthyTime": {
			"MinHealthyTime is how long a task runs (P4.7). default 1 s",
			"min_healthy_time is how long a task runs. Default 1 s.",
		},
		"cluster.Container.Command": {
			"Command replaces the entry point; Args only its arguments. Args are words.",
			"Command replaces the entry point; args only its arguments. Args are words.",
		},
		"cluster.Cluster.Domain":      {"default DefaultDomain", "Default default."},
		"cluster.Container.Digest":    {"Digest is one. Writer: the server.", "Digest is one."},
		"cluster.Container.User":      {`User is "Name" unless nil`, `User is "Name" unless it is left out.`},
		"cluster.Container.Name":      {"", usualFields()["name"]},
		"cluster.Container":           {"Container is one process of a task (ADR 0040).", "One process of a task."},
		"cluster.PullPolicy":          {"PullPolicy says when.", "The policy says when."},
		"cluster.Bytes":               {"Bytes is a size.", quantities()["Bytes"]},
		"cluster.Service":             {"Service keeps tasks. Writer: the user.", "Service keeps tasks."},
		"cluster.Container.Something": {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := w.descriptions(map[string]string{name: test.comment})[name]; got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// The limits in the schema are those that objects have: defaults, and the bounds of the validation.
func TestLimits(t *testing.T) {
	all := findLimits()
	for key, want := range map[string]string{
		"TaskDefinition.Grace": `"10s"`, "Service.Priority": "500", "Cron.KeepFailed": "3", "Tmpfs.Size": `"64 MiB"`,
		"Service.Mode": `"replicas"`, "Placement.AntiAffinity": "", // differs between services and jobs
	} {
		if got := string(all.defaults[key]); got != want {
			t.Errorf("default of %s: got %s, want %s", key, got, want)
		}
	}
	for key, want := range map[string][2]string{
		"TaskDefinition.Grace": {"1ms", "1h"}, "Service.Priority": {"1", "1000"}, "Step.Retries": {"0", "49"},
		"Resources.Memory": {"1 MiB", "1024 TiB"}, "Update.MinHealthy": {"0", "100000"},
		"ScalePace.Window": {"0s", "168h"},
		"Port.Port":        {"1", "65535"}, "Container.Name": {},
	} {
		if got := all.bounds[key]; got != want {
			t.Errorf("bounds of %s: got %v, want %v", key, got, want)
		}
	}
	if len(all.bounds) < 40 || len(all.defaults) < 30 {
		t.Errorf("%d bounds and %d defaults: too few were found", len(all.bounds), len(all.defaults))
	}
}
