package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/enum"
	"github.com/berthd/berth/internal/jsonfields"
)

// address is the schema's own id.
const address = "https://github.com/berthd/berth/internal/manifest/manifest.schema.json"

// schema is the part of JSON Schema that manifests need, in the order in which it is written.
type schema struct {
	Schema      string      `json:"$schema,omitempty"`
	ID          string      `json:"$id,omitempty"`
	Title       string      `json:"title,omitempty"`
	Description string      `json:"description,omitempty"`
	Ref         string      `json:"$ref,omitempty"`
	Type        any         `json:"type,omitempty"`
	Const       any         `json:"const,omitempty"`
	Enum        []string    `json:"enum,omitempty"`
	Pattern     string      `json:"pattern,omitempty"`
	Format      string      `json:"format,omitempty"`
	Minimum     *int        `json:"minimum,omitempty"`
	MaxLength   int         `json:"maxLength,omitempty"`
	ReadOnly    bool        `json:"readOnly,omitempty"`
	Items       *schema     `json:"items,omitempty"`
	AnyOf       []*schema   `json:"anyOf,omitempty"`
	OneOf       []*schema   `json:"oneOf,omitempty"`
	Properties  *properties `json:"properties,omitempty"`
	Required    []string    `json:"required,omitempty"`
	// Additional is false for structs and the schema of the values for maps.
	Additional any         `json:"additionalProperties,omitempty"`
	Defs       *properties `json:"$defs,omitempty"`
}

// properties keep the order of the fields.
type properties struct {
	names   []string
	schemas map[string]*schema
}

func (p *properties) set(name string, s *schema) {
	if p.schemas == nil {
		p.schemas = map[string]*schema{}
	}
	if _, ok := p.schemas[name]; !ok {
		p.names = append(p.names, name)
	}
	p.schemas[name] = s
}

