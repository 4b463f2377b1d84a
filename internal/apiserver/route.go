package apiserver

import (
	"net/http"
	"reflect"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// route is one operation of the API: how it is reached, how it is described, and who answers it.
type route struct {
	method, path string
	name         string // of the operation, for generated clients
	summary      string
	query        []parameter
	body, reply  reflect.Type // nil for none; JSON
	status       int          // of success; 0 is 200
	stream       string       // the media type of an answer that is not JSON, or that Accept may ask for
	upload       string       // the media type of a body that is not JSON
	optional     bool         // the body may be left out
	writes       bool         // takes If-Match and If-None-Match
	open         bool         // answered without credentials
	role         cluster.Role // the least that may use it
	shared       bool         // also for tokens that are limited to clusters, though it is in none: see roles.go
	audited      bool         // a line in the audit log, although it is a GET
	quiet        bool         // none, although it is not
	long         bool         // may take as long as the client likes
	serve        func(http.ResponseWriter, *http.Request) error
}

// parameter is one that an address may have.
type parameter struct{ name, kind, about string }

// queryParam returns a parameter: its name, its kind ("string", "integer", "boolean", "duration" or "array") and what
// it means.
func queryParam(name, kind, about string) parameter {
	return parameter{name: name, kind: kind, about: about}
}

// roleMachine is whoever shows a certificate, for itself.
const roleMachine cluster.Role = "machine"

// names returns the names of the path's variable parts.
func (rt *route) names() []string {
	var names []string
	for _, rest, found := strings.Cut(rt.path, "{"); found; _, rest, found = strings.Cut(rest, "{") {
		name, _, _ := strings.Cut(rest, "}")
		names = append(names, name)
	}
	return names
}

func consistent() parameter {
	return queryParam("consistent", "boolean", "answer from a state that holds all that was written before the request")
}

// listParameters are what every list takes, besides its own.
func listParameters(own ...parameter) []parameter {
	return append(own, consistent(),
		queryParam("index", "integer", "with wait: answer once the list differs from what it was at this index"),
		queryParam("wait", "duration", "how long to wait for a change, at most 5m"),
		queryParam("limit", "integer", "the most elements to answer with; default all"),
		queryParam("cursor", "string", "the page's next, to go on from there"))
}

const (
	eventStream = "text/event-stream"
	lines       = "application/x-ndjson"
)
