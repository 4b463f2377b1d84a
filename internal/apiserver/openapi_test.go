package apiserver

import (
	"encoding/json"
	"flag"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var write = flag.Bool("write", false, "write the generated description instead of comparing it")

func TestOpenAPI(t *testing.T) {
	const path = "../../api/openapi.yaml"
	doc := New(Config{}).spec
	if *write {
		if err := os.WriteFile(path, doc.yaml, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(doc.yaml)); diff != "" {
		t.Errorf("api/openapi.yaml is not what the server serves; run go generate ./internal/apiserver (-checked in +served):\n%s", diff)
	}
}

func TestOpenAPIIsWhole(t *testing.T) {
	s := New(Config{})
	var doc struct {
		Paths      map[string]map[string]map[string]any
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal(s.spec.json, &doc); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, rt := range s.routes {
		op := doc.Paths[rt.path][map[string]string{"GET": "get", "PUT": "put", "POST": "post", "DELETE": "delete"}[rt.method]]
		if op == nil {
			t.Errorf("%s %s is not described", rt.method, rt.path)
		}
		names = append(names, rt.name)
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != len(s.routes) {
		t.Error("two operations have the same name")
	}
	for _, name := range []string{"Service", "TaskDefinition", "ServiceView", "ServiceViewPage", "Problem", "TaskView"} {
		if doc.Components.Schemas[name] == nil {
			t.Errorf("schema %s is missing", name)
		}
	}
}
