package schema

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/jsonfields"
)

type colour string

func (colour) Values() []colour { return []colour{"red", "green"} }

// tree contains itself.
type tree struct {
	Name  string         `json:"name"`
	Below []*tree        `json:"below"`
	Paint colour         `json:"paint,omitempty"`
	Sizes map[string]int `json:"sizes,omitempty"`
}

type page[T any] struct {
	Items []T `json:"items"`
}

type list []string

func TestSchemas(t *testing.T) {
	strict, stored := Options{Refs: "#/$defs/", Strict: true}, Options{Refs: "#/$defs/", Stored: true}
	type whole struct {
		Bytes   []byte          `json:"bytes"`
		Raw     json.RawMessage `json:"raw"`
		At      time.Time       `json:"at,omitzero"`
		Number  float64         `json:"number,omitempty"`
		Counted uint16          `json:"counted" zero:"refused"`
		List    list            `json:"list"`
		Either  *bool           `json:"either"`
	}
	for _, test := range []struct {
		name    string
		options Options
		typ     reflect.Type
		want    string
	}{
		{"a type that contains itself", strict, reflect.TypeFor[tree](), `
colour {"type":"string","enum":["red","green"]}
tree {"type":"object","properties":{"name":{"type":"string"},"below":{"type":"array","items":{"$ref":"#/$defs/tree"}},` +
			`"paint":{"$ref":"#/$defs/colour"},` +
			`"sizes":{"type":"object","additionalProperties":{"type":"integer","minimum":0}}},` +
			`"required":["name","below"],"additionalProperties":false}
`},
		{"as it is written", Options{Refs: "#/components/"}, reflect.TypeFor[page[tree]](), `
colour {"type":"string","enum":["red","green"]}
tree {"type":"object","properties":{"name":{"type":"string"},` +
			`"below":{"type":["array","null"],"items":{"$ref":"#/components/tree"}},` +
			`"paint":{"$ref":"#/components/colour"},` +
			`"sizes":{"type":"object","additionalProperties":{"type":"integer"}}},"required":["name","below"]}
treepage {"type":"object","properties":{"items":{"type":["array","null"],"items":{"$ref":"#/components/tree"}}},` +
			`"required":["items"]}
`},
		{"all kinds", stored, reflect.TypeFor[whole](), `
list {"type":"array","items":{"type":"string"}}
whole {"type":"object","properties":{"bytes":{"type":["string","null"],"contentEncoding":"base64"},` +
			`"raw":{"description":"any JSON value"},"at":{"type":"string","format":"date-time"},` +
			`"number":{"type":"number"},"counted":{"type":"integer","minimum":1},` +
			`"list":{"anyOf":[{"$ref":"#/$defs/list"},{"type":"null"}]},"either":{"type":["boolean","null"]}},` +
			`"required":["bytes","raw","counted","list","either"]}
`},
		{"a quantity that people write", strict, reflect.TypeFor[cluster.MilliCPU](), `
MilliCPU {"description":"CPU time: \"500m\" or 0.5; written as \"500m\"","type":["string","number"],` +
			`"pattern":"^([0-9]+m|[0-9]+(\\.[0-9]+)?)$","minimum":0}
`},
		{"a quantity that Berth writes", stored, reflect.TypeFor[cluster.MilliCPU](), `
MilliCPU {"type":"string","pattern":"^-?[0-9]+m$"}
`},
		{"another name", stored, reflect.TypeFor[cluster.Change](), `
ServiceChange {"type":"string","enum":["restart","signal","noop"]}
`},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := New(test.options)
			g.Of(test.typ)
			var got strings.Builder
			got.WriteByte('\n')
			for _, name := range slices.Sorted(slices.Values(g.Defs.Names)) {
				n, err := Marshal(g.Defs.Get(name))
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&got, "%s %s\n", name, n)
			}
			if diff := cmp.Diff(test.want, got.String()); diff != "" {
				t.Errorf("definitions (-want +got):\n%s", diff)
			}
		})
	}
}

// A hidden field is accepted, but is no property that an editor offers.
func TestHiddenFields(t *testing.T) {
	hidden := func(f jsonfields.Field) bool { return f.Name == "name" || f.Name == "sizes" }
	g := New(Options{Strict: true, Hidden: hidden})
	g.Of(reflect.TypeFor[tree]())
	n, err := Marshal(g.Defs.Get("tree"))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"type":"object","properties":{"below":{"type":"array","items":{"$ref":"tree"}},"paint":{"$ref":"colour"}},` +
		`"required":["below"],"patternProperties":{"^(name|sizes)$":{}},"additionalProperties":false}`
	if got := string(n); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Comments and the function for fields complete the schemas.
func TestDescriptions(t *testing.T) {
	g := New(Options{
		Comments: map[string]string{"schema.tree": "A tree.", "schema.tree.Paint": "Its paint."},
		Field: func(f jsonfields.Field, n *Node) {
			if f.Name == "name" {
				n.MaxLength = 63
			}
		},
	})
	g.Of(reflect.TypeFor[tree]())
	def := g.Defs.Get("tree")
	if got, want := def.Description, "A tree."; got != want {
		t.Errorf("type: got %q, want %q", got, want)
	}
	if got, want := def.Properties.Get("paint").Description, "Its paint."; got != want {
		t.Errorf("field: got %q, want %q", got, want)
	}
	if got := def.Properties.Get("name").MaxLength; got != 63 {
		t.Errorf("length: got %d, want 63", got)
	}
}

type foreign struct{}

func (foreign) MarshalJSON() ([]byte, error) { return []byte("1"), nil }

// A type without a schema, and two types with one name, are faults of the program.
func TestFaultsOfTheProgram(t *testing.T) {
	inner := func() reflect.Type {
		type tree struct{}
		return reflect.TypeFor[tree]()
	}()
	for name, types := range map[string][]reflect.Type{
		"writes its own JSON": {reflect.TypeFor[foreign]()},
		"no schema":           {reflect.TypeFor[struct{ C chan int }]()},
		"one name":            {reflect.TypeFor[tree](), inner},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("got no panic")
				}
			}()
			g := New(Options{})
			for _, typ := range types {
				g.Of(typ)
			}
		})
	}
}
