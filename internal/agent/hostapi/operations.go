package hostapi

import (
	"net/http"
	"reflect"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/openapi"
	"github.com/berthd/berth/internal/apiserver/route"
)

// pathTask is the variable part of addresses: the name or the id of a task.
const pathTask = "name_or_id"

// operations returns the routes of all operations, in the order of the API's description.
func (s *Server) operations() []route.Route {
	state, task := reflect.TypeFor[api.HostState](), reflect.TypeFor[api.HostTask]()
	return append([]route.Route{
		{
			Method: "GET", Path: "/v1/tasks", Name: "listTasks", Reply: state, Stream: route.MediaEventStream,
			Summary: "All that runs on the node, with its resources. As text/event-stream: a first event \"state\" " +
				"with everything (HostState), then an event \"change\" with each change (HostChange).",
			Serve: s.listTasks,
		},
		{
			Method: "GET", Path: "/v1/tasks/{name_or_id}", Name: "readTask", Reply: task, Summary: "One task.",
			Serve: s.readTask,
		},
		{
			Method: "GET", Path: "/v1/tasks/{name_or_id}/logs", Name: "readLogs",
			Summary: "The output of a task, a LogLine as JSON a line. As text/event-stream: events \"line\", which " +
				"follow the output. A reader that is too slow gets the number of lines that it lost.",
			Query: []route.Parameter{
				route.QueryParam("history", "integer", "begin with this many of the newest lines; default 10"),
				route.QueryParam("follow", "boolean", "wait for new lines"),
				route.QueryParam("container", "string", "only this container"),
				route.QueryParam("stream", "string", "stdout or stderr; default both"),
			},
			Stream: route.MediaLines, Line: reflect.TypeFor[api.LogLine](), Serve: s.readLogs,
		},
		{
			Method: "GET", Path: "/v1/resources", Name: "readResources", Reply: reflect.TypeFor[api.HostResources](),
			Summary: "What the node has, what its tasks reserve, and what it uses.", Serve: s.readResources,
		},
		{
			Method: "GET", Path: "/openapi.json", Name: "openapi", Summary: "This description.",
			Stream: "application/json", Serve: s.readDocument,
		},
	}, append(s.writeOperations(), s.handoverOperations()...)...)
}

// Operations returns the routes of this API for its description. They serve nothing.
func Operations() []route.Route { return New(Config{}).routes }

// Describe returns what the description says besides the routes; it fills the fields of info that are empty.
func Describe(info openapi.Info) openapi.Info {
	info.Title, info.Summary = "Berth host API", "The tasks of one node, and its resources."
	info.Description = "Each agent serves this API on a unix socket. Every node serves the reads. A node that drives " +
		"itself also serves the writes; other nodes refuse them with 409 and name the owner. docs/guide/host-api.md " +
		"has examples."
	info.Security, info.Problem = []string{"certificate"}, reflect.TypeFor[api.Problem]()
	info.Streamed = []reflect.Type{reflect.TypeFor[api.HostChange]()}
	return info
}

// accepted answers a request that the node has accepted and carries out.
func accepted(w http.ResponseWriter) error {
	w.WriteHeader(http.StatusAccepted)
	return nil
}
