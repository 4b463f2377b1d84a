package strictjson

import (
	"encoding"
	"encoding/json"
	"reflect"
	"sync"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/jsonfields"
)

// Shape describes the JSON that fits a type. It never changes and may be shared.
type Shape struct {
	typ            reflect.Type
	Raw            bool              // any JSON fits
	unmarshalsJSON bool              // the type has an unmarshaler for JSON
	unmarshalsText bool              // or for text
	Fields         map[string]*Shape // of a struct, those of embedded structs included
	Elem           *Shape            // of a pointer, a list or a map
	// nonzero refuses 0, although 0 is the value of an absent field.
	nonzero bool
}

// knownShapes returns the shapes of the objects that users write most.
var knownShapes = sync.OnceValue(func() shapes { //nolint:gochecknoglobals // computed once
	all := shapes{}
	for _, typ := range []reflect.Type{
		reflect.TypeFor[api.ApplyRequest](), reflect.TypeFor[cluster.Cluster](),
		reflect.TypeFor[cluster.TaskDefinition](),
		reflect.TypeFor[cluster.Service](), reflect.TypeFor[cluster.Job](),
		reflect.TypeFor[cluster.Cron](), reflect.TypeFor[cluster.Host](),
		reflect.TypeFor[cluster.Endpoint](),
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

// shapes caches shapes, which refer to each other.
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
		for f := range jsonfields.Of(typ) {
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
