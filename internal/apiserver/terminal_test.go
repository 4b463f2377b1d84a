package apiserver

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/transport"
)

// dialTask opens a websocket to a stream of a task. If it is refused, it returns the status.
func (w *world) dialTask(what string) (conn *websocket.Conn, status int, err error) {
	return w.dialWebsocket(http.DefaultClient, w.url, token, what)
}

// dialWebsocket opens a websocket to a stream of a task at a base address. If it is refused, it returns the status.
func (w *world) dialWebsocket(c *http.Client, base, token, what string) (*websocket.Conn, int, error) {
	conn, resp, err := websocket.Dial(w.t.Context(), base+"/v1/tasks/default.web.1.0/"+what, &websocket.DialOptions{
		HTTPClient: c, HTTPHeader: http.Header{"Authorization": {"Bearer " + token}},
	})
	if resp == nil {
		return conn, 0, err
	}
	if resp.Body != nil {
		resp.Body.Close()
	}
	return conn, resp.StatusCode, err
}

func TestTerminalStreams(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		query    string
		send     []string
		asked    transport.StreamRequest
		received []string
	}{
		"terminal": {
			"terminal?command=sh&command=-l&rows=24&columns=80&type=xterm-256color&container=main",
			[]string{"\x00ls", "\x04{}"},
			transport.StreamRequest{
				Kind: transport.StreamTerminal, Container: "main",
				Terminal: &transport.TerminalRequest{
					Command: []string{"sh", "-l"}, Size: transport.TerminalSize{Rows: 24, Columns: 80},
					Type: "xterm-256color",
				},
			},
			[]string{"0 ls", "4 {}"},
		},
		"forward": {
			"forward?port=http",
			[]string{"\x00GET", "\x00"},
			transport.StreamRequest{Kind: transport.StreamForward, Forward: &transport.ForwardRequest{Port: "http"}},
			[]string{"0 GET", "0 "},
		},
		"copy out": {
			"copy-out?path=/etc&follow",
			[]string{"\x00"},
			transport.StreamRequest{
				Kind: transport.StreamCopyOut,
				Copy: &transport.CopyRequest{Path: "/etc", Follow: true},
			},
			[]string{"0 "},
		},
		"copy in": {
			"copy-in?path=data",
			[]string{"\x00tar", "\x00"},
			transport.StreamRequest{Kind: transport.StreamCopyIn, Copy: &transport.CopyRequest{Path: "data"}},
			[]string{"0 tar", "0 "},
		},
		"attach": {
			"attach?tail=7",
			[]string{"\x05INT"},
			transport.StreamRequest{Kind: transport.StreamAttach, Attach: &transport.AttachRequest{Tail: 7}},
			[]string{"5 INT"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := busy(t)
			asked, received := make(chan transport.StreamRequest, 1), make(chan []string, 1)
			w.nodes.set(agent(func(req transport.StreamRequest, conn net.Conn) {
				asked <- req
				in := transport.NewFrameReader(conn)
				var all []string
				for range c.send {
					f, err := in.Next()
					if err != nil {
						break
					}
					all = append(all, fmt.Sprintf("%d %s", f.Channel, f.Body))
				}
				received <- all
				out := transport.NewFrameWriter(conn)
				_ = out.CloseOutput() // the client may be gone
				_ = out.End(transport.ExecEnd{Code: 3, Error: "why"})
			}))
			conn, _, err := w.dialTask(c.query)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.CloseNow() }()
			for _, msg := range c.send {
				if err := conn.Write(t.Context(), websocket.MessageBinary, []byte(msg)); err != nil {
					t.Fatal(err)
				}
			}
			want := c.asked
			got := <-asked
			want.ID, want.Task, want.UUID = got.ID, "default.web.1.0", "default.web.1.0-1"
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.received, <-received); diff != "" {
				t.Errorf("what came to the node (-want +got):\n%s", diff)
			}
			for _, want := range []string{"\x01", `` + "\x03" + `{"code":3,"error":"why"}`} {
				if _, msg, err := conn.Read(t.Context()); err != nil || string(msg) != want {
					t.Errorf("got %q %v, want %q", msg, err, want)
				}
			}
		})
	}
}

// TestTerminalRefusals checks refused requests, and a stream that ends without a result.
func TestTerminalRefusals(t *testing.T) {
	t.Parallel()
	w := busy(t)
	for query, word := range map[string]string{ // order-free: each by itself
		"terminal": "command", "terminal?command=sh&rows=70000": "rows", "terminal?command=sh&columns=x": "columns",
		"terminal?command=sh&type=a%0ab": "type",
		"forward":                        "port", "copy-out": "path", "copy-in": "path", "attach?tail=-1": "tail",
	} {
		if got := w.want(400, "GET", "/v1/tasks/default.web.1.0/"+query,
			nil); !strings.Contains(fmt.Sprint(got.problem()), word) {
			t.Errorf("%s: %s", query, got.body)
		}
	}
	w.want(426, "GET", "/v1/tasks/default.web.1.0/attach", nil)

	w.nodes.set(agent(func(_ transport.StreamRequest, conn net.Conn) { _ = conn.Close() }))
	conn, _, err := w.dialTask("attach")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	if _, _, err := conn.Read(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "the node ended the stream without a result") {
		t.Errorf("a stream without a result: %v", err)
	}

	// Only the stream's own channels are passed on.
	ended := make(chan error, 1)
	w.nodes.set(agent(func(_ transport.StreamRequest, conn net.Conn) {
		_, err := transport.NewFrameReader(conn).Next()
		ended <- err
	}))
	other, _, err := w.dialTask("forward?port=80")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.CloseNow() }()
	size, _ := json.Marshal(transport.TerminalSize{})
	// it is refused
	_ = other.Write(t.Context(), websocket.MessageBinary, append([]byte{transport.ChannelResize}, size...))
	if err := <-ended; err == nil {
		t.Error("a port was sent the size of a terminal")
	}
}
