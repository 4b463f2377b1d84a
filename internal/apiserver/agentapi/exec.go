package agentapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/transport"
)

// ExecAPI carries commands, terminals, ports and files between clients and tasks over websockets.
type ExecAPI struct {
	Tables  snapshot.Tables
	Find    TaskFinder
	Agents  Streams
	Streams *prometheus.GaugeVec // open streams, by kind
}

// exec runs a command in a container over a websocket. Each binary message begins with its channel
// (transport.ChannelStdin and so on); the frame's body follows.
func (a *ExecAPI) exec(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	command := q["command"]
	if len(command) == 0 || command[0] == "" {
		return route.BadQuery("command", "is missing: give the command to run")
	}
	return a.carryFrames(w, r, carriedStream{
		StreamRequest: transport.StreamRequest{
			Kind: transport.StreamExec,
			Exec: &transport.ExecRequest{Command: command, Stdin: route.Flag(r, "stdin")},
		},
	})
}

// carriedStream is a stream of frames between a client and a node.
type carriedStream struct {
	transport.StreamRequest
	// also is a channel that the client may use besides the one for input; 0 is none.
	also byte
	// stall is how long the node may leave input unread until the stream is closed; 0 is no limit.
	stall time.Duration
}

// carryFrames carries a stream between a websocket and the node of the task in the address.
func (a *ExecAPI) carryFrames(w http.ResponseWriter, r *http.Request, c carriedStream) error {
	if r.ProtoMajor != 1 || r.Header.Get("Upgrade") == "" {
		w.Header().Set("Upgrade", "websocket")
		return respond.Problemf(http.StatusUpgradeRequired,
			"this endpoint needs a websocket: send Upgrade: websocket over HTTP/1.1")
	}
	v, row, err := a.Find(a.Tables.Snapshot(), r)
	if err != nil {
		return err
	}
	if row == nil || v.State == cluster.StatePending {
		return errNotPlaced(v)
	}
	if v.State.Terminal() {
		return respond.Problemf(http.StatusConflict,
			"attempt %d of task %s has ended: it %s; `berth ps` lists the tasks that run", v.Attempt, v.ID, v.State)
	}
	if v.State == cluster.StateAssigned || v.State == cluster.StatePreparing {
		return errNotStarted(v)
	}
	// The websocket takes over the connection, so that its end does not cancel the request's own context. That context
	// ends when the server stops or the gate ends the request. A client learns the gate's reason.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	c.Task, c.UUID, c.Container = row.Task, observe.UUID(row), r.URL.Query().Get("container")
	stream, err := a.Agents.open(ctx, row.Node, c.StreamRequest)
	if err != nil {
		return err
	}
	defer stream.Close() // a frame has carried its end
	// The gate has checked the origin.
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return fmt.Errorf("accept websocket: %w", err)
	}
	defer conn.CloseNow() //nolint:errcheck // closed in order above, or broken
	conn.SetReadLimit(transport.MaxFrame + 1)
	interrupted := make(chan struct{})
	stop := context.AfterFunc(r.Context(), func() {
		defer close(interrupted)
		_ = stream.Close()
		if refused, ok := errors.AsType[*respond.Problem](context.Cause(r.Context())); ok {
			_ = conn.Close(websocket.StatusPolicyViolation, refused.Detail) // waits seconds at most for the client
		}
		cancel()
	})
	gauge := a.Streams.WithLabelValues(string(c.Kind))
	gauge.Inc()
	defer gauge.Dec()

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.sendInput(ctx, conn, stream) // the input has ended or failed:
		_ = stream.Close()                 // the output has no reader
	}()
	err = sendOutput(ctx, conn, transport.NewFrameReader(stream))
	code, text := websocket.StatusNormalClosure, ""
	if err != nil {
		code, text = websocket.StatusInternalError, "the connection to the node broke"
	}
	if errors.Is(err, errNoResult) {
		text = errNoResult.Error()
	}
	if stop() {
		_ = conn.Close(code, text) // the client may be gone
	} else {
		<-interrupted
	}
	cancel()
	<-ended
	return err
}

// errNoResult is the end of a stream that its agent closed without a result.
var errNoResult = errors.New("the node ended the stream without a result")

// sendInput passes the client's input on until the client has gone.
func (c *carriedStream) sendInput(ctx context.Context, conn *websocket.Conn, stream io.WriteCloser) error {
	to := transport.NewFrameWriter(stream)
	for {
		_, msg, err := conn.Read(ctx)
		if err != nil {
			return err
		}
		stop := func() bool { return true }
		if c.stall > 0 {
			stop = time.AfterFunc(c.stall, func() { _ = stream.Close() }).Stop // unblocks the write
		}
		switch {
		case len(msg) > 0 && msg[0] == c.also && c.also != 0:
			_, err = to.Channel(c.also).Write(msg[1:])
		case len(msg) == 0 || msg[0] != transport.ChannelStdin:
			return errors.New("a message is not input")
		case len(msg) == 1:
			err = to.CloseInput()
		default:
			_, err = to.Channel(transport.ChannelStdin).Write(msg[1:])
		}
		stop()
		if err != nil {
			return err
		}
	}
}

// sendOutput passes the command's output on until its end.
func sendOutput(ctx context.Context, conn *websocket.Conn, from *transport.FrameReader) error {
	var msg []byte
	for {
		f, err := from.Next()
		if err != nil {
			if errors.Is(err, io.EOF) && msg == nil {
				return errNoResult
			}
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("read the command's output: %w", err)
		}
		msg = append(append(msg[:0], f.Channel), f.Body...)
		if err := conn.Write(ctx, websocket.MessageBinary, msg); err != nil {
			return err
		}
		if f.Channel == transport.ChannelExit {
			return nil
		}
	}
}

// Routes returns the operations of commands.
func (a *ExecAPI) Routes() []route.Route {
	return []route.Route{
		{
			Method: "GET", Path: "/v1/tasks/{task}/exec", Name: "exec", Role: cluster.RoleSubmitter, Audited: true,
			Summary: "Runs a command in a container, over a websocket. Each binary message begins with its " +
				"channel: 0 input (alone: its end), 1 output, 2 error output, 3 the end as JSON.",
			Query: []route.Parameter{
				AttemptParameter(), containerParameter(),
				route.QueryParam("command", "array", "the command and its arguments, one each"),
				route.QueryParam("stdin", "boolean", "the command reads input"),
			},
			Status: http.StatusSwitchingProtocols, Long: true, Serve: a.exec,
		},
	}
}
