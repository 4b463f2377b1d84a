package strictjson

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// Shape is what a JSON text has to be like to be read into a type. It never changes and may be shared.
type Shape struct {
	typ            reflect.Type
	Raw            bool              // it takes any text as it is
	unmarshalsJSON bool              // it reads its JSON itself, and
	unmarshalsText bool              // its text
	Fields         map[string]*Shape // of a struct, those of embedded structs included
	Elem           *Shape            // of a pointer, a list or a map
	// nonzero says that 0 is refused, though it is what the field is where it was left out.
	nonzero bool
}

// knownShapes are those of the objects that users write and of what they send most.
var knownShapes = sync.OnceValue(func() shapes { //nolint:gochecknoglobals // what types look like, found out once
	all := shapes{}
	for _, typ := range []reflect.Type{
		reflect.TypeFor[api.ApplyRequest](), reflect.TypeFor[cluster.Cluster](),
		reflect.TypeFor[cluster.TaskDefinition](),
		reflect.TypeFor[cluster.Service](), reflect.TypeFor[cluster.Job](),
		reflect.TypeFor[cluster.Cron](), reflect.TypeFor[cluster.Host](),
	} {
		all.of(typ)
	}
	return all
})

// ShapeOf returns the shape of a type.
func ShapeOf(typ reflect.Type) *Shape {
	if s, known := knownShapes()[typ]; known {
		return s
	}
	return shapes{}.of(typ)
}

// shapes are made of each other.
type shapes map[reflect.Type]*Shape

func (all shapes) of(typ reflect.Type) *Shape {
	if s, known := all[typ]; known {
		return s
	}
	s := &Shape{typ: typ, Raw: typ == reflect.TypeFor[json.RawMessage]()}
	all[typ] = s
	if s.Raw {
		return s
	}
	if typ.Kind() != reflect.Pointer {
		s.unmarshalsJSON = reflect.PointerTo(typ).Implements(reflect.TypeFor[json.Unmarshaler]())
		s.unmarshalsText = reflect.PointerTo(typ).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
	}
	if s.unmarshalsJSON || s.unmarshalsText {
		return s
	}
	switch typ.Kind() {
	case reflect.Struct:
		s.Fields = map[string]*Shape{}
		for f := range Fields(typ) {
			inner := all.of(f.Type)
			if f.Nonzero {
				checked := *inner
				checked.nonzero, inner = true, &checked
			}
			s.Fields[f.Name] = inner
		}
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		s.Elem = all.of(typ.Elem())
	default:
	}
	return s
}

// Field is a field of a struct as its JSON form has it.
type Field struct {
	Name     string
	Type     reflect.Type
	Optional bool
	Nonzero  bool
}

// Fields yields the JSON fields of a struct in their order.
func Fields(typ reflect.Type) func(func(Field) bool) {
	return func(yield func(Field) bool) {
		for sf := range typ.Fields() {
			name, options, _ := strings.Cut(sf.Tag.Get("json"), ",")
			if name == "-" || !sf.IsExported() && !sf.Anonymous {
				continue
			}
			if sf.Anonymous && name == "" && sf.Type.Kind() == reflect.Struct {
				for inner := range Fields(sf.Type) {
					if !yield(inner) {
						return
					}
				}
				continue
			}
			if name == "" {
				name = sf.Name
			}
			optional := strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
			if !yield(Field{name, sf.Type, optional, sf.Tag.Get("zero") == "refused"}) {
				return
			}
		}
	}
}