// MarshalJSON writes the properties in the order in which they were set.
func (p *properties) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, name := range p.names {
		if i > 0 {
			b.WriteByte(',')
		}
		value, err := marshal(p.schemas[name])
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%q:%s", name, value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// marshal is json.Marshal that leaves "<" as it is.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode the schema: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// generate returns the schema as indented JSON.
func generate(dir string) ([]byte, error) {
	src, err := readSource(dir)
	if err != nil {
		return nil, err
	}
	g := generator{source: src, defs: &properties{}}
	root := &schema{
		Schema:      "https://json-schema.org/draft/2020-12/schema",
		ID:          address,
		Title:       "Berth manifest",
		Description: "One document of a manifest: an object with its kind.",
	}
	for _, kind := range []struct {
		name  cluster.Kind
		value any
	}{
		{cluster.KindCluster, cluster.Cluster{}},
		{cluster.KindTaskDefinition, cluster.TaskDefinition{}},
		{cluster.KindService, cluster.Service{}},
		{cluster.KindJob, cluster.Job{}},
		{cluster.KindCron, cluster.Cron{}},
	} {
		root.OneOf = append(root.OneOf, g.kind(kind.name, reflect.TypeOf(kind.value)))
	}
	root.Defs = g.defs
	raw, err := marshal(root)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		return nil, fmt.Errorf("indent the schema: %w", err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// generator makes schemas of types.
type generator struct {
	*source
	defs *properties
}

// kind defines an object with its kind and returns the reference to it.
func (g *generator) kind(name cluster.Kind, t reflect.Type) *schema {
	ref := g.schemaOf(t)
	s := g.defs.schemas[t.Name()]
	withKind := &properties{}
	withKind.set("kind", &schema{Const: name})
	for _, n := range s.Properties.names {
		withKind.set(n, s.Properties.schemas[n])
	}
	s.Properties = withKind
	s.Required = append([]string{"kind"}, s.Required...)
	return ref
}

// schemaOf returns the schema of a type: a reference for named types.
func (g *generator) schemaOf(t reflect.Type) *schema {
	if t.Kind() == reflect.Pointer { // a pointer distinguishes an omitted value from 0
		return g.schemaOf(t.Elem())
	}
	if t.PkgPath() == "" || t == reflect.TypeFor[time.Time]() {
		return g.plain(t)
	}
	if _, ok := g.defs.schemas[t.Name()]; !ok {
		g.defs.set(t.Name(), &schema{}) // types may refer to each other
		*g.defs.schemas[t.Name()] = *g.named(t)
	}
	return &schema{Ref: "#/$defs/" + t.Name()}
}

// named returns the schema of a type of package cluster.
func (g *generator) named(t reflect.Type) *schema {
	zero := 0
	s := &schema{Description: g.types[t.Name()]}
	switch reflect.New(t).Interface().(type) {
	case *cluster.MilliCPU:
		s.AnyOf = []*schema{
			{Type: "number", Minimum: &zero},
			{Type: "string", Pattern: `^([0-9]+m|[0-9]+(\.[0-9]+)?)$`},
		}
	case *cluster.Bytes:
		s.AnyOf = []*schema{
			{Type: "number", Minimum: &zero},
			{Type: "string", Pattern: `^[0-9]+(\.[0-9]+)? ?(B|[kK]B|[MGT]B|[KMGT]iB?)?$`},
		}
	case *cluster.Duration:
		s.AnyOf = []*schema{
			{Const: 0},
			{Type: "string", Pattern: `^(0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$`},
		}
	case *cluster.Portion:
		s.AnyOf = []*schema{{Type: "integer", Minimum: &zero}, {Type: "string", Pattern: `^[0-9]+%?$`}}
	case *cluster.Ref:
		s.Type, s.Pattern = "string", `^[a-z]([a-z0-9-]*[a-z0-9])?(@[1-9][0-9]*)?$`
	default:
		if t.Kind() == reflect.Struct {
			g.object(s, t)
			if t == reflect.TypeFor[cluster.Service]() {
				s.requireCountUnlessGiven()
			}
			return s
		}
		plain := g.plain(t)
		plain.Description = s.Description
		if words := enum.Words(t); len(words) > 0 {
			plain.Enum = words
		}
		return plain
	}
	return s
}

// plain returns the schema of a type by its shape alone.
func (g *generator) plain(t reflect.Type) *schema {
	if t == reflect.TypeFor[time.Time]() {
		return &schema{Type: "string", Format: "date-time"}
	}
	zero := 0
	switch t.Kind() {
	case reflect.String:
		return &schema{Type: "string"}
	case reflect.Bool:
		return &schema{Type: "boolean"}
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return &schema{Type: "integer", Minimum: &zero}
	case reflect.Float64:
		return &schema{Type: "number"}
	case reflect.Slice:
		return &schema{Type: "array", Items: g.schemaOf(t.Elem())}
	case reflect.Map:
		return &schema{Type: "object", Additional: g.schemaOf(t.Elem())}
	case reflect.Struct:
		s := &schema{}
		g.object(s, t)
		return s
	default:
		panic("schemagen: no schema for " + t.String())
	}
}

// object adds the fields of a struct to its schema.
func (g *generator) object(s *schema, t reflect.Type) {
	s.Type, s.Additional, s.Properties = "object", false, &properties{}
	for f := range jsonfields.Of(t) {
		field := g.schemaOf(f.Type)
		field.Description = g.docs[f.Owner.Name()][f.GoName]
		field.ReadOnly = f.Owner == reflect.TypeFor[cluster.Lifespan]() ||
			strings.Contains(field.Description, "what a client sends here is ignored") ||
			strings.Contains(field.Description, "what a manifest holds here is ignored")
		if f.Name == "name" && field.Type == "string" {
			field.Pattern, field.MaxLength = `^[a-z]([a-z0-9-]*[a-z0-9])?$`, cluster.MaxName
		}
		if f.Owner == reflect.TypeFor[cluster.Affinity]() && f.Name == "weight" {
			least := -cluster.MaxWeight // the one number that may be below 0
			field.Minimum = &least
		}
		if f.Nonzero {
			least := 1
			field.Minimum = &least
		}
		s.Properties.set(f.Name, field)
		if !f.Optional {
			s.Required = append(s.Required, f.Name)
		}
	}
}

// requireCountUnlessGiven requires the count of a service unless scaling or the mode daemon determines the number of
// tasks.
func (s *schema) requireCountUnlessGiven() {
	s.Required = slices.DeleteFunc(s.Required, func(name string) bool { return name == "count" })
	daemon := &properties{}
	daemon.set("mode", &schema{Const: cluster.ModeDaemon})
	s.AnyOf = []*schema{
		{Required: []string{"count"}},
		{Required: []string{"scaling"}},
		{Required: []string{"mode"}, Properties: daemon},
	}
}
