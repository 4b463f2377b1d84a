// Package agentapi holds the operations that agents answer over byte streams: images, volumes, logs, commands,
// terminals, ports, files and checks.
package agentapi

import (
	"context"
	"io"
	"net/http"

	"github.com/google/uuid"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/transport"
)

// Streams opens byte streams to the agents of nodes.
type Streams struct {
	Nodes Nodes // nil refuses every stream
}

// open opens a byte stream to a node. The stream is closed when ctx ends.
func (a Streams) open(ctx context.Context, node string, req transport.StreamRequest) (io.ReadWriteCloser, error) {
	if a.Nodes == nil {
		return nil, respond.Problemf(http.StatusServiceUnavailable,
			"this server has no connection to agents: ask another server")
	}
	req.ID = uuid.NewString()
	stream, err := a.Nodes.OpenStream(ctx, node, req)
	if err != nil {
		return nil, respond.Problemf(http.StatusServiceUnavailable,
			"node %s cannot be reached: %v; `berth node status %s` shows its state", node, err, node)
	}
	return stream, nil
}

// TaskFinder returns the attempt in the address and its view. The row is nil for a pending task.
type TaskFinder func(*store.Snapshot, *http.Request) (api.TaskView, *store.AttemptRow, error)

// Nodes opens byte streams to agents; the dispatcher is one. A node without a session is an error. The stream lives
// until it is closed or ctx ends. Safe for concurrent use.
type Nodes interface {
	OpenStream(ctx context.Context, node string, req transport.StreamRequest) (io.ReadWriteCloser, error)
}

// AttemptParameter returns the parameter that names an attempt of a task.
func AttemptParameter() route.Parameter {
	return route.QueryParam("attempt", "integer", "the attempt's number; default the newest")
}

func containerParameter() route.Parameter {
	return route.QueryParam("container", "string",
		"the container's name; default the first essential one, for logs all")
}
