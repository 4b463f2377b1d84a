// Package schema describes Go types as JSON Schema 2020-12. The OpenAPI document, the schema of manifests and the
// schema of the store's records are made by it, so the three agree on every type.
//
// The generator is our own: of the libraries compared, invopop/jsonschema 0.14 has one type for a value and one prefix
// for references, and google/jsonschema-go 0.4 repeats each type wherever it is used.
package schema

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/enum"
	"github.com/berthd/berth/internal/jsonfields"
)

// Options are the differences between the documents.
type Options struct {
	// Refs is the prefix of the names of definitions in references, such as "#/$defs/".
	Refs string
	// Strict describes what people write: unknown fields, null and numbers below 0 are refused. Otherwise the schemas
	// describe what encoding/json writes, to which later builds may add fields.
	Strict bool
	// Stored describes only the form in which Berth writes a quantity. Otherwise the schemas also allow the other forms
	// that Berth reads.
	Stored bool
	// Comments are the descriptions of named types ("cluster.Service") and of fields ("cluster.Service.Count").
	Comments map[string]string
	// AsFields are types that write their own JSON, in the form that their fields have.
	AsFields []reflect.Type
	// Hidden, unless nil, says which fields are accepted but not shown: those that only servers write.
	Hidden func(f jsonfields.Field) bool
	// Field, unless nil, completes the schema of a field.
	Field func(f jsonfields.Field, n *Node)
}

// Generator makes schemas of types. Each named type of this module becomes a definition to which schemas refer.
type Generator struct {
	Options
	// Defs are the definitions in the order of their first use, and Types their types by name.
	Defs  Nodes
	Types map[string]reflect.Type
}

// New returns a generator without definitions.
func New(o Options) *Generator { return &Generator{Options: o, Types: map[string]reflect.Type{}} }

// Of returns the schema of a type: a reference for a named type of this module. It panics for a type that has no
// schema, and for two types with one name. Both are faults of the program that every test sees.
func (g *Generator) Of(t reflect.Type) *Node {
	if t.Kind() == reflect.Pointer {
		return g.Of(t.Elem())
	}
	if t.Name() == "" || !strings.Contains(t.PkgPath(), ".") { // a type of Go or its standard library
		return g.plain(t)
	}
	name := nameOf(t)
	switch other, known := g.Types[name]; {
	case !known:
		n := &Node{}
		g.Types[name] = t
		g.Defs.Set(name, n) // a type may contain itself
		*n = *g.plain(t)
		n.Enum = enum.Words(t)
		if text := g.Comments[t.String()]; text != "" {
			n.Description = text
		}
	case other != t:
		panic(fmt.Sprintf("two types have the name %s: %v and %v", name, other, t))
	}
	return &Node{Ref: g.Refs + name}
}

// nameOf returns the name of a type's definition: "ServiceView", or "ServiceViewPage" for a page of them.
func nameOf(t reflect.Type) string {
	switch t { // api.Version is the version of a build, and api.Change an effect of an apply
	case reflect.TypeFor[cluster.Version]():
		return "ServiceVersion"
	case reflect.TypeFor[cluster.Change]():
		return "ServiceChange"
	}
	name, inner, generic := strings.Cut(t.Name(), "[")
	if !generic {
		return name
	}
	inner = strings.TrimSuffix(inner, "]")
	return inner[strings.LastIndexByte(inner, '.')+1:] + name
}

// plain returns the schema of a type without its name.
func (g *Generator) plain(t reflect.Type) *Node {
	if n := g.special(t); n != nil {
		return n
	}
	ownForm := t.Implements(reflect.TypeFor[json.Marshaler]()) ||
		t.Implements(reflect.TypeFor[encoding.TextMarshaler]())
	if ownForm && !slices.Contains(g.AsFields, t) {
		panic(fmt.Sprintf("%v writes its own JSON and is not in the table of special types", t))
	}
	switch t.Kind() {
	case reflect.Struct:
		return g.object(t)
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return &Node{Type: Types{"string"}, Encoding: "base64"}
		}
		return &Node{Type: Types{"array"}, Items: g.Of(t.Elem())}
	case reflect.Map:
		return &Node{Type: Types{"object"}, Additional: g.Of(t.Elem())}
	case reflect.String:
		return &Node{Type: Types{"string"}}
	case reflect.Bool:
		return &Node{Type: Types{"boolean"}}
	case reflect.Float32, reflect.Float64:
		return &Node{Type: Types{"number"}}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return &Node{Type: Types{"integer"}, Minimum: new(int)}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return &Node{Type: Types{"integer"}, Minimum: g.least()}
	default:
		panic(fmt.Sprintf("%v has no schema", t))
	}
}

// least returns the lowest value of a signed number, nil if there is none.
func (g *Generator) least() *int {
	if g.Strict {
		return new(int)
	}
	return nil
}

// object returns the schema of a struct.
func (g *Generator) object(t reflect.Type) *Node {
	n := &Node{Type: Types{"object"}, Properties: &Nodes{}}
	if g.Strict {
		n.Additional = false
	}
	var hidden []string
	for f := range jsonfields.Of(t) {
		if g.Hidden != nil && g.Hidden(f) {
			hidden = append(hidden, f.Name)
			continue
		}
		field := g.Of(f.Type)
		if f.Nonzero {
			field.Minimum = new(1)
		}
		if !f.Optional {
			n.Required = append(n.Required, f.Name)
			if !g.Strict {
				field = orNull(field, f.Type)
			}
		}
		if text := g.Comments[f.Owner.String()+"."+f.GoName]; text != "" {
			field.Description = text
		}
		if g.Field != nil {
			g.Field(f, field)
		}
		n.Properties.Set(f.Name, field)
	}
	if len(hidden) > 0 {
		n.Patterns = &Nodes{}
		n.Patterns.Set("^("+strings.Join(hidden, "|")+")$", &Node{})
	}
	return n
}

// orNull adds null to the schema of a field that encoding/json writes as null when it is empty.
func orNull(n *Node, t reflect.Type) *Node {
	switch {
	case t.Kind() != reflect.Slice && t.Kind() != reflect.Map && t.Kind() != reflect.Pointer:
	case n.Ref != "":
		return &Node{AnyOf: []*Node{n, {Type: Types{"null"}}}}
	case len(n.Type) > 0:
		n.Type = append(n.Type, "null")
	}
	return n
}
