// Package strictjson reads JSON strictly. An unknown field, a duplicate field and a value of a wrong type are faults
// with their paths, and all faults are returned together.
package strictjson

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/spelling"
)

// ReadBody reads a JSON body into v. Unknown fields, duplicate fields, and values of a wrong type or range are faults
// with their paths, all in one error. Ignored names fields of the outer object that are skipped.
func ReadBody(w http.ResponseWriter, r *http.Request, v any, ignored ...string) error {
	text, err := ReadText(w, r, MaxBody)
	if err != nil {
		return err
	}
	faults, err := Decode(text, v, ignored...)
	if err != nil {
		return err
	}
	if len(faults) > 0 {
		return respond.Invalid(faults)
	}
	return nil
}

// ReadText reads the text of a JSON body of at most the given number of bytes. The error of a longer one is a
// *http.MaxBytesError, all others are problems.
func ReadText(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	if kind := r.Header.Get("Content-Type"); kind != "" {
		media, _, _ := strings.Cut(kind, ";")
		// curl -d sends every body as a form by default.
		media = strings.ToLower(strings.TrimSpace(media))
		if media != "application/json" && media != "application/x-www-form-urlencoded" {
			return nil, respond.Problemf(http.StatusUnsupportedMediaType, "the body is %s; want application/json",
				respond.Clip(media))
		}
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
	case errors.As(err, &tooLarge):
		// If the server closed the connection while the client still writes, the client would not read the answer.
		_, _ = io.CopyN(io.Discard, r.Body, drainedBody)
		return nil, err
	default:
		return nil, respond.Problemf(http.StatusRequestTimeout, "the body was incomplete after %s", BodyTimeout)
	}
	return text, nil
}

