package streams

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/berthd/berth/internal/agent/task"
	"github.com/berthd/berth/internal/transport"
)

// ttlUpdateTimeout limits how long an update waits for its attempt, or for the disk.
const ttlUpdateTimeout = 10 * time.Second

// serveTTLUpdate passes an update to its ttl check and answers once the update is stored.
func (s *Server) serveTTLUpdate(ctx context.Context, r transport.StreamRequest, stream io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, ttlUpdateTimeout)
	defer cancel()
	var end transport.ExecEnd
	if err := s.applyTTLUpdate(ctx, r); err != nil {
		end.Error = err.Error()
	}
	return transport.NewFrameWriter(stream).End(end)
}

// applyTTLUpdate applies an update to its ttl check.
func (s *Server) applyTTLUpdate(ctx context.Context, r transport.StreamRequest) error {
	t := s.Task(r.Task, r.UUID)
	if t == nil {
		return task.ErrUnknownAttempt
	}
	if r.Word == nil || !r.Word.Word.Known() {
		return errors.New("this agent does not know the status")
	}
	return t.UpdateTTL(ctx, r.Word)
}
