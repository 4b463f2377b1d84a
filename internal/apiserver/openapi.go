package apiserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/berthd/berth/api"
)

// The OpenAPI document is made from the table of routes and the Go types of their messages, so it cannot differ
// from what the server does. It is checked in as api/openapi.yaml, where a test compares it.
//
//go:generate go test -count=1 -run ^TestOpenAPI$ . -args -write

// document is the description of the API, in both forms.
type document struct{ json, yaml []byte }

// describe makes the description of a table of routes.
func describe(routes []route) document {
	d := description(routes)
	compact, _ := json.Marshal(d) // texts and numbers only
	return document{json: append(compact, '\n'), yaml: yamlOf(d)}
}

func description(routes []route) object {
	s := &schemas{components: map[string]object{}}
	problem := s.of(reflect.TypeFor[api.Problem]())
	s.of(reflect.TypeFor[api.LogLine]())
	for _, t := range []reflect.Type{
		reflect.TypeFor[api.EventGap](), reflect.TypeFor[api.ListMark](),
		reflect.TypeFor[api.ListRemoval](),
	} {
		s.of(t)
	}
	var paths object
	for i := range routes {
		rt := &routes[i]
		op := field{strings.ToLower(rt.method), s.operation(rt)}
		at := slices.IndexFunc(paths, func(f field) bool { return f.key == rt.path })
		if at < 0 {
			paths = append(paths, field{rt.path, object{op}})
			continue
		}
		known, _ := paths[at].value.(object)
		paths[at].value = append(known, op)
	}
	var components object
	for _, name := range slices.Sorted(maps.Keys(s.components)) {
		components = append(components, field{name, s.components[name]})
	}
	return object{
		{"openapi", "3.1.0"},
		{"info", object{
			{"title", "Berth"},
			{"version", "v1"},
			{"summary", "Berth places containers on machines, and gets the machines."},
			{"description", about},
		}},
		{"security", []any{object{{"token", []any{}}}}},
		{"paths", paths},
		{"components", object{
			{"securitySchemes", object{
				{"token", object{
					{"type", "http"},
					{"scheme", "bearer"},
					{"description", "An access token, whose role is at least the operation's x-role; on " +
						"loopback also the content of the server's token file. Over the unix socket nothing " +
						"is needed."},
				}},
				{"certificate", object{
					{"type", "mutualTLS"},
					{"description", "The certificate of a machine, from /v1/join."},
				}},
			}},
			{"responses", object{{"problem", object{
				{"description", "What was wrong, all of it at once (RFC 9457)."},
				{"content", object{{"application/problem+json", object{{"schema", problem}}}}},
			}}}},
			{"schemas", components},
		}},
	}
}

const about = `Every object has an ETag, its revision. Writes take If-Match with it, or If-None-Match: * for objects that must not exist; a write that another one overtook gets 412. What a read adds to an object (revision, status) may come back with a write and is ignored.
A list tells the index that it was read at; with ?index= and ?wait= it is answered once it has changed. With Accept: text/event-stream a list sends a "reset", each element as "put", a "synced" with the index as id, and from then on what changes; "remove" tells of elements that are gone.
The event stream sends each event with its id; with Last-Event-ID or ?after= it goes on after that one. A reader that is too slow gets a "gap" that counts what was left out.`

func (s *schemas) operation(rt *route) object {
	op := object{{"operationId", rt.name}, {"summary", rt.summary}}
	if rt.open {
		op = append(op, field{"security", []any{}})
	}
	switch {
	case rt.role == roleMachine:
		op = append(op, field{"security", []any{object{{"certificate", []any{}}}}})
	case rt.role != "":
		op = append(op, field{"x-role", string(rt.role)})
	}
	if p := parameters(rt); len(p) > 0 {
		op = append(op, field{"parameters", p})
	}
	switch {
	case rt.body != nil:
		op = append(op, field{"requestBody", object{{"required", !rt.optional}, {"content", object{
			{"application/json", object{{"schema", s.of(rt.body)}}},
		}}}})
	case rt.upload != "":
		op = append(op, field{"requestBody", object{{"required", true}, {"content", object{{rt.upload, object{}}}}}})
	}
	return append(op, field{"responses", s.responses(rt)})
}

