package agent

import (
	"context"
	"io"

	"github.com/berthd/berth/internal/transport"
)

// Source is the server as an agent sees it. Errors are transport.ErrSession where the agent has to register
// anew, transport.ErrElsewhere where it has to do so because another server is asked from now on, and
// transport.ErrRefused where it is not wanted; any other error may pass. The methods may be
// called concurrently.
type Source interface {
	// Register begins a session (P6.1).
	Register(ctx context.Context, r transport.Registration) (transport.Welcome, error)
	// Assignments opens the assignment stream of a session.
	Assignments(ctx context.Context, r transport.AssignmentsRequest) (AssignmentStream, error)
	// Report sends a report. The reply comes once what had to be durable is (P4.6).
	Report(ctx context.Context, r transport.Report) (transport.ReportReply, error)
	// Stream calls back for a byte stream that a message asked for.
	Stream(ctx context.Context, id string) (io.ReadWriteCloser, error)
}

// learner is a Source that takes the addresses of servers which an earlier life of the agent was told.
type learner interface {
	Learn(servers []string)
}

// AssignmentStream is an open assignment stream.
type AssignmentStream interface {
	// Next blocks until there is a message or the stream has ended, which is an error. One goroutine at a time calls
	// it.
	Next(ctx context.Context) (transport.Message, error)
	Close() error
}

// FromClient returns the Source that a client of the transport is.
func FromClient(c *transport.Client) Source { return clientSource{c} }

type clientSource struct{ *transport.Client }

func (s clientSource) Assignments(ctx context.Context, r transport.AssignmentsRequest) (AssignmentStream, error) {
	stream, err := s.Client.Assignments(ctx, r)
	if err != nil {
		return nil, err
	}
	return stream, nil
}
