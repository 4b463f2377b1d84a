// Package route holds the fields of an operation of the API, and reads the parameters of its requests.
package route

import (
	"net/http"
	"reflect"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/selector"
)

// Route is one operation of the API: its address, its description and its handler.
type Route struct {
	Method, Path string
	Name         string // name of the operation, for generated clients
	Summary      string
	Query        []Parameter
	Body, Reply  reflect.Type // types of JSON bodies; nil for none
	Status       int          // status of success; 0 is 200
	Stream       string       // media type of an answer that is not JSON, or that Accept may request
	Line         reflect.Type // type of a line of Stream; nil where the description does not name it
	Upload       string       // media type of a body that is not JSON
	Optional     bool         // the body is optional
	Writes       bool         // accepts If-Match and If-None-Match
	Open         bool         // needs no credentials
	Role         cluster.Role // the least role
	Shared       bool         // open to tokens with a limit, although it is in no cluster; see access.MayUse
	Audited      bool         // is in the audit log, although it is a GET
	Quiet        bool         // is not in the audit log, although it is not a GET
	Long         bool         // has no time limit
	Limited      bool         // answers 429 under load; lists do so without this mark, see MayRefuse
	Serve        func(http.ResponseWriter, *http.Request) error
}

// MayRefuse reports whether the operation answers 429 with Retry-After if too many requests of its kind run or wait.
// Lists and the event log do, because the number of requests that wait for changes is limited.
func (rt *Route) MayRefuse() bool { return rt.Limited || rt.Stream == MediaEventStream }

// Parameter is a query parameter.
type Parameter struct{ Name, Kind, About string }

// QueryParam returns a parameter with its name, its kind ("string", "integer", "boolean", "duration" or "array") and
// its meaning.
func QueryParam(name, kind, about string) Parameter {
	return Parameter{Name: name, Kind: kind, About: about}
}

// RoleMachine is the role of machines: callers with a certificate. They may use their own operations only.
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

// Consistent returns the parameter that requests a linearizable read.
func Consistent() Parameter {
	return QueryParam("consistent", "boolean", "answer from a state that contains all writes before the request")
}

// DomainParameter returns the parameter that names a domain.
func DomainParameter() Parameter {
	return QueryParam("domain", "string", "the domain, by default the domain default")
}

// ListParameters returns the parameters of a list: its own, and those of all lists.
func ListParameters(own ...Parameter) []Parameter {
	return append(own, Consistent(),
		QueryParam("index", "integer", "with wait: answer once the list differs from its content at this index"),
		QueryParam("wait", "duration", "how long to wait for a change, at most 5m"),
		QueryParam("limit", "integer", "the maximum number of elements; default all"),
		QueryParam("cursor", "string", "the field next of the previous page"))
}

// ByName returns the parameter that chooses the elements of one name.
func ByName() Parameter { return QueryParam("name", "string", "only elements of this name") }

// BySelector returns the parameter that chooses elements by labels (package selector). Whose names the objects that
// have the labels: "elements", or "tasks of services and jobs".
func BySelector(whose string) Parameter {
	return QueryParam(selectorName, "string",
		"only "+whose+" with these labels: key=value, key!=value, key or !key, separated by commas")
}

const selectorName = "selector"

// SelectorOf returns the selector of a request. Without the parameter it selects all.
func SelectorOf(r *http.Request) (selector.Labels, error) {
	text := r.URL.Query().Get(selectorName)
	if text == "" {
		return nil, nil
	}
	chosen, err := selector.Parse(text)
	if err != nil {
		return nil, BadQuery(selectorName, "is refused: %v", err)
	}
	return chosen, nil
}

// Media types of answers that are streams.
const (
	MediaEventStream = "text/event-stream"
	MediaLines       = "application/x-ndjson"
)
