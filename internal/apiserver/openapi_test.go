package apiserver

import (
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/enum"
	"github.com/berthd/berth/internal/schema"
)

var write = flag.Bool("write", false, "write the generated description instead of comparing it")

func TestOpenAPI(t *testing.T) {
	const path = "../../api/openapi.yaml"
	doc := New(Config{}).documents.spec
	if *write {
		if err := os.WriteFile(path, doc.YAML(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(doc.YAML())); diff != "" {
		t.Errorf("api/openapi.yaml is not what the server serves; run go generate ./internal/apiserver "+
			"(-checked in +served):\n%s", diff)
	}
}

func TestOpenAPIIsComplete(t *testing.T) {
	s := New(Config{})
	var doc struct {
		Paths      map[string]map[string]map[string]any
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal(s.documents.spec.JSON, &doc); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, rt := range s.routes {
		op := doc.Paths[rt.Path][strings.ToLower(rt.Method)]
		if op == nil {
			t.Errorf("%s %s is not described", rt.Method, rt.Path)
		}
		names = append(names, rt.Name)
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != len(s.routes) {
		t.Error("two operations have the same name")
	}
	for _, name := range []string{
		"Service", "TaskDefinition", "ServiceView", "ServiceViewPage", "Problem",
		"TaskView",
	} {
		if doc.Components.Schemas[name] == nil {
			t.Errorf("schema %s is missing", name)
		}
	}
}

// TestOpenAPIEnumerations compares the values of each enumerated type with the list beside its constants.
// internal/archtest checks that the list is complete.
func TestOpenAPIEnumerations(t *testing.T) {
	s := New(Config{})
	var doc struct {
		Components struct {
			Schemas map[string]struct{ Enum []string }
		}
	}
	if err := json.Unmarshal(s.documents.spec.JSON, &doc); err != nil {
		t.Fatal(err)
	}
	known := schema.New(schema.Options{})
	for i := range s.routes {
		for _, typ := range []reflect.Type{s.routes[i].Body, s.routes[i].Reply} {
			if typ != nil {
				known.Of(typ)
			}
		}
	}
	seen := 0
	for name, typ := range known.Types {
		if typ.Kind() != reflect.String {
			continue
		}
		seen++
		want := enum.Words(typ)
		if got := doc.Components.Schemas[name].Enum; !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want the constants of %v: %v", name, got, typ, want)
		}
		free := []reflect.Type{
			reflect.TypeFor[cluster.TaskID](), reflect.TypeFor[cluster.ReasonCode](),
			reflect.TypeFor[cluster.PortRange](),
		}
		if len(want) == 0 && !slices.Contains(free, typ) {
			t.Errorf("%s: the type %v lists no values", name, typ)
		}
	}
	if seen < 30 {
		t.Errorf("%d types of text: this test checks too few", seen)
	}
}
