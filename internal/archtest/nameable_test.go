package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPublicTypesAreNameable(t *testing.T) {
	pkgs, err := loadExported(t.Context(), root, modulePath+"/api", modulePath+"/api/client")
	if err != nil {
		t.Fatal(err)
	}
	show(t, unnameable(pkgs))
}

// planted passes the checked packages to the packages that import them.
type planted map[string]*types.Package

func (p planted) Import(name string) (*types.Package, error) { return p[name], nil }

func TestNameableCanFail(t *testing.T) {
	known := planted{}
	for _, p := range []struct{ path, text string }{
		{modulePath + "/internal/nouns", `package nouns
			type Inner struct{ Size int }
			type Outer struct { Inner Inner; hidden Hidden }
			type Hidden struct{}
			type Mode string
			const ( ModeA Mode = "a"; ModeB Mode = "b" )
			type Answer struct{}`},
		{modulePath + "/api", `package api
			import "` + modulePath + `/internal/nouns"
			type Outer = nouns.Outer
			type Mode = nouns.Mode
			const ModeA = nouns.ModeA
			type View struct { Outer; Modes []Mode }`},
		{modulePath + "/api/client", `package client
			import ("` + modulePath + `/api"; "` + modulePath + `/internal/nouns")
			type Client struct{}
			func (*Client) Ask(func(map[string]api.View)) (*nouns.Answer, error) { return nil, nil }`},
	} {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, "planted.go", p.text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		conf := types.Config{Importer: known}
		if known[p.path], err = conf.Check(p.path, fset, []*ast.File{f}, nil); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, f := range unnameable([]*types.Package{known[modulePath+"/api"], known[modulePath+"/api/client"]}) {
		got = append(got, f.Text)
	}
	want := []string{
		"Mode has no constant for nouns.ModeB",
		modulePath + "/api.Outer.Inner mentions Inner, which other modules cannot name: give it an alias in " +
			"package api",
		modulePath + "/api/client.Client.Ask mentions Answer, which other modules cannot name: give it an " +
			"alias in package api",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}
