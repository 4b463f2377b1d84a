package fields

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func manifests(t *testing.T) *Document {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "manifest", "manifest.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestExplain(t *testing.T) {
	d := manifests(t)
	for _, test := range []struct {
		path string
		want Field // its description is the beginning
	}{
		{"service.count", Field{
			Path: "Service.count", Name: "count", Type: "whole number", Bounds: "0 to 100000",
			Description: "Count is the number of tasks to run",
		}},
		{"Service.update.healthy_deadline", Field{
			Path: "Service.update.healthy_deadline", Name: "healthy_deadline", Type: "duration", Default: "5m",
			Bounds: "1s to 168h", Description: "healthy_deadline is the time from placement",
		}},
		{"taskdefinition.containers.resources.memory", Field{
			Path: "TaskDefinition.containers.resources.memory", Name: "memory", Type: "size",
			Bounds: "1 MiB to 1024 TiB", Description: "Memory is reserved on the node.",
		}},
		{"definition.containers[0].tmpfs[2].size", Field{
			Path: "TaskDefinition.containers.tmpfs.size", Name: "size", Type: "size", Default: "64 MiB",
			Bounds: "1 B to 1024 TiB", Description: "Size is the most that the folder holds, which counts as memory of the container. Default 64 MiB. A size: bytes",
		}},
		{"service.mode", Field{
			Path: "Service.mode", Name: "mode", Type: "text", Default: "replicas",
			Values: []string{"replicas", "daemon"}, Description: "Mode says how many tasks there are",
		}},
		{"service.definition", Field{
			Path: "Service.definition", Name: "definition", Type: "reference, as name@version",
			Description: "Definition is the version of a task definition that the tasks run",
		}},
		{"taskdefinition.containers.command", Field{
			Path: "TaskDefinition.containers.command", Name: "command", Type: "list of texts",
			Description: "Command replaces the image's entry point",
		}},
		{"taskdefinition.containers.env", Field{
			Path: "TaskDefinition.containers.env", Name: "env", Type: "object of keys and values",
			Description: "Environment variables of the program, by name.",
		}},
		{"service.stopped", Field{
			Path: "Service.stopped", Name: "stopped", Type: "true or false", Description: "The service keeps its count",
		}},
	} {
		t.Run(test.path, func(t *testing.T) {
			got, err := d.Explain(test.path)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(got.Description, test.want.Description) {
				t.Errorf("description: got %q, want %q first", got.Description, test.want.Description)
			}
			got.Description = test.want.Description
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("field (-want +got):\n%s", diff)
			}
		})
	}
}

// An object, a list of objects and a kind have children, in the order of the schema.
func TestChildren(t *testing.T) {
	d := manifests(t)
	for path, want := range map[string]string{
		"cluster":                      "kind name labels domain constraints strategy preemption keep_jobs permissions quota queue",
		"taskdefinition.restart":       "mode limit window delay max_delay",
		"taskdefinition.ports":         "name port to",
		"job.steps.gang":               "deadline",
		"service.scaling.targets.port": "",
	} {
		f, err := d.Explain(path)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, child := range f.Children {
			names = append(names, child.Name)
			if child.Path != f.Path+"."+child.Name || child.Type == "" || child.Children != nil {
				t.Errorf("child %+v of %s", child, f.Path)
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

func TestUnknownFields(t *testing.T) {
	d := manifests(t)
	for path, want := range map[string]string{
		"servise":                   `there is no kind "servise": did you mean "Service"?`,
		"":                          `there is no kind "": want one of Domain, Cluster, Pool, Profile, TaskDefinition, Service, Job, Cron, Endpoint`,
		"service.updat":             `Service has no field "updat": did you mean "update"?`,
		"taskdefinition.ports.zzzz": `TaskDefinition.ports has no field "zzzz": want one of name, port, to`,
		"service.count.x":           `Service.count has no field "x": it is no object`,
	} {
		if _, err := d.Explain(path); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", path, err, want)
		}
	}
	if _, err := Parse("{"); err == nil {
		t.Error("half a schema: got no error")
	}
}

// Every field of every kind has a type and a description.
func TestEveryFieldIsExplained(t *testing.T) {
	d := manifests(t)
	explained := 0
	var visit func(path string)
	visit = func(path string) {
		f, err := d.Explain(path)
		if err != nil {
			t.Fatal(err)
		}
		explained++
		if f.Type == "value" || f.Description == "" {
			t.Errorf("%s: type %q, description %q", f.Path, f.Type, f.Description)
		}
		for _, child := range f.Children {
			visit(child.Path)
		}
	}
	for _, kind := range d.Kinds() {
		visit(kind)
	}
	if explained < 200 {
		t.Errorf("%d fields: too few", explained)
	}
}
