// Package route holds the fields of an operation of the API, and reads the parameters of its requests.
package route

import (
	"net/http"
	"reflect"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// Route is one operation of the API: its address, its description and its handler.
type Route struct {
	Method, Path string
	Name         string // of the operation, for generated clients
	Summary      string
	Query        []Parameter
	Body, Reply  reflect.Type // nil for none; JSON
	Status       int          // of success; 0 is 200
	Stream       string       // the media type of an answer that is not JSON, or that Accept may ask for
	Upload       string       // the media type of a body that is not JSON
	Optional     bool         // the body may be left out
	Writes       bool         // takes If-Match and If-None-Match
	Open         bool         // answered without credentials
	Role         cluster.Role // the least that may use it
	Shared       bool         // also for tokens that are limited to clusters, though it is in none: see access.MayUse
	Audited      bool         // a line in the audit log, although it is a GET
	Quiet        bool         // none, although it is not
	Long         bool         // may take as long as the client likes
	Serve        func(http.ResponseWriter, *http.Request) error
}

// Parameter is one that an address may have.
type Parameter struct{ Name, Kind, About string }

// QueryParam returns a parameter: its name, its kind ("string", "integer", "boolean", "duration" or "array") and what
// it means.
func QueryParam(name, kind, about string) Parameter {
	return Parameter{Name: name, Kind: kind, About: about}
}

// RoleMachine is the role of machines: callers with a certificate, for their own operations only.
const RoleMachine cluster.Role = "machine"

// Names returns the names of the path's variable parts.
func (rt *Route) Names() []string {
	var names []string
	for _, rest, found := strings.Cut(rt.Path, "{"); found; _, rest, found = strings.Cut(rest, "{") {
		name, _, _ := strings.Cut(rest, "}")
		names = append(names, name)
	}
	return names
}

// Consistent returns the parameter that asks for a linearizable read.
func Consistent() Parameter {
	return QueryParam("consistent", "boolean", "answer from a state that holds all that was written before the request")
}

// ListParameters are what every list takes, besides its own.
func ListParameters(own ...Parameter) []Parameter {
	return append(own, Consistent(),
		QueryParam("index", "integer", "with wait: answer once the list differs from what it was at this index"),
		QueryParam("wait", "duration", "how long to wait for a change, at most 5m"),
		QueryParam("limit", "integer", "the most elements to answer with; default all"),
		QueryParam("cursor", "string", "the page's next, to go on from there"))
}

// ByName returns the parameter that chooses the elements of one name.
func ByName() Parameter { return QueryParam("name", "string", "only elements of this name") }

// Media types of answers that are streams.
const (
	MediaEventStream = "text/event-stream"
	MediaLines       = "application/x-ndjson"
)
