package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/berthd/berth/internal/apiserver/openapi"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/schema"
	"github.com/berthd/berth/internal/transport"
)

// workerAPI returns the OpenAPI document of the worker protocol.
func workerAPI(comments map[string]string) ([]byte, error) {
	var routes []route.Route
	for _, o := range transport.Operations() {
		r := route.Route{
			Method: o.Method, Path: o.Path, Name: o.Name, Summary: o.Summary,
			Body: o.Request, Reply: o.Reply, Line: o.Line,
		}
		switch {
		case o.Line != nil:
			r.Stream = route.MediaLines
		case o.IsBytes:
			r.Stream, r.Upload = "application/octet-stream", "application/octet-stream"
		}
		routes = append(routes, r)
	}
	document := openapi.DescribeAs(openapi.Info{
		Title:   "Berth worker protocol",
		Summary: "The requests of agents and workers to servers.",
		Description: fmt.Sprintf("docs/reference/worker.md has the rules for the order of messages. The version of "+
			"the protocol is %d.", transport.WireVersion),
		Security: []string{"certificate", "token"},
		Problem:  reflect.TypeFor[transport.Failure](),
		Schemas: schema.Options{
			Comments: comments, AsFields: []reflect.Type{reflect.TypeFor[transport.ServiceUpdate]()},
		},
	}, routes)
	var out bytes.Buffer
	if err := json.Indent(&out, document.JSON, "", "  "); err != nil {
		return nil, fmt.Errorf("indent the worker protocol: %w", err)
	}
	return out.Bytes(), nil
}
