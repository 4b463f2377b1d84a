package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/enum"
	"github.com/berthd/berth/internal/store"
)

// Each kind of records has one entry in the schema. The entry accepts a record with all fields, and refuses it without
// a version and with a field of another type.
func TestRecordSchemaHasEachKind(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, recordsFile))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		PatternProperties map[string]struct {
			Ref   string `json:"$ref"`
			Const bool
		}
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource(recordsFile, parsed); err != nil {
		t.Fatal(err)
	}
	records, err := c.Compile(recordsFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range store.Kinds() {
		t.Run(k.Key, func(t *testing.T) {
			key := nameInKey.ReplaceAllString(k.Key, "x")
			fits := func(value any) bool { return records.Validate(map[string]any{key: value}) == nil }
			var types []string
			for pattern, entry := range doc.PatternProperties {
				if regexp.MustCompile(pattern).MatchString(key) {
					types = append(types, entry.Ref)
				}
			}
			if k.Record == nil {
				if !fits(true) || fits(false) || len(types) != 1 {
					t.Errorf("the mark is true: got %v of %d entries", fits(true), len(types))
				}
				return
			}
			if want := "#/$defs/" + k.Record.Name(); len(types) != 1 || types[0] != want {
				t.Fatalf("entries: got %q, want %q", types, want)
			}
			record := stored(t, k.Record)
			if err := records.Validate(map[string]any{key: record}); err != nil {
				t.Fatal(err)
			}
			for field, value := range record {
				changed := maps.Clone(record)
				changed[field] = false
				if value == true {
					changed[field] = "true"
				}
				if fits(changed) {
					t.Errorf("%s: %v is accepted", field, changed[field])
				}
			}
			delete(record, "v")
			if fits(record) {
				t.Error("a record without a version is accepted")
			}
		})
	}
}

// stored returns a record of a type with all fields, as the store has it.
func stored(t *testing.T, typ reflect.Type) map[string]any {
	t.Helper()
	v := reflect.New(typ)
	fill(t, v.Elem())
	text, err := store.Encode(v.Interface())
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	record, isObject := value.(map[string]any)
	if !isObject {
		t.Fatalf("got %s, want an object", text)
	}
	return record
}

// fill sets all fields of a value.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch into := v.Addr().Interface().(type) {
	case *time.Time:
		*into = time.Date(2026, 11, 25, 9, 30, 0, 5e6, time.UTC)
		return
	case *cluster.Ref:
		*into = cluster.Ref{Name: "web", Version: 3}
		return
	case *cluster.Portion:
		*into = cluster.Portion{N: 25, Percent: true}
		return
	case *cluster.PortRange:
		*into = "8000-8100"
		return
	case *cluster.Priority:
		*into = cluster.MaxPriority
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for f, field := range v.Fields() {
			if fill(t, field); f.Tag.Get("zero") == "refused" {
				field.SetInt(1)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key)
		fill(t, value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("text")
		if words := enum.Words(v.Type()); len(words) > 0 {
			v.SetString(words[len(words)-1])
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(-1500)
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(7)
	case reflect.Float64:
		v.SetFloat(0.5)
	default:
		t.Fatalf("the test knows no %s", v.Type())
	}
}
