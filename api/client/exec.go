package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/coder/websocket"

	"github.com/berthd/berth/api"
)

// Channels of a running command: the first byte of each message.
const (
	ChannelStdin  = 0 // an empty message is the end of the input
	ChannelStdout = 1
	ChannelStderr = 2
	ChannelExit   = 3 // JSON of ExecExit, the last message
	ChannelResize = 4 // JSON of Size, of the terminal
	ChannelSignal = 5 // the name of a signal, such as INT
)

// ExecExit is the result of a command in a container.
type ExecExit struct {
	Code  int    `json:"code"`
	Error string `json:"error,omitempty"`
}

// ExecOptions are the options of a command in a container of a task.
type ExecOptions struct {
	// Container is a name, or "" for the task's first essential container.
	Container string
	Command   []string
	// Stdin is the command's input; nil is none.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Terminal, unless nil, runs the command on a terminal. Stdin is the typed input, whose end hangs up, and Stdout
	// receives all output of the terminal.
	Terminal *Terminal
}

// maxFrame is the maximum size of one message of a command's output, in bytes.
const maxFrame = 1 << 20

// Exec runs a command in a container of a running task and returns its exit code. An error means that the command could
// not run, or that its end is unknown.
func (c *Client) Exec(ctx context.Context, id api.TaskID, o ExecOptions) (int, error) {
	q, what := url.Values{"command": o.Command}, "exec"
	switch {
	case o.Terminal != nil:
		what = "terminal"
		o.Terminal.ask(q)
	case o.Stdin != nil:
		q.Set("stdin", "true")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	conn, err := c.dial(ctx, id, what, o.Container, q)
	if err != nil {
		return 0, err
	}
	defer dropConn(conn)
	switch {
	case o.Terminal != nil:
		go o.Terminal.sendSizes(ctx, conn)
		go sendTyped(ctx, cancel, conn, o.Stdin)
	case o.Stdin != nil:
		go sendInput(ctx, conn, o.Stdin)
	}
	return readOutput(ctx, conn, "command", o.Stdout, o.Stderr)
}

// dial opens one of a task's streams over a websocket, which the caller closes.
func (c *Client) dial(ctx context.Context, id api.TaskID, what, container string, q url.Values) (*websocket.Conn,
	error,
) {
	if container != "" {
		q.Set("container", container)
	}
	r := get("tasks", string(id), what).with(q)
	header := http.Header{}
	c.authorize(header)
	conn, res, err := websocket.Dial(ctx, c.url(r).String(),
		&websocket.DialOptions{HTTPClient: c.taken, HTTPHeader: header})
	if err != nil {
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case res != nil && res.StatusCode != http.StatusSwitchingProtocols:
			return nil, refusal(http.MethodGet, "/v1/tasks/"+string(id)+"/"+what, res)
		}
		return nil, c.unreachable(err)
	}
	conn.SetReadLimit(maxFrame)
	return conn, nil
}

// sendInput ends with the input, the connection or ctx. A read of the input that never returns blocks it.
func sendInput(ctx context.Context, conn *websocket.Conn, in io.Reader) {
	buf := make([]byte, 1+32<<10)
	buf[0] = ChannelStdin
	for {
		n, err := in.Read(buf[1:])
		if n > 0 {
			if conn.Write(ctx, websocket.MessageBinary, buf[:1+n]) != nil {
				return
			}
		}
		if err != nil {
			_ = conn.Write(ctx, websocket.MessageBinary, buf[:1]) // the reader sees a broken connection
			return
		}
	}
}

// readOutput forwards the output of a command until its end and returns the exit code.
func readOutput(ctx context.Context, conn *websocket.Conn, what string, stdout, stderr io.Writer) (int, error) {
	for {
		_, msg, err := conn.Read(ctx)
		switch {
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case err != nil:
			return 0, fmt.Errorf("the end of the %s was not seen: %w", what, broken(err))
		case len(msg) == 0:
			continue
		}
		switch msg[0] {
		case ChannelStdout:
			err = write(stdout, msg[1:])
		case ChannelStderr:
			err = write(stderr, msg[1:])
		case ChannelExit:
			var exit ExecExit
			if err := json.Unmarshal(msg[1:], &exit); err != nil {
				return 0, fmt.Errorf("read exit: %w", err)
			}
			if exit.Error != "" {
				return exit.Code, errors.New(exit.Error)
			}
			return exit.Code, nil
		}
		if err != nil {
			return 0, fmt.Errorf("write output: %w", err)
		}
	}
}

// broken returns the reason for the end of a connection, in the server's words if there are any.
func broken(err error) error {
	if closed, ok := errors.AsType[websocket.CloseError](err); ok && closed.Reason != "" {
		return errors.New(closed.Reason)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the connection to the server broke")
	}
	return fmt.Errorf("the connection to the server broke: %w", err)
}

func write(to io.Writer, b []byte) error {
	if to == nil {
		return nil
	}
	_, err := to.Write(b)
	return err
}
