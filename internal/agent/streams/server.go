// Package streams serves the byte streams that servers open to a node: logs, commands, terminals, copies and ports of
// running tasks, and requests on images and volumes.
package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthd/berth/internal/agent/images"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/agent/task"
	"github.com/berthd/berth/internal/agent/volumes"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/logs"
	"github.com/berthd/berth/internal/plain"
	"github.com/berthd/berth/internal/transport"
)

// maxStreams limits the number of open byte streams; the agent ignores further requests.
const maxStreams = 256

// Source connects the byte streams that a server requested.
type Source interface {
	Stream(ctx context.Context, id string) (io.ReadWriteCloser, error)
}

// Server serves the byte streams of a node: logs, commands, and requests on images and volumes. Each stream has a
// goroutine; a slow reader delays only its own stream. Its methods may be called concurrently.
type Server struct {
	Node   *node.Node
	Source Source
	// Task returns the attempt with the UUID, or the newest attempt of the task where uuid is empty, or nil.
	Task    func(id cluster.TaskID, uuid string) *task.Task
	Facts   func() cluster.Facts
	Images  *images.Server
	Volumes *volumes.Server

	open atomic.Int64 // byte streams that are open
}

// Serve connects a byte stream and serves it on a goroutine of its own. Logs come from files, and a command has its own
// process.
func (s *Server) Serve(ctx context.Context, r transport.StreamRequest) {
	if n := s.open.Add(1); n > maxStreams {
		s.open.Add(-1)
		s.Node.Logger.Warn("too many byte streams are open; one was not opened", "task", r.Task)
		return
	}
	s.Node.Go(func() {
		defer s.open.Add(-1)
		stream, err := s.Source.Stream(ctx, r.ID)
		if err != nil {
			s.Node.Logger.Info("a byte stream was not opened", "task", r.Task, "error", err)
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(ctx, func() { _ = stream.Close() })()
		switch r.Kind {
		case transport.StreamLogs:
			err = s.serveLogs(ctx, r, stream)
		case transport.StreamExec:
			err = s.serveExec(ctx, r, stream)
		case transport.StreamImageLoad, transport.StreamImageList, transport.StreamImagePull,
			transport.StreamImageResolve, transport.StreamImagePrune:
			err = s.Images.Serve(ctx, r, stream)
		case transport.StreamVolumeList, transport.StreamVolumeRemove:
			err = s.Volumes.Serve(r, stream)
		case transport.StreamTTLUpdate:
			err = s.serveTTLUpdate(ctx, r, stream)
		case transport.StreamTerminal, transport.StreamForward, transport.StreamCopyOut, transport.StreamCopyIn,
			transport.StreamAttach:
			err = s.serveProgram(ctx, r, stream)
		default:
			err = fmt.Errorf("this agent does not support %q", r.Kind)
		}
		if err != nil && ctx.Err() == nil {
			s.Node.Logger.Info("a byte stream ended early", "task", r.Task, "kind", r.Kind, "error", err)
		}
		_ = stream.Close()
	})
}

// serveLogs writes lines as JSON until the end of the log, with Follow until the end of the attempt, or until the
// reader goes away. Without Follow the lines of all containers come in the order of their times.
func (s *Server) serveLogs(ctx context.Context, r transport.StreamRequest, stream io.ReadWriter) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.Node.Go(func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, stream) // until the reader goes away, or stream is closed
	})
	return s.WriteLogs(ctx, r, stream)
}

