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

	"github.com/berthd/berth/internal/cluster"
)

// Channels of a running command: the first byte of each message.
const (
	ChannelStdin  = 0 // an empty message is the end of the input
	ChannelStdout = 1
	ChannelStderr = 2
	ChannelExit   = 3 // JSON of ExecExit, the last message
)

// ExecExit is how a command in a container ended.
type ExecExit struct {
	Code  int    `json:"code"`
	Error string `json:"error,omitempty"`
}

// ExecOptions say what to run in a container of a task.
type ExecOptions struct {
	// Container is a name, or "" for the task's first essential one.
	Container string
	Command   []string
	// Stdin is the command's input; nil is none.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// maxFrame bounds one message of a command's output.
const maxFrame = 1 << 20

// Exec runs a command in a container of a running task and returns its exit code. An error says that
// it could not be run, or that its end was not seen.
func (c *Client) Exec(ctx context.Context, id cluster.TaskID, o ExecOptions) (int, error) {
	q := url.Values{"command": o.Command}
	if o.Container != "" {
		q.Set("container", o.Container)
	}
	if o.Stdin != nil {
		q.Set("stdin", "true")
	}
	r := get("tasks", string(id), "exec").with(q)
	header := http.Header{}
	c.authorize(header)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, res, err := websocket.Dial(ctx, c.url(r).String(), &websocket.DialOptions{HTTPClient: c.taken, HTTPHeader: header})
	if err != nil {
		switch {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case res != nil && res.StatusCode != http.StatusSwitchingProtocols:
			return 0, refusal(http.MethodGet, "/v1/tasks/"+string(id)+"/exec", res)
		}
		return 0, c.unreachable(err)
	}
	defer conn.CloseNow() //nolint:errcheck // the answer is read by then
	conn.SetReadLimit(maxFrame)
	if o.Stdin != nil {
		go sendInput(ctx, conn, o.Stdin)
	}
	return readOutput(ctx, conn, o)
}

// sendInput ends with the input, the connection or ctx; a read of the input that never ends keeps it.
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

func readOutput(ctx context.Context, conn *websocket.Conn, o ExecOptions) (int, error) {
	for {
		_, msg, err := conn.Read(ctx)
		switch {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case err != nil:
			return 0, fmt.Errorf("the end of the command was not seen: %w", err)
		case len(msg) == 0:
			continue
		}
		switch msg[0] {
		case ChannelStdout:
			err = write(o.Stdout, msg[1:])
		case ChannelStderr:
			err = write(o.Stderr, msg[1:])
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

func write(to io.Writer, b []byte) error {
	if to == nil {
		return nil
	}
	_, err := to.Write(b)
	return err
}
