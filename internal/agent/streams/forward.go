package streams

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/berthd/berth/internal/agent/inside"
	"github.com/berthd/berth/internal/transport"
)

// errTaskEnded ends the connections to a task's ports.
var errTaskEnded = errors.New("the task has ended")

// forward carries one connection to a port of a program until both directions have ended, the task has ended, or the
// client goes away.
func (s *Server) forward(
	ctx context.Context, cancel context.CancelCauseFunc, p runningProgram, port string, in *transport.FrameReader,
	out *transport.FrameWriter,
) error {
	number, err := p.port(port)
	if err != nil {
		return err
	}
	conn, err := inside.Dial(ctx, p.process, number, s.Facts().Address)
	if err != nil {
		return fmt.Errorf("container %s: %w", p.container, err)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close()
	s.Node.Go(func() {
		select {
		case <-p.task.Ended():
			cancel(errTaskEnded)
		case <-ctx.Done():
		}
	})
	inputOver := make(chan struct{})
	s.Node.Go(func() { cancel(errors.Join(errLeft, send(in, conn, sync.OnceFunc(func() { close(inputOver) })))) })
	_, err = io.CopyBuffer(struct{ io.Writer }{out.Channel(transport.ChannelStdout)}, struct{ io.Reader }{conn},
		make([]byte, 32<<10))
	if err == nil {
		err = out.CloseOutput()
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errTaskEnded):
		return errTaskEnded
	case err != nil:
		return fmt.Errorf("the connection to port %d broke: %w", number, plainNet(err))
	}
	select { // the other direction may continue
	case <-inputOver:
	case <-ctx.Done():
	}
	return nil
}

// send passes frames to a connection until the stream ends, and returns the stream's error. It calls inputOver once the
// connection gets no more input.
func send(in *transport.FrameReader, conn net.Conn, inputOver func()) error {
	for over := false; ; {
		f, err := in.Next()
		switch {
		case err != nil:
			return err
		case f.Channel != transport.ChannelStdin || over:
		case len(f.Body) == 0:
			over = true
			inputOver()
			if half, ok := conn.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
		default:
			if _, err := conn.Write(f.Body); err != nil {
				over = true // the program takes no more input; read on to see the client leave
				inputOver()
			}
		}
	}
}

// plainNet removes the names of system calls from an error.
func plainNet(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}
