package output

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/jsonfields"
)

// bytesText returns a size with the largest unit of which it is a multiple: "32MiB".
func bytesText(n cluster.Bytes) string {
	for _, u := range []struct {
		size   cluster.Bytes
		suffix string
	}{{cluster.TiB, "TiB"}, {cluster.GiB, "GiB"}, {cluster.MiB, "MiB"}, {cluster.KiB, "KiB"}} {
		if n != 0 && n%u.size == 0 {
			return strconv.FormatInt(int64(n/u.size), 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(n), 10)
}

// Readable returns a manifest as JSON with sizes as people write them: "32MiB". Berth reads it like the exact form.
func Readable(manifest any) (json.RawMessage, error) {
	encoded, err := json.Marshal(manifest)
	if err != nil {
		return nil, fmt.Errorf("encode output: %w", err)
	}
	return ReadableAs(reflect.TypeOf(manifest), encoded)
}

// ReadableAs is Readable for a manifest of the type that is already JSON.
func ReadableAs(t reflect.Type, encoded []byte) (json.RawMessage, error) { return readable(t, encoded) }

// readable rewrites the JSON of a value of the type. The order of fields stays.
func readable(t reflect.Type, in []byte) ([]byte, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case string(in) == "null":
		return in, nil
	case t == reflect.TypeFor[cluster.Bytes]():
		var n cluster.Bytes
		if err := json.Unmarshal(in, &n); err != nil {
			return nil, fmt.Errorf("encode output: %w", err)
		}
		if n%cluster.KiB != 0 || n == 0 {
			return in, nil
		}
		return json.Marshal(bytesText(n))
	case hasOwnForm(t):
		return in, nil
	}
	switch t.Kind() {
	case reflect.Struct:
		fields := map[string]reflect.Type{}
		for f := range jsonfields.Of(t) {
			fields[f.Name] = f.Type
		}
		return rewrite(in, func(key string) reflect.Type { return fields[key] })
	case reflect.Map, reflect.Slice, reflect.Array:
		return rewrite(in, func(string) reflect.Type { return t.Elem() })
	default: // a scalar
		return in, nil
	}
}

// hasOwnForm reports whether a type encodes itself.
func hasOwnForm(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Marshaler]()) || p.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}

// rewrite rewrites the elements of an object or a list. Elements without a type stay as they are.
func rewrite(in []byte, typeOf func(key string) reflect.Type) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(in))
	begin, err := dec.Token()
	if err != nil {
		return nil, fmt.Errorf("encode output: %w", err)
	}
	delim, ok := begin.(json.Delim)
	if !ok {
		return in, nil // such as the text of a []byte
	}
	var b bytes.Buffer
	b.WriteString(delim.String())
	for first := true; dec.More(); first = false {
		if !first {
			b.WriteByte(',')
		}
		key := ""
		if delim == '{' {
			name, err := dec.Token()
			if err != nil {
				return nil, fmt.Errorf("encode output: %w", err)
			}
			key, _ = name.(string)
			quoted, err := json.Marshal(key)
			if err != nil {
				return nil, fmt.Errorf("encode output: %w", err)
			}
			b.Write(append(quoted, ':'))
		}
		var element json.RawMessage
		if err := dec.Decode(&element); err != nil {
			return nil, fmt.Errorf("encode output: %w", err)
		}
		out := []byte(element)
		if t := typeOf(key); t != nil {
			if out, err = readable(t, element); err != nil {
				return nil, err
			}
		}
		b.Write(out)
	}
	b.WriteByte(delim.String()[0] + 2) // the closing bracket is two characters after the opening one
	return b.Bytes(), nil
}
