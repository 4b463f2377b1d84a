package streams

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/transport"
)

// maxTypedBytes limits the input that the command has not read yet. Further input waits in the connection, which also
// holds back all later frames until the command reads on.
const maxTypedBytes = 256 << 10

// errLeft means that the client went away.
var errLeft = errors.New("the other side went away")

// terminal runs a command on a terminal and returns its exit code. It ends when the client goes away.
func (s *Server) terminal(
	ctx context.Context, cancel context.CancelCauseFunc, p runningProgram, r transport.TerminalRequest,
	in *transport.FrameReader, out *transport.FrameWriter,
) (int, error) {
	if len(r.Command) == 0 {
		return 0, errors.New("no command was given")
	}
	resized := make(chan executor.TerminalSize, 1)
	keys := newTyped()
	defer keys.close()
	s.Node.Go(func() {
		cancel(errors.Join(errLeft, readTyped(in, keys, resized)))
		keys.close()
	})
	cmd := executor.Command{
		Args: r.Command, Stdin: keys, Stdout: out.Channel(transport.ChannelStdout),
		Terminal: &executor.Terminal{Size: executor.TerminalSize(r.Size), Resized: resized},
	}
	if r.Type != "" {
		cmd.Env = []string{"TERM=" + r.Type}
	}
	return p.executor.Exec(ctx, p.id, cmd)
}

// readTyped reads input and sizes of the terminal until the stream ends, and returns the stream's error.
func readTyped(in *transport.FrameReader, keys *typed, resized chan executor.TerminalSize) error {
	for {
		f, err := in.Next()
		if err != nil {
			return err
		}
		switch f.Channel {
		case transport.ChannelStdin:
			keys.write(f.Body)
		case transport.ChannelResize:
			var s transport.TerminalSize
			if err := json.Unmarshal(f.Body, &s); err != nil {
				return err
			}
			select {
			case <-resized: // only the newest size counts
			default:
			}
			resized <- executor.TerminalSize(s) // never blocks: there is no other sender
		}
	}
}

// typed is input that was not read yet.
type typed struct {
	mu     sync.Mutex
	change *sync.Cond
	bytes  []byte
	closed bool
}

func newTyped() *typed {
	t := &typed{}
	t.change = sync.NewCond(&t.mu)
	return t
}

// write adds input once there is room.
func (t *typed) write(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.bytes) >= maxTypedBytes && !t.closed {
		t.change.Wait()
	}
	t.bytes = append(t.bytes, b...)
	t.change.Broadcast()
}

// Read waits for input or for close.
func (t *typed) Read(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.bytes) == 0 && !t.closed {
		t.change.Wait()
	}
	if t.closed {
		return 0, io.EOF
	}
	n := copy(b, t.bytes)
	t.bytes = t.bytes[n:]
	t.change.Broadcast()
	return n, nil
}

func (t *typed) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.change.Broadcast()
}