// DropBody reads the body of a request that needs none, until its read deadline, so that the connection can serve
// another request. It ends the deadline: the answer may be a stream. A body of more than maxIgnoredBody, or one that is
// late, is a problem.
func DropBody(w http.ResponseWriter, r *http.Request) error {
	if r.ContentLength == 0 {
		return nil
	}
	if n, err := io.Copy(io.Discard, io.LimitReader(r.Body, maxIgnoredBody+1)); err != nil || n > maxIgnoredBody {
		w.Header().Set("Connection", "close")
		return respond.Problemf(http.StatusBadRequest, "the request %s %s needs no body: leave it out", r.Method,
			respond.Clip(r.URL.Path))
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // some writers have no deadlines
	return nil
}

// Decode reads a JSON text into v. The error says that the text is not one JSON value. The faults say which parts do
// not fit v. With either, v must not be used.
func Decode(text []byte, v any, ignored ...string) (cluster.Faults, error) {
	root, err := parse(text)
	if err != nil {
		return nil, err
	}
	f := fitting{ignored: ignored}
	f.fit(root, ShapeOf(reflect.TypeOf(v).Elem()), nil)
	if len(f.faults) > 0 {
		return f.faults, nil
	}
	if err := json.Unmarshal(text, v); err != nil {
		return cluster.Faults{{Message: err.Error()}}, nil
	}
	return nil, nil
}

// MaxFaults bounds the faults of one answer.
const MaxFaults = 100

// fitting collects the faults of a tree against a type.
type fitting struct {
	ignored []string
	faults  cluster.Faults
}

// location is the place of a value below another; nil is the whole. Its path is computed for faults only.
type location struct {
	above *location
	key   string // of a field or of an entry of a map
	index int    // of an element of a list
	kind  byte   // '.', 'k' for an entry of a map, '['
}

func (s *location) path() string {
	if s == nil {
		return ""
	}
	switch path := s.above.path(); s.kind {
	case '[':
		return fmt.Sprintf("%s[%d]", path, s.index)
	case 'k':
		return fmt.Sprintf("%s[%q]", path, respond.Clip(s.key))
	default:
		return join(path, SafeKey(s.key))
	}
}

func (f *fitting) fault(at *location, format string, args ...any) {
	if len(f.faults) < MaxFaults {
		f.faults = append(f.faults, cluster.Fault{Path: at.path(), Message: fmt.Sprintf(format, args...)})
	}
}

func (f *fitting) fit(t *tree, s *Shape, at *location) {
	if s.Raw {
		return
	}
	if s.typ.Kind() == reflect.Pointer {
		if t.kind != 'n' {
			f.fit(t, s.Elem, at)
		}
		return
	}
	if f.custom(t, s, at) || t.kind == 'n' {
		return
	}
	switch s.typ.Kind() {
	case reflect.Struct:
		f.object(t, s, at)
	case reflect.Map:
		f.entries(t, s, at)
	case reflect.Slice, reflect.Array:
		if f.wants(t, '[', "a list", at) {
			for i, v := range t.values {
				f.fit(v, s.Elem, &location{above: at, index: i, kind: '['})
			}
		}
	case reflect.String:
		f.wants(t, '"', "text", at)
	case reflect.Bool:
		f.wants(t, 't', "true or false", at)
	case reflect.Float32, reflect.Float64:
		f.wants(t, '0', "a number", at)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		f.number(t, at, func(text string) error {
			n, err := strconv.ParseInt(text, 10, s.typ.Bits())
			if err == nil && n == 0 && s.nonzero {
				f.fault(at, "%s", cluster.ZeroCount())
			}
			return err
		})
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		f.number(t, at, func(text string) error { _, err := strconv.ParseUint(text, 10, s.typ.Bits()); return err })
	default:
	}
}

// custom checks a type with an unmarshaler of its own, and reports whether the type has one.
func (f *fitting) custom(t *tree, s *Shape, at *location) bool {
	switch {
	case s.unmarshalsJSON:
		if v, ok := reflect.TypeAssert[json.Unmarshaler](reflect.New(s.typ)); ok {
			f.unmarshalFault(at, v.UnmarshalJSON(t.text))
		}
	case !s.unmarshalsText:
		return false
	case t.kind == 'n' || !f.wants(t, '"', "text", at):
	default:
		if v, ok := reflect.TypeAssert[encoding.TextUnmarshaler](reflect.New(s.typ)); ok {
			f.unmarshalFault(at, v.UnmarshalText([]byte(t.string())))
		}
	}
	return true
}

// unmarshalFault adds the error of an unmarshaler as a fault.
func (f *fitting) unmarshalFault(at *location, err error) {
	if err != nil {
		f.fault(at, "%s", sentence(err))
	}
}

func (f *fitting) wants(t *tree, kind byte, word string, at *location) bool {
	if t.kind != kind {
		f.fault(at, "is %s, want %s", t.word(), word)
		return false
	}
	return true
}

func (f *fitting) number(t *tree, at *location, read func(string) error) {
	if !f.wants(t, '0', "a whole number", at) {
		return
	}
	err := read(string(t.text))
	switch {
	case err == nil:
	case errors.Is(err, strconv.ErrRange):
		f.fault(at, "%s is out of range", respond.Clip(string(t.text)))
	default:
		f.fault(at, "%s is not a whole number that fits here", respond.Clip(string(t.text)))
	}
}

func (f *fitting) object(t *tree, s *Shape, at *location) {
	if !f.wants(t, '{', "an object", at) {
		return
	}
	for i, key := range t.keys {
		here := &location{above: at, key: key, kind: '.'}
		field, ok := s.Fields[key]
		if !ok && at == nil && slices.Contains(f.ignored, key) {
			continue
		}
		if !ok {
			if near := spelling.Nearest(key, maps.Keys(s.Fields)); near != "" {
				f.fault(here, "is not a known field; did you mean %q?", near)
			} else {
				f.fault(here, "is not a known field")
			}
			continue
		}
		f.fit(t.values[i], field, here)
	}
	f.repeatedKeys(t, at, '.')
}

func (f *fitting) entries(t *tree, s *Shape, at *location) {
	if !f.wants(t, '{', "an object", at) {
		return
	}
	for i, key := range t.keys {
		f.fit(t.values[i], s.Elem, &location{above: at, key: key, kind: 'k'})
	}
	f.repeatedKeys(t, at, 'k')
}

// repeatedKeys adds a fault for each repetition of a key.
func (f *fitting) repeatedKeys(t *tree, at *location, kind byte) {
	for _, key := range t.twice {
		f.fault(&location{above: at, key: key, kind: kind}, "is given twice")
	}
}

// string returns the text of a string value.
func (t *tree) string() string {
	var s string
	_ = json.Unmarshal(t.text, &s) // it was parsed before
	return s
}

// SafeKey returns a key from outside for use in a path.
func SafeKey(key string) string {
	for _, c := range key {
		if c <= ' ' || c == '.' || c == '[' || c > '~' {
			return fmt.Sprintf("[%q]", respond.Clip(key))
		}
	}
	return respond.Clip(key)
}

// sentence returns an error's text without the name of its package.
func sentence(err error) string {
	return strings.TrimPrefix(err.Error(), "json: ")
}

// BodyTimeout bounds the time until the body of a request has arrived.
const BodyTimeout = 30 * time.Second
