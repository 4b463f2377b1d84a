package main

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/jsonfields"
	"github.com/berthd/berth/internal/schema"
)

// limits are the defaults and bounds of fields. They are found by setting defaults and by validating objects, so no
// second list can disagree with the code.
type limits struct {
	defaults map[string]json.RawMessage
	bounds   map[string][2]string
}

// object is what every kind can do.
type object interface {
	SetDefaults()
	Validate() error
}

// findLimits returns the limits of the fields of all kinds of objects.
func findLimits() limits {
	all := limits{map[string]json.RawMessage{}, map[string][2]string{}}
	for _, kind := range manifestKinds() {
		value := reflect.New(kind.typ)
		o, ok := reflect.TypeAssert[object](value)
		if !ok {
			continue // a kind without defaults
		}
		addElements(value.Elem())
		o.SetDefaults()
		visit(value.Elem(), "", func(f jsonfields.Field, path string, v reflect.Value) {
			key, text := limitKey(f), written(v)
			if !f.Optional {
				text = nil // a required field has no default
			}
			if first, seen := all.defaults[key]; seen && string(first) != string(text) {
				text = nil // it depends on where the field is
			}
			all.defaults[key] = text
			if low, high, found := boundsOf(o, path, v); found {
				all.bounds[key] = [2]string{low, high}
			}
		})
	}
	return all
}

// addElements gives every list one element, every pointer to a struct a value, and every required word of an
// enumeration its first value, on which the validation of other fields may depend.
func addElements(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for f := range jsonfields.Of(v.Type()) {
			if isHidden(f) {
				continue
			}
			field := v.FieldByIndex(f.Index)
			addElements(field)
			values := field.MethodByName("Values")
			if !f.Optional && field.Kind() == reflect.String && values.IsValid() {
				field.SetString(values.Call(nil)[0].Index(0).String())
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Struct {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			addElements(v.Index(0))
		}
	case reflect.Pointer:
		if isNested(v.Type().Elem()) {
			v.Set(reflect.New(v.Type().Elem()))
			addElements(v.Elem())
		}
	default: // a scalar
	}
}

// isNested reports whether a type has fields of its own in a manifest.
func isNested(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t != reflect.TypeFor[cluster.Ref]() && t != reflect.TypeFor[cluster.Portion]()
}

// visit calls f for every field without fields of its own, with its path.
func visit(v reflect.Value, path string, f func(field jsonfields.Field, path string, v reflect.Value)) {
	for field := range jsonfields.Of(v.Type()) {
		if isHidden(field) {
			continue
		}
		at, value := field.Name, v.FieldByIndex(field.Index)
		if path != "" {
			at = path + "." + at
		}
		switch {
		case isNested(value.Type()):
			visit(value, at, f)
		case value.Kind() == reflect.Slice && isNested(value.Type().Elem()):
			visit(value.Index(0), at+"[0]", f)
		case value.Kind() == reflect.Pointer && isNested(value.Type().Elem()):
			visit(value.Elem(), at, f)
		default:
			f(field, at, value)
		}
	}
}

func limitKey(f jsonfields.Field) string { return f.Owner.Name() + "." + f.GoName }

// written returns the JSON form of a value, or nil for a zero value.
func written(v reflect.Value) json.RawMessage {
	if v.IsZero() || v.Kind() == reflect.Slice || v.Kind() == reflect.Map {
		return nil
	}
	value := v.Interface()
	if size, ok := value.(cluster.Bytes); ok {
		value = size.String()
	}
	text, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("a default cannot be written: %v", err))
	}
	return text
}

// bounds matches what the validation says about the values that a field may have.
var bounds = regexp.MustCompile(`want [a-z ]*from ([^ ,;:]+( [KMGT]?i?B)?) to ([^ ,;:]+( [KMGT]?i?B)?)`)

// boundsOf returns the lowest and the highest value of a number, as the refusal of a value beyond them names them.
func boundsOf(o object, path string, v reflect.Value) (low, high string, found bool) {
	before := reflect.ValueOf(v.Interface())
	defer v.Set(before)
	number := v
	switch {
	case v.Type() == reflect.TypeFor[*cluster.Portion]():
		v.Set(reflect.ValueOf(&cluster.Portion{N: math.MaxInt32}))
	case v.Kind() == reflect.Pointer && v.Type().Elem().Kind() != reflect.Bool:
		v.Set(reflect.New(v.Type().Elem()))
		number = v.Elem()
	}
	switch number.Kind() {
	case reflect.Int, reflect.Int64:
		number.SetInt(math.MaxInt64 / 4)
	case reflect.Pointer:
		if number.Type() != reflect.TypeFor[*cluster.Portion]() {
			return "", "", false
		}
	default:
		return "", "", false
	}
	for _, f := range cluster.FaultsOf(o.Validate()) {
		if m := bounds.FindStringSubmatch(f.Message); f.Path == path && m != nil && m[3] != "the" {
			return m[1], m[3], true
		}
	}
	return "", "", false
}

// complete adds the limits of a field to its schema. Numbers have bounds that every reader of schemas knows; those of
// quantities, which are texts, are in x-bounds.
func (l limits) complete(f jsonfields.Field, n *schema.Node) {
	key := limitKey(f)
	if text := l.defaults[key]; text != nil {
		n.Default = text
	}
	b, ok := l.bounds[key]
	if !ok {
		return
	}
	n.Bounds = b[0] + " to " + b[1]
	low, err := strconv.Atoi(b[0])
	high, err2 := strconv.Atoi(b[1])
	if err == nil && err2 == nil && n.Ref == "" && len(n.Type) == 1 && n.Type[0] == "integer" {
		n.Maximum = &high
		if n.Minimum == nil || low < 0 {
			n.Minimum = &low
		}
	}
}
