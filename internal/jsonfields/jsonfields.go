// Package jsonfields lists the fields of structs as their JSON forms have them.
package jsonfields

import (
	"iter"
	"reflect"
	"slices"
	"strings"
)

// Field is a field of a struct in its JSON form.
type Field struct {
	// Name is the key in JSON, and GoName the name in Go.
	Name, GoName string
	Type         reflect.Type
	// Index is the place of the field, for reflect.Value.FieldByIndex.
	Index []int
	// Owner is the struct that declares the field: an embedded one, or the struct itself.
	Owner reflect.Type
	// Optional says that an empty value is left out of the JSON form, or that the tag optional of the embedded struct
	// names the field.
	Optional bool
	// Nonzero says that 0 is refused, by the tag zero:"refused".
	Nonzero bool
}

// Of yields the JSON fields of a struct in their order, those of embedded structs in the place of the structs.
func Of(typ reflect.Type) iter.Seq[Field] {
	return func(yield func(Field) bool) {
		for sf := range typ.Fields() {
			name, options, _ := strings.Cut(sf.Tag.Get("json"), ",")
			if name == "-" || !sf.IsExported() && !sf.Anonymous {
				continue
			}
			if sf.Anonymous && name == "" && sf.Type.Kind() == reflect.Struct {
				optional := strings.Split(sf.Tag.Get("optional"), ",")
				for inner := range Of(sf.Type) {
					inner.Optional = inner.Optional || slices.Contains(optional, inner.Name)
					inner.Index = append(slices.Clone(sf.Index), inner.Index...)
					if !yield(inner) {
						return
					}
				}
				continue
			}
			if name == "" {
				name = sf.Name
			}
			f := Field{
				Name: name, GoName: sf.Name, Type: sf.Type, Index: sf.Index, Owner: typ,
				Optional: strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero"),
				Nonzero:  sf.Tag.Get("zero") == "refused",
			}
			if !yield(f) {
				return
			}
		}
	}
}
