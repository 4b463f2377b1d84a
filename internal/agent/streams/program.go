package streams

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/task"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/plain"
	"github.com/berthd/berth/internal/transport"
)

// errIncomplete rejects a stream request without its parameters.
var errIncomplete = errors.New("the request came without its parameters")

// runningProgram is a running program as streams see it.
type runningProgram struct {
	task      *task.Task
	executor  executor.Executor
	id        executor.ID
	container string
	process   executor.Process
	ports     map[string]int // that the program listens on, by name
}

// programOf returns the program of a running container: the named one, or the first essential one.
func programOf(t *task.Task, name string) (p runningProgram, err error) {
	if p.executor, p.id, err = t.Containers.Running(name); err != nil {
		return p, err
	}
	p.task = t
	v := t.View()
	p.ports = make(map[string]int, len(v.Record.Desired.Ports))
	for name, number := range v.Record.Desired.Ports { // order-free: ports are independent
		p.ports[name] = v.Definition.PortInside(name, number)
	}
	for i := range v.Record.Containers {
		if c := &v.Record.Containers[i]; c.ID == p.id && c.Progress == attempt.Running {
			p.process, p.container = c.Process, v.Definition.Containers[i].Name
			return p, nil
		}
	}
	return p, executor.ErrNotRunning // it has ended
}

// serveProgram serves a stream of frames to a running program. The last frame carries the result.
func (s *Server) serveProgram(ctx context.Context, r transport.StreamRequest, stream io.ReadWriter) error {
	frames := transport.NewFrameWriter(stream)
	end, err := s.serveFrames(ctx, r, stream, frames)
	if err != nil {
		end = transport.ExecEnd{Error: plain.Text(err)}
	}
	return frames.End(end)
}

func (s *Server) serveFrames(ctx context.Context, r transport.StreamRequest, in io.Reader,
	out *transport.FrameWriter,
) (end transport.ExecEnd, err error) {
	t := s.Task(r.Task, r.UUID)
	if t == nil {
		return end, errors.New("the node does not have the task")
	}
	p, err := programOf(t, r.Container)
	if err != nil {
		return end, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	frames := transport.NewFrameReader(in)
	switch {
	case r.Kind == transport.StreamTerminal && r.Terminal != nil:
		end.Code, err = s.terminal(ctx, cancel, p, *r.Terminal, frames, out)
	case r.Kind == transport.StreamForward && r.Forward != nil:
		err = s.forward(ctx, cancel, p, r.Forward.Port, frames, out)
	case r.Kind == transport.StreamCopyOut && r.Copy != nil:
		err = copyOut(p, *r.Copy, out)
	case r.Kind == transport.StreamCopyIn && r.Copy != nil:
		err = copyIn(p, *r.Copy, frames, out)
	case r.Kind == transport.StreamAttach && r.Attach != nil:
		end.Code, err = s.attach(ctx, cancel, p, *r.Attach, frames, out)
	default:
		err = errIncomplete
	}
	return end, err
}

// port returns the number of a port of the program, given by name or by number.
func (p *runningProgram) port(name string) (int, error) {
	if n, named := p.ports[name]; named {
		return n, nil
	}
	n, err := strconv.Atoi(name)
	switch {
	case err == nil && n > 0 && n < 1<<16:
		return n, nil
	case len(p.ports) == 0:
		return 0, fmt.Errorf("%q is not a port number, and the task has no named ports", name)
	}
	return 0, fmt.Errorf("%q is neither a port number nor a port of the task, which has %v", name,
		slices.Sorted(maps.Keys(p.ports)))
}
