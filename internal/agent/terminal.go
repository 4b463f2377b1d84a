package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/transport"
)

// mostTyped is how much may have been typed that the command has not read yet, in bytes. What comes beyond waits in the
// connection, behind which nothing is heard of the other side any more until the command reads on.
const mostTyped = 256 << 10

// errLeft says that the other side went away.
var errLeft = errors.New("the other side went away")

// terminal runs a command on a terminal and returns its exit code. It ends when the other side goes away.
func (a *Agent) terminal(
	ctx context.Context, cancel context.CancelCauseFunc, p live, r transport.TerminalRequest, in *transport.FrameReader,
	out *transport.FrameWriter,
) (int, error) {
	if len(r.Command) == 0 {
		return 0, errors.New("no command was given")
	}
	resized := make(chan executor.TerminalSize, 1)
	keys := newTyped()
	defer keys.close()
	a.work.Go(func() {
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

// readTyped takes in what is typed, and the sizes of the terminal, until the stream ends, which it returns.
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
			case <-resized: // only the newest counts
			default:
			}
			resized <- executor.TerminalSize(s) // has room: nobody else writes
		}
	}
}

// typed is what was typed and not read yet.
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

// write adds what was typed, once there is room.
func (t *typed) write(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.bytes) >= mostTyped && !t.closed {
		t.change.Wait()
	}
	t.bytes = append(t.bytes, b...)
	t.change.Broadcast()
}

// Read waits until something is typed, or it is closed.
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
