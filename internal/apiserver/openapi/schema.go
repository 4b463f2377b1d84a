package openapi

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/enum"
	"github.com/berthd/berth/internal/jsonfields"
)

// Object is a JSON object whose fields keep their order.
type Object []field

type field struct {
	key   string
	value any // object, []any, string, int or bool
}

// MarshalJSON writes the fields in their order.
func (o Object) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, f := range o {
		if i > 0 {
			out = append(out, ',')
		}
		key, err := json.Marshal(f.key)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(f.value)
		if err != nil {
			return nil, err
		}
		out = append(append(append(out, key...), ':'), value...)
	}
	return append(out, '}'), nil
}

// Schemas computes JSON Schemas of Go types. Named structs become components that other schemas refer to.
type Schemas struct {
	Components map[string]Object
	Types      map[string]reflect.Type // by the names of components, to detect two types with one name
}

// Of returns the schema of a type.
func (s *Schemas) Of(typ reflect.Type) Object {
	if o, ok := special(typ); ok {
		return o
	}
	switch typ.Kind() {
	case reflect.Pointer:
		return s.Of(typ.Elem())
	case reflect.Struct:
		name := schemaName(typ)
		if name == "" {
			return s.structure(typ)
		}
		if other, taken := s.Types[name]; taken && other != typ {
			// a fault of this program, which every test sees
			panic(fmt.Sprintf("two types have the name %s: %v and %v", name, other, typ))
		}
		if _, known := s.Components[name]; !known {
			if s.Types == nil {
				s.Types = map[string]reflect.Type{}
			}
			s.Types[name] = typ
			s.Components[name] = nil // a type may hold itself
			s.Components[name] = s.structure(typ)
		}
		return Object{{"$ref", "#/components/schemas/" + name}}
	case reflect.Slice, reflect.Array:
		return Object{{"type", "array"}, {"items", s.Of(typ.Elem())}}
	case reflect.Map:
		return Object{{"type", "object"}, {"additionalProperties", s.Of(typ.Elem())}}
	case reflect.String:
		return text(enum.Words(typ))
	case reflect.Bool:
		return Object{{"type", "boolean"}}
	case reflect.Float32, reflect.Float64:
		return Object{{"type", "number"}}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return Object{{"type", "integer"}, {"minimum", 0}}
	default:
		return Object{{"type", "integer"}}
	}
}

func (s *Schemas) structure(typ reflect.Type) Object {
	var properties Object
	var required []any
	for f := range jsonfields.Of(typ) {
		schema := s.Of(f.Type)
		if !f.Optional && (f.Type.Kind() == reflect.Slice || f.Type.Kind() == reflect.Map) && schema[0].key == "type" {
			schema[0].value = []any{schema[0].value, "null"}
		}
		if f.Nonzero {
			schema = append(schema, field{"minimum", 1})
		}
		properties = append(properties, field{f.Name, schema})
		if !f.Optional {
			required = append(required, f.Name)
		}
	}
	if typ.PkgPath() == reflect.TypeFor[cluster.Service]().PkgPath() {
		required = nil // the validation decides which fields are required
	}
	o := Object{{"type", "object"}, {"properties", properties}}
	if len(required) > 0 {
		o = append(o, field{"required", required})
	}
	return o
}

// special returns the schema of a type whose JSON form is not that of its kind.
func special(typ reflect.Type) (Object, bool) {
	switch typ {
	case reflect.TypeFor[time.Time]():
		return Object{{"type", "string"}, {"format", "date-time"}}, true
	case reflect.TypeFor[json.RawMessage]():
		return Object{{"description", "any JSON value"}}, true
	case reflect.TypeFor[cluster.Ref]():
		return described(`a task definition as "name@version", or "name" for the newest version`), true
	case reflect.TypeFor[cluster.Duration]():
		return described(`a duration such as "500ms", "10s" or "5m"`), true
	case reflect.TypeFor[cluster.MilliCPU]():
		return Object{
			{"type", []any{"string", "number"}},
			{"description", `CPU time: "500m" or 0.5; written as "500m"`},
		}, true
	case reflect.TypeFor[cluster.Bytes]():
		return Object{
			{"type", []any{"integer", "string"}},
			{"description", `a size: bytes, or text such as "256MiB"; written as bytes`},
		}, true
	case reflect.TypeFor[cluster.Portion]():
		return Object{
			{"type", []any{"integer", "string"}},
			{"description", `a number of tasks, or a share of them such as "25%"`},
		}, true
	case reflect.TypeFor[cluster.TaskID]():
		return described(`<cluster>.<service>.<generation>.<index> or <cluster>.<job>.<generation>.<step>.<index>`),
			true
	}
	return nil, false
}

func described(about string) Object {
	return Object{{"type", "string"}, {"description", about}}
}

func text(known []string) Object {
	o := Object{{"type", "string"}}
	if len(known) > 0 {
		enum := make([]any, len(known))
		for i, w := range known {
			enum[i] = w
		}
		o = append(o, field{"enum", enum})
	}
	return o
}

// schemaName returns the name of a struct's component: "ServiceView", "ServiceViewPage" for a page of them.
func schemaName(typ reflect.Type) string {
	if typ == reflect.TypeFor[cluster.Version]() { // api.Version is the version of a build
		return "ServiceVersion"
	}
	name, inner, generic := strings.Cut(typ.Name(), "[")
	if !generic {
		return name
	}
	inner = strings.TrimSuffix(inner, "]")
	return inner[strings.LastIndexByte(inner, '.')+1:] + name
}
