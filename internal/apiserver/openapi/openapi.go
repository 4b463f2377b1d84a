// Package openapi describes routes as an OpenAPI document, with JSON Schemas of the Go types of their messages.
//
// The document is computed from the routes and the types, so it cannot differ from the server. The checked-in files
// api/openapi.yaml and docs/reference/worker.openapi.json are such documents; tests compare them.
package openapi

import (
	"bytes"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/blockyaml"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/schema"
)

// Document is the description of the API in both forms. YAML computes its form at the first call and may be called
// concurrently.
type Document struct {
	JSON []byte
	YAML func() []byte
}

// object is a JSON object whose fields keep their order.
type object []field

type field struct {
	key   string
	value any // object, *schema.Node, []any, string, int or bool
}

// MarshalJSON writes the fields in their order.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		value, err := schema.Marshal(f.value)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%q:%s", f.key, value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// Info is what a document says besides its routes.
type Info struct {
	Title, Summary, Description string
	// Security names the ways to authenticate, the usual one first: "token" or "certificate".
	Security []string
	// Problem is the body of an error answer.
	Problem reflect.Type
	// Streamed are the types in streams, which no route names.
	Streamed []reflect.Type
	// Schemas has the descriptions of types and fields, and the types with a JSON form of their own.
	Schemas schema.Options
}

// userAPI is the API of users and their programs.
func userAPI() Info {
	return Info{
		Title:    "Berth",
		Summary:  "Berth places containers on machines, and gets the machines.",
		Security: []string{"token"}, Description: about, Problem: reflect.TypeFor[api.Problem](),
		Streamed: []reflect.Type{
			reflect.TypeFor[api.LogLine](), reflect.TypeFor[api.EventGap](), reflect.TypeFor[api.ListMark](),
			reflect.TypeFor[api.ListRemoval](),
		},
	}
}

// Describe returns the description of the routes of the user API.
func Describe(routes []route.Route) Document { return DescribeAs(userAPI(), routes) }

// DescribeAs returns the description of routes.
func DescribeAs(info Info, routes []route.Route) Document {
	compact, _ := schema.Marshal(description(&info, routes)) // texts and numbers only
	return Document{JSON: append(compact, '\n'), YAML: sync.OnceValue(func() []byte {
		inYAML, _ := blockyaml.FromJSON(compact) // which is valid JSON
		return inYAML
	})}
}

func description(info *Info, routes []route.Route) object {
	options := info.Schemas
	options.Refs = "#/components/schemas/"
	g := schema.New(options)
	problem := g.Of(info.Problem)
	for _, t := range info.Streamed {
		g.Of(t)
	}
	var security []any
	for _, scheme := range info.Security {
		security = append(security, object{{scheme, []any{}}})
	}
	var paths object
	for i := range routes {
		rt := &routes[i]
		op := field{strings.ToLower(rt.Method), operation(g, rt)}
		at := slices.IndexFunc(paths, func(f field) bool { return f.key == rt.Path })
		if at < 0 {
			paths = append(paths, field{rt.Path, object{op}})
			continue
		}
		known, _ := paths[at].value.(object)
		paths[at].value = append(known, op)
	}
	var components object
	for _, name := range slices.Sorted(slices.Values(g.Defs.Names)) {
		n := g.Defs.Get(name)
		if g.Types[name].PkgPath() == reflect.TypeFor[cluster.Service]().PkgPath() {
			n.Required = nil // the validation decides which fields are required
		}
		components = append(components, field{name, n})
	}
	return object{
		{"openapi", "3.1.0"},
		{"info", object{
			{"title", info.Title},
			{"version", "v1"},
			{"summary", info.Summary},
			{"description", info.Description},
		}},
		{"security", security},
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
			{"responses", object{
				{"problem", object{
					{"description", "All faults of the request together (RFC 9457)."},
					{"content", object{{"application/problem+json", object{{"schema", problem}}}}},
				}},
				{"busy", object{
					{"description", "Too many requests of this kind run or wait: try again after Retry-After seconds."},
					{"headers", object{{"Retry-After", object{{"schema", object{{"type", "integer"}}}}}}},
					{"content", object{{"application/problem+json", object{{"schema", problem}}}}},
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

func operation(g *schema.Generator, rt *route.Route) object {
	op := object{{"operationId", rt.Name}, {"summary", rt.Summary}}
	if rt.Open {
		op = append(op, field{"security", []any{}})
	}
	switch {
	case rt.Role == route.RoleMachine:
		op = append(op, field{"security", []any{object{{"certificate", []any{}}}}})
	case rt.Role != "":
		op = append(op, field{"x-role", string(rt.Role)})
	}
	if p := parameters(rt); len(p) > 0 {
		op = append(op, field{"parameters", p})
	}
	switch {
	case rt.Body != nil:
		op = append(op, field{"requestBody", object{{"required", !rt.Optional}, {"content", object{
			{"application/json", object{{"schema", g.Of(rt.Body)}}},
		}}}})
	case rt.Upload != "":
		op = append(op, field{"requestBody", object{{"required", true}, {"content", object{{rt.Upload, object{}}}}}})
	}
	return append(op, field{"responses", responses(g, rt)})
}

func responses(g *schema.Generator, rt *route.Route) object {
	status := rt.Status
	if status == 0 {
		status = http.StatusOK
	}
	success := object{{"description", http.StatusText(status)}}
	if rt.Writes && rt.Reply != nil {
		success = append(success, field{"headers", object{{"ETag", object{{"schema", object{{"type", "string"}}}}}}})
	}
	var content object
	if rt.Reply != nil {
		content = append(content, field{"application/json", object{{"schema", g.Of(rt.Reply)}}})
	}
	switch {
	case rt.Line != nil:
		content = append(content, field{rt.Stream, object{{"schema", g.Of(rt.Line)}}})
	case rt.Stream != "":
		content = append(content, field{rt.Stream, object{}})
	}
	if len(content) > 0 {
		success = append(success, field{"content", content})
	}
	all := object{{strconv.Itoa(status), success}}
	if rt.Method == http.MethodPut && rt.Path != "/v1/nodes/{node}" {
		created := slices.Clone(success)
		created[0].value = http.StatusText(http.StatusCreated)
		all = append(all, field{"201", created})
	}
	if rt.MayRefuse() {
		all = append(all, field{"429", object{{"$ref", "#/components/responses/busy"}}})
	}
	return append(all, field{"default", object{{"$ref", "#/components/responses/problem"}}})
}

func parameters(rt *route.Route) []any {
	var all []any
	for _, name := range rt.Names() {
		kind := object{{"type", "string"}}
		if name == "version" {
			kind = object{{"type", "integer"}, {"minimum", 1}}
		}
		all = append(all, object{{"name", name}, {"in", "path"}, {"required", true}, {"schema", kind}})
	}
	for _, p := range rt.Query {
		kind := object{{"type", p.Kind}}
		switch p.Kind {
		case "duration":
			kind = object{{"type", "string"}}
		case "array":
			kind = object{{"type", "array"}, {"items", object{{"type", "string"}}}}
		}
		all = append(all, object{{"name", p.Name}, {"in", "query"}, {"description", p.About}, {"schema", kind}})
	}
	if rt.Writes {
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
