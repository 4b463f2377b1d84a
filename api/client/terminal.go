package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"sync"

	"github.com/coder/websocket"

	"github.com/berthd/berth/api"
)

// Size is the size of a terminal in characters.
type Size struct {
	Rows    uint16 `json:"rows"`
	Columns uint16 `json:"columns"`
}

// Terminal is the terminal of a command.
type Terminal struct {
	Size Size
	// Type is the value of TERM, or "".
	Type string
	// Resized has later sizes; it may be nil.
	Resized <-chan Size
}

// errHungUp says that the terminal's user is gone.
var errHungUp = errors.New("the terminal here was hung up")

func (t *Terminal) ask(q url.Values) {
	q.Set("rows", strconv.Itoa(int(t.Size.Rows)))
	q.Set("columns", strconv.Itoa(int(t.Size.Columns)))
	if t.Type != "" {
		q.Set("type", t.Type)
	}
}

// sendSizes ends with ctx or the connection.
func (t *Terminal) sendSizes(ctx context.Context, conn *websocket.Conn) {
	for {
		select {
		case s := <-t.Resized:
			b, err := json.Marshal(s)
			if err != nil || conn.Write(ctx, websocket.MessageBinary, append([]byte{ChannelResize}, b...)) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// sendTyped ends with the connection or ctx. The end of the typed input ends both.
func sendTyped(ctx context.Context, cancel context.CancelCauseFunc, conn *websocket.Conn, in io.Reader) {
	if in == nil {
		return
	}
	if err := send(ctx, conn, in, 4<<10); err == nil {
		cancel(errHungUp)
	}
}

// send sends input until its end, for which it returns nil. An error is one of the connection or of the input.
func send(ctx context.Context, conn *websocket.Conn, in io.Reader, size int) error {
	buf := make([]byte, 1+size)
	buf[0] = ChannelStdin
	for {
		n, err := in.Read(buf[1:])
		if n > 0 {
			if err := conn.Write(ctx, websocket.MessageBinary, buf[:1+n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// AttachOptions select a container's output.
type AttachOptions struct {
	// Container is a name, or "" for the task's first essential one.
	Container string
	// Tail is the number of earlier lines to send first.
	Tail int
	// Signals are names of signals, such as INT, for its program; it may be nil.
	Signals        <-chan string
	Stdout, Stderr io.Writer
}

// Attach forwards the output of a running container, line by line, until it ends, and returns its exit code. An error
// means that its end is unknown.
func (c *Client) Attach(ctx context.Context, id api.TaskID, o AttachOptions) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q := url.Values{}
	if o.Tail > 0 {
		q.Set("tail", strconv.Itoa(o.Tail))
	}
	conn, err := c.dial(ctx, id, "attach", o.Container, q)
	if err != nil {
		return 0, err
	}
	defer dropConn(conn)
	go func() {
		for {
			select {
			case name := <-o.Signals:
				if conn.Write(ctx, websocket.MessageBinary, append([]byte{ChannelSignal}, name...)) != nil {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return readOutput(ctx, conn, "container", o.Stdout, o.Stderr)
}

// CopyOptions select a file or folder in a container.
type CopyOptions struct {
	// Container is a name, or "" for the task's first essential one.
	Container string
	// Path is the path as the container's program sees it. A relative path begins at the program's working directory.
	Path string
	// Follow copies the targets of links instead of the links.
	Follow bool
	// LeftOut, unless nil, receives a line for each thing that is not copied.
	LeftOut io.Writer
}

// Copied is the result of a copy to a container.
type Copied struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// CopyOut writes a file or folder of a running container as a tar archive. After an error the archive is incomplete.
func (c *Client) CopyOut(ctx context.Context, id api.TaskID, o CopyOptions, to io.Writer) error {
	q := url.Values{"path": {o.Path}}
	if o.Follow {
		q.Set("follow", "true")
	}
	conn, err := c.dial(ctx, id, "copy-out", o.Container, q)
	if err != nil {
		return err
	}
	defer dropConn(conn)
	_, err = readOutput(ctx, conn, "copy", to, o.LeftOut)
	return err
}

// CopyIn unpacks a tar archive in a running container. An error of the archive's reader is returned; files that arrived
// before it stay.
func (c *Client) CopyIn(ctx context.Context, id api.TaskID, o CopyOptions, from io.Reader) (copied Copied, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	conn, err := c.dial(ctx, id, "copy-in", o.Container, url.Values{"path": {o.Path}})
	if err != nil {
		return copied, err
	}
	defer dropConn(conn)
	go func() {
		in := &noted{from: from}
		switch err := send(ctx, conn, in, 64<<10-1); {
		case in.err != nil:
			cancel(in.err)
		case err == nil:
			// the reader sees a broken connection, or why it was refused
			_ = conn.Write(ctx, websocket.MessageBinary, []byte{ChannelStdin})
		}
	}()
	var result bytes.Buffer
	if _, err := readOutput(ctx, conn, "copy", &result, nil); err != nil {
		return copied, err
	}
	if err := json.Unmarshal(result.Bytes(), &copied); err != nil {
		return copied, fmt.Errorf("read what came of the copy: %w", err)
	}
	return copied, nil
}

// noted records the error of a reader other than its end.
type noted struct {
	from io.Reader
	err  error
}

// Read implements io.Reader.
func (n *noted) Read(b []byte) (int, error) {
	k, err := n.from.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		n.err = err
	}
	return k, err
}

// ForwardOptions select a port of a task.
type ForwardOptions struct {
	// Container is a name, or "" for the task's first essential one.
	Container string
	// Port is the name of one of the task's ports, or a number.
	Port string
}

// Connection is a connection to a port of a task. One read and one write may run at the same time.
type Connection struct {
	conn   *websocket.Conn
	ctx    context.Context //nolint:containedctx // it is the connection's life, as readers and writers take none
	cancel context.CancelFunc
	once   sync.Once
	rest   []byte
	end    error
}

// Forward opens a connection to a port of a running task. The first Read reports a port without a listener. The end of
// ctx ends the connection; the caller closes it.
func (c *Client) Forward(ctx context.Context, id api.TaskID, o ForwardOptions) (*Connection, error) {
	ctx, cancel := context.WithCancel(ctx)
	conn, err := c.dial(ctx, id, "forward", o.Container, url.Values{"port": {o.Port}})
	if err != nil {
		cancel()
		return nil, err
	}
	return &Connection{conn: conn, ctx: ctx, cancel: cancel}, nil
}

// Read returns the task's data, and io.EOF when the task has ended its stream.
func (c *Connection) Read(b []byte) (int, error) {
	for len(c.rest) == 0 {
		if c.end != nil {
			return 0, c.end
		}
		_, msg, err := c.conn.Read(c.ctx)
		switch {
		case c.ctx.Err() != nil:
			c.end = context.Cause(c.ctx)
		case err != nil:
			c.end = broken(err)
		case len(msg) == 1 && msg[0] == ChannelStdout:
			c.end = io.EOF
		case len(msg) > 0 && msg[0] == ChannelStdout:
			c.rest = msg[1:]
		case len(msg) > 0 && msg[0] == ChannelExit:
			var exit ExecExit
			c.end = io.EOF
			if err := json.Unmarshal(msg[1:], &exit); err != nil {
				c.end = fmt.Errorf("read the end of a connection: %w", err)
			} else if exit.Error != "" {
				c.end = errors.New(exit.Error)
			}
		}
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// Write sends to the task.
func (c *Connection) Write(b []byte) (n int, err error) {
	const most = 32 << 10
	msg := make([]byte, 1, 1+min(len(b), most))
	msg[0] = ChannelStdin
	for n < len(b) {
		part := b[n:min(len(b), n+most)]
		if err := c.conn.Write(c.ctx, websocket.MessageBinary, append(msg[:1], part...)); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// CloseWrite ends the data to the task.
func (c *Connection) CloseWrite() error {
	return c.conn.Write(c.ctx, websocket.MessageBinary, []byte{ChannelStdin})
}

// Close ends the connection.
func (c *Connection) Close() error {
	c.once.Do(func() {
		c.cancel()
		_ = c.conn.CloseNow() // there is no caller left to get the error
	})
	return nil
}

// Wait blocks, once Read has returned io.EOF, until the whole connection has ended. It returns nil after a regular end.
func (c *Connection) Wait() error {
	for {
		_, msg, err := c.conn.Read(c.ctx)
		switch {
		case c.ctx.Err() != nil:
			return context.Cause(c.ctx)
		case err != nil && websocket.CloseStatus(err) == websocket.StatusNormalClosure:
			return nil
		case err != nil:
			return broken(err)
		case len(msg) > 0 && msg[0] == ChannelExit:
			var exit ExecExit
			if err := json.Unmarshal(msg[1:], &exit); err != nil {
				return fmt.Errorf("read the end of a connection: %w", err)
			}
			if exit.Error != "" {
				return errors.New(exit.Error)
			}
			return nil
		}
	}
}

// dropConn closes a connection whose data was read.
func dropConn(conn *websocket.Conn) { _ = conn.CloseNow() }