// WriteLogs writes lines as JSON, each in one call of Write, until the end of the log, with Follow until the end of the
// attempt. Without Follow the lines of all containers come in the order of their times. A slow writer delays no task:
// lines that were deleted before they were read are counted in a line of their own.
func (s *Server) WriteLogs(ctx context.Context, r transport.StreamRequest, to io.Writer) error {
	ask := transport.LogsRequest{Tail: -1}
	if r.Logs != nil {
		ask = *r.Logs
	}
	t := s.Task(r.Task, r.UUID)
	if t == nil {
		return s.serveKept(ctx, r, ask, json.NewEncoder(to))
	}
	v := t.View()
	if v == nil || v.Definition == nil {
		return errors.New("the task's containers are not known")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := &lineWriter{to: json.NewEncoder(to), lost: s.countLost}
	opt := options(ask, t.Ended())
	var read []*containerLog
	for i := range v.Definition.Containers {
		name := v.Definition.Containers[i].Name
		if r.Container == "" || r.Container == name {
			read = append(read, &containerLog{container: name, dir: s.Node.LogDir(t.ID.UUID, name)})
		}
	}
	if !ask.Follow {
		return readMerged(ctx, read, opt, out)
	}
	var all sync.WaitGroup
	errs := make([]error, len(read))
	for i, l := range read {
		all.Go(func() {
			err := logs.Read(ctx, l.dir, opt, out.from(l.container))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				errs[i] = err
				cancel()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// options translates a request; ended is closed once no more lines can come.
func options(ask transport.LogsRequest, ended <-chan struct{}) logs.Options {
	o := logs.Options{Follow: ask.Follow, Done: ended, Stream: ask.Stream, Tail: ask.Tail}
	switch {
	case ask.Tail < 0:
		o.Tail = 0 // all lines
	case ask.Tail == 0:
		o.Tail = -1 // no line
	}
	if ask.Since > 0 {
		o.Since = time.Now().Add(-time.Duration(ask.Since))
	}
	return o
}

// lineWriter writes the lines of several logs to one stream.
type lineWriter struct {
	mu sync.Mutex
	to *json.Encoder
	// lost counts the missing lines that a line stands for.
	lost func(logs.Line)
}

// countLost counts the missing lines that a line stands for, if it does. The writer of a log dates the lines that it
// could not write.
func (s *Server) countLost(l logs.Line) {
	if m := s.Node.Metrics; m != nil && l.Lost > 0 {
		m.LogLinesLost(l.Lost, l.Time.IsZero())
	}
}

// namedLine is a line with its container.
type namedLine struct {
	Container string `json:"container"`
	logs.Line
}

// from returns a function that takes the lines of one container.
func (w *lineWriter) from(container string) func(logs.Line) error {
	return func(l logs.Line) error {
		w.lost(l)
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.to.Encode(namedLine{container, l})
	}
}

// serveExec runs a command in a container of a task. The last frame carries the result.
func (s *Server) serveExec(ctx context.Context, r transport.StreamRequest, stream io.ReadWriter) error {
	frames := transport.NewFrameWriter(stream)
	fail := func(err error) error { return frames.End(transport.ExecEnd{Error: plain.Text(err)}) }
	t := s.Task(r.Task, r.UUID)
	if t == nil {
		return fail(errors.New("the node does not have the task"))
	}
	if r.Exec == nil || len(r.Exec.Command) == 0 {
		return fail(errors.New("no command was given"))
	}
	exec, id, err := t.Containers.Running(r.Container)
	if err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, feed := io.Pipe()
	s.Node.Go(func() {
		defer cancel() // the reader went away: stop the command
		err := readInput(transport.NewFrameReader(stream), feed, r.Exec.Stdin)
		_ = feed.CloseWithError(err)
	})
	cmd := executor.Command{
		Args:   r.Exec.Command,
		Stdout: frames.Channel(transport.ChannelStdout), Stderr: frames.Channel(transport.ChannelStderr),
	}
	if r.Exec.Stdin {
		cmd.Stdin = in
	}
	code, err := exec.Exec(ctx, id, cmd)
	_ = in.Close() // discards later input
	if err != nil {
		return fail(err)
	}
	return frames.End(transport.ExecEnd{Code: code})
}

// readInput feeds the command's input until the stream ends, and returns the stream's error.
func readInput(frames *transport.FrameReader, feed *io.PipeWriter, wanted bool) error {
	for {
		f, err := frames.Next()
		if err != nil {
			return err
		}
		switch {
		case f.Channel != transport.ChannelStdin || !wanted:
		case len(f.Body) == 0:
			_ = feed.Close()
			wanted = false
		default:
			if _, err := feed.Write(f.Body); err != nil {
				wanted = false // the command closed its input; read on to see the reader leave
			}
		}
	}
}
