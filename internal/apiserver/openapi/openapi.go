// Package openapi describes routes as an OpenAPI document, with JSON Schemas of the Go types of their messages.
package openapi

import (
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/blockyaml"
)

// The document is computed from the routes and the Go types of their messages, so it cannot differ from the server. It
// is also the checked-in file api/openapi.yaml, which a test compares.

// Document is the description of the API in both forms.
type Document struct{ JSON, YAML []byte }

// Describe returns the description of routes.
func Describe(routes []route.Route) Document {
	compact, _ := json.Marshal(description(routes)) // texts and numbers only
	inYAML, _ := blockyaml.FromJSON(compact)        // of valid JSON
	return Document{JSON: append(compact, '\n'), YAML: inYAML}
}

func description(routes []route.Route) Object {
	s := &Schemas{Components: map[string]Object{}}
	problem := s.Of(reflect.TypeFor[api.Problem]())
	s.Of(reflect.TypeFor[api.LogLine]())
	for _, t := range []reflect.Type{
		reflect.TypeFor[api.EventGap](), reflect.TypeFor[api.ListMark](),
		reflect.TypeFor[api.ListRemoval](),
	} {
		s.Of(t)
	}
	var paths Object
	for i := range routes {
		rt := &routes[i]
		op := field{strings.ToLower(rt.Method), s.operation(rt)}
		at := slices.IndexFunc(paths, func(f field) bool { return f.key == rt.Path })
		if at < 0 {
			paths = append(paths, field{rt.Path, Object{op}})
			continue
		}
		known, _ := paths[at].value.(Object)
		paths[at].value = append(known, op)
	}
	var components Object
	for _, name := range slices.Sorted(maps.Keys(s.Components)) {
		components = append(components, field{name, s.Components[name]})
	}
	return Object{
		{"openapi", "3.1.0"},
		{"info", Object{
			{"title", "Berth"},
			{"version", "v1"},
			{"summary", "Berth places containers on machines, and gets the machines."},
			{"description", about},
		}},
		{"security", []any{Object{{"token", []any{}}}}},
		{"paths", paths},
		{"components", Object{
			{"securitySchemes", Object{
				{"token", Object{
					{"type", "http"},
					{"scheme", "bearer"},
					{"description", "An access token, whose role is at least the operation's x-role; on " +
						"loopback also the content of the server's token file. Over the unix socket nothing " +
						"is needed."},
				}},
				{"certificate", Object{
					{"type", "mutualTLS"},
					{"description", "The certificate of a machine, from /v1/join."},
				}},
			}},
			{"responses", Object{
				{"problem", Object{
					{"description", "All faults of the request at once (RFC 9457)."},
					{"content", Object{{"application/problem+json", Object{{"schema", problem}}}}},
				}},
				{"busy", Object{
					{"description", "Too many requests of this kind run or wait: try again after Retry-After seconds."},
					{"headers", Object{{"Retry-After", Object{{"schema", Object{{"type", "integer"}}}}}}},
					{"content", Object{{"application/problem+json", Object{{"schema", problem}}}}},
				}},
			}},
			{"schemas", components},
		}},
	}
}

const about = `Every object has an ETag, its revision. Writes accept it in If-Match, or If-None-Match: * for objects that must not exist. A write gets 412 if the object has another revision. Fields that a read adds to an object (revision, status) may be sent back and are ignored.
A list contains the index of its read. With ?index= and ?wait= the answer comes once the list has changed. With Accept: text/event-stream a list sends a "reset", each element as "put", and a "synced" with the index as id. Then it sends changes; "remove" names removed elements.
The event stream sends each event with its id. With Last-Event-ID or ?after= it continues after that event. A slow reader gets a "gap" with the number of missed events.
The number of requests that wait for changes is limited. Further ones get 429 with Retry-After.`

func (s *Schemas) operation(rt *route.Route) Object {
	op := Object{{"operationId", rt.Name}, {"summary", rt.Summary}}
	if rt.Open {
		op = append(op, field{"security", []any{}})
	}
	switch {
	case rt.Role == route.RoleMachine:
		op = append(op, field{"security", []any{Object{{"certificate", []any{}}}}})
	case rt.Role != "":
		op = append(op, field{"x-role", string(rt.Role)})
	}
	if p := parameters(rt); len(p) > 0 {
		op = append(op, field{"parameters", p})
	}
	switch {
	case rt.Body != nil:
		op = append(op, field{"requestBody", Object{{"required", !rt.Optional}, {"content", Object{
			{"application/json", Object{{"schema", s.Of(rt.Body)}}},
		}}}})
	case rt.Upload != "":
		op = append(op, field{"requestBody", Object{{"required", true}, {"content", Object{{rt.Upload, Object{}}}}}})
	}
	return append(op, field{"responses", s.responses(rt)})
}

func (s *Schemas) responses(rt *route.Route) Object {
	status := rt.Status
	if status == 0 {
		status = http.StatusOK
	}
	success := Object{{"description", http.StatusText(status)}}
	if rt.Writes && rt.Reply != nil {
		success = append(success, field{"headers", Object{{"ETag", Object{{"schema", Object{{"type", "string"}}}}}}})
	}
	var content Object
	if rt.Reply != nil {
		content = append(content, field{"application/json", Object{{"schema", s.Of(rt.Reply)}}})
	}
	if rt.Stream != "" {
		content = append(content, field{rt.Stream, Object{}})
	}
	if len(content) > 0 {
		success = append(success, field{"content", content})
	}
	all := Object{{strconv.Itoa(status), success}}
	if rt.Method == http.MethodPut && rt.Path != "/v1/nodes/{node}" && rt.Path != "/v1/domain" {
		created := slices.Clone(success)
		created[0].value = http.StatusText(http.StatusCreated)
		all = append(all, field{"201", created})
	}
	if rt.MayRefuse() {
		all = append(all, field{"429", Object{{"$ref", "#/components/responses/busy"}}})
	}
	return append(all, field{"default", Object{{"$ref", "#/components/responses/problem"}}})
}

func parameters(rt *route.Route) []any {
	var all []any
	for _, name := range rt.Names() {
		kind := Object{{"type", "string"}}
		if name == "version" {
			kind = Object{{"type", "integer"}, {"minimum", 1}}
		}
		all = append(all, Object{{"name", name}, {"in", "path"}, {"required", true}, {"schema", kind}})
	}
	for _, p := range rt.Query {
		kind := Object{{"type", p.Kind}}
		switch p.Kind {
		case "duration":
			kind = Object{{"type", "string"}}
		case "array":
			kind = Object{{"type", "array"}, {"items", Object{{"type", "string"}}}}
		}
		all = append(all, Object{{"name", p.Name}, {"in", "query"}, {"description", p.About}, {"schema", kind}})
	}
	if rt.Writes {
		all = append(all,
			Object{
				{"name", "If-Match"},
				{"in", "header"},
				{"description", "the revision that the object must have"},
				{"schema", Object{{"type", "string"}}},
			},
			Object{
				{"name", "If-None-Match"},
				{"in", "header"},
				{"description", "*: the object must not exist"},
				{"schema", Object{{"type", "string"}}},
			})
	}
	return all
}
