package agent

import (
	"context"
	"io"

	"github.com/berthd/berth/internal/transport"
)

// Source is the server as an agent sees it. Three errors have a meaning: transport.ErrSession requires a new
// registration. transport.ErrElsewhere requires one because requests now go to another server. transport.ErrRefused
// means that the servers reject the node. Any other error may be temporary. The methods may be called concurrently.
type Source interface {
	// Register begins a session (P6.1).
	Register(ctx context.Context, r transport.Registration) (transport.Welcome, error)
	// Assignments opens the assignment stream of a session.
	Assignments(ctx context.Context, r transport.AssignmentsRequest) (AssignmentStream, error)
	// Report sends a report. The reply comes once all that must be durable is durable (P4.6).
	Report(ctx context.Context, r transport.Report) (transport.ReportReply, error)
	// Stream connects the byte stream that a message requests.
	Stream(ctx context.Context, id string) (io.ReadWriteCloser, error)
}

// serverLearner is a Source that accepts the server addresses of an earlier run of the agent.
type serverLearner interface {
	Learn(servers []string)
}

// AssignmentStream is an open assignment stream.
type AssignmentStream interface {
	// Next blocks until a message arrives. The end of the stream is an error. Only one goroutine at a time calls it.
	Next(ctx context.Context) (transport.Message, error)
	Close() error
}

// FromClient returns a Source that uses a client of the transport.
func FromClient(c *transport.Client) Source { return clientSource{c} }

type clientSource struct{ *transport.Client }

// Assignments opens the assignment stream of a session.
func (s clientSource) Assignments(ctx context.Context, r transport.AssignmentsRequest) (AssignmentStream, error) {
	stream, err := s.Client.Assignments(ctx, r)
	if err != nil {
		return nil, err
	}
	return stream, nil
}