func (s *schemas) responses(rt *route) object {
	status := rt.status
	if status == 0 {
		status = http.StatusOK
	}
	success := object{{"description", http.StatusText(status)}}
	if rt.writes && rt.reply != nil {
		success = append(success, field{"headers", object{{"ETag", object{{"schema", object{{"type", "string"}}}}}}})
	}
	var content object
	if rt.reply != nil {
		content = append(content, field{"application/json", object{{"schema", s.of(rt.reply)}}})
	}
	if rt.stream != "" {
		content = append(content, field{rt.stream, object{}})
	}
	if len(content) > 0 {
		success = append(success, field{"content", content})
	}
	all := object{{strconv.Itoa(status), success}}
	if rt.method == http.MethodPut && rt.path != "/v1/nodes/{node}" && rt.path != "/v1/domain" {
		created := slices.Clone(success)
		created[0].value = http.StatusText(http.StatusCreated)
		all = append(all, field{"201", created})
	}
	return append(all, field{"default", object{{"$ref", "#/components/responses/problem"}}})
}

func parameters(rt *route) []any {
	var all []any
	for _, name := range rt.names() {
		kind := object{{"type", "string"}}
		if name == "version" {
			kind = object{{"type", "integer"}, {"minimum", 1}}
		}
		all = append(all, object{{"name", name}, {"in", "path"}, {"required", true}, {"schema", kind}})
	}
	for _, p := range rt.query {
		kind := object{{"type", p.kind}}
		switch p.kind {
		case "duration":
			kind = object{{"type", "string"}}
		case "array":
			kind = object{{"type", "array"}, {"items", object{{"type", "string"}}}}
		}
		all = append(all, object{{"name", p.name}, {"in", "query"}, {"description", p.about}, {"schema", kind}})
	}
	if rt.writes {
		all = append(all,
			object{
				{"name", "If-Match"},
				{"in", "header"},
				{"description", "the revision that the object must have"},
				{"schema", object{{"type", "string"}}},
			},
			object{
				{"name", "If-None-Match"},
				{"in", "header"},
				{"description", "*: the object must not exist"},
				{"schema", object{{"type", "string"}}},
			})
	}
	return all
}

// yamlOf writes a value as YAML: one key a line, texts quoted as in JSON where they are not plain words.
func yamlOf(o object) []byte {
	var out strings.Builder
	writeYAML(&out, o, "")
	return []byte(out.String())
}

func writeYAML(out *strings.Builder, v any, indent string) {
	switch v := v.(type) {
	case object:
		for _, f := range v {
			out.WriteString(indent + yamlText(f.key) + ":")
			writeBelow(out, f.value, indent)
		}
	case []any:
		for _, item := range v {
			out.WriteString(indent + "-")
			if inner, ok := item.(object); ok && len(inner) > 0 {
				// The first key stands beside the dash.
				var block strings.Builder
				writeYAML(&block, inner, indent+"  ")
				out.WriteString(" " + strings.TrimPrefix(block.String(), indent+"  "))
				continue
			}
			writeBelow(out, item, indent)
		}
	}
}

// writeBelow writes a value after its key or dash.
func writeBelow(out *strings.Builder, v any, indent string) {
	switch v := v.(type) {
	case object:
		if len(v) == 0 {
			out.WriteString(" {}\n")
			return
		}
		out.WriteString("\n")
		writeYAML(out, v, indent+"  ")
	case []any:
		if len(v) == 0 {
			out.WriteString(" []\n")
			return
		}
		out.WriteString("\n")
		writeYAML(out, v, indent+"  ")
	case string:
		out.WriteString(" " + yamlText(v) + "\n")
	default:
		fmt.Fprintf(out, " %v\n", v)
	}
}

// yamlText writes a text plainly if nothing can take it for something else.
func yamlText(s string) string {
	plain := s != ""
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || i == 0 && (c == '/' || c == '$')
		if !letter && (i == 0 || !strings.ContainsRune("0123456789_-/+.{} ,", rune(c))) {
			plain = false
		}
	}
	switch strings.ToLower(s) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
		plain = false
	}
	if plain && !strings.HasSuffix(s, " ") {
		return s
	}
	quoted, _ := json.Marshal(s) // JSON's quoting is YAML's
	return string(quoted)
}
