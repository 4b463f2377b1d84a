package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/berthd/berth/internal/testkit"
)

// talk returns a client of a server that plays one side of a websocket.
func talk(t *testing.T, play func(ctx context.Context, r *http.Request, conn *websocket.Conn)) *Client {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = conn.CloseNow() }()
		conn.SetReadLimit(64<<10 + 1) // as a server does
		play(r.Context(), r, conn)
	})
}

func sendAll(ctx context.Context, conn *websocket.Conn, messages ...string) {
	for _, m := range messages {
		_ = conn.Write(ctx, websocket.MessageBinary, []byte(m)) // the other side may have left
	}
}

// TestTerminal types, changes the size, and hangs up.
func TestTerminal(t *testing.T) {
	t.Parallel()
	c := talk(t, func(ctx context.Context, r *http.Request, conn *websocket.Conn) {
		if got := r.URL.String(); got != "/v1/tasks/default.web.1.0/terminal?columns=80&command=sh&container=main&rows=24&type=vt100" {
			t.Errorf("requested %s", got)
		}
		for range 2 {
			_, msg, err := conn.Read(ctx)
			if err != nil || string(msg) != "\x00ls" && string(msg) != "\x04"+`{"rows":1,"columns":2}` {
				t.Errorf("got %q %v", msg, err)
			}
		}
		sendAll(ctx, conn, "\x01shown")
		_, _, _ = conn.Read(ctx) // until it is hung up
	})
	sizes := make(chan Size, 1)
	sizes <- Size{1, 2}
	in, keys := io.Pipe()
	go func() { _, _ = keys.Write([]byte("ls")) }()
	_, err := c.Exec(t.Context(), "default.web.1.0", ExecOptions{
		Container: "main", Command: []string{"sh"}, Stdin: in, Stdout: hangUp{keys},
		Terminal: &Terminal{Size: Size{24, 80}, Type: "vt100", Resized: sizes},
	})
	if !errors.Is(err, errHungUp) {
		t.Errorf("got %v, want that it was hung up", err)
	}
}

// hangUp ends what is typed once something is shown.
type hangUp struct{ keys io.Closer }

// Write implements io.Writer.
func (h hangUp) Write(b []byte) (int, error) { return len(b), h.keys.Close() }

// TestForward sends and reads both directions to their ends.
func TestForward(t *testing.T) {
	t.Parallel()
	c := talk(t, func(ctx context.Context, _ *http.Request, conn *websocket.Conn) {
		sendAll(ctx, conn, "\x01one ", "\x01two", "\x01")
		got := ""
		for {
			_, msg, err := conn.Read(ctx)
			if err != nil || len(msg) == 1 {
				break
			}
			got += string(msg[1:])
		}
		if got != strings.Repeat("x", 100_000) {
			t.Errorf("%d bytes came", len(got))
		}
		sendAll(ctx, conn, "\x03"+`{"code":0}`)
	})
	conn, err := c.Forward(t.Context(), "default.web.1.0", ForwardOptions{Port: "http"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "one two" {
		t.Errorf("read %q %v", got, err)
	}
	if _, err := conn.Write([]byte(strings.Repeat("x", 100_000))); err != nil {
		t.Error(err)
	}
	if err := errors.Join(conn.CloseWrite(), conn.Wait()); err != nil {
		t.Error(err)
	}
}

// TestForwardRefused checks that the first read returns the error that nothing listens.
func TestForwardRefused(t *testing.T) {
	t.Parallel()
	c := talk(t, func(ctx context.Context, _ *http.Request, conn *websocket.Conn) {
		sendAll(ctx, conn, "\x03"+`{"error":"nothing listens"}`)
	})
	conn, err := c.Forward(t.Context(), "default.web.1.0", ForwardOptions{Port: "1"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for range 2 {
		if _, err := conn.Read(make([]byte, 1)); err == nil || err.Error() != "nothing listens" {
			t.Errorf("got %v", err)
		}
	}
}

// TestCopyIn checks that an archive whose reader fails is never completed, and that the error is the reader's.
func TestCopyIn(t *testing.T) {
	t.Parallel()
	received := make(chan string, 1)
	c := talk(t, func(ctx context.Context, _ *http.Request, conn *websocket.Conn) {
		got := ""
		for {
			_, msg, err := conn.Read(ctx)
			if err != nil {
				received <- got + "|broken"
				return
			}
			got += string(msg[1:])
			if len(msg) == 1 {
				received <- got + "|whole"
				sendAll(ctx, conn, "\x01"+`{"files":2,"bytes":5}`, "\x03"+`{"code":0}`)
				return
			}
		}
	})
	copied, err := c.CopyIn(t.Context(), "default.web.1.0", CopyOptions{Path: "/x"}, strings.NewReader("tar"))
	if err != nil || copied != (Copied{2, 5}) || <-received != "tar|whole" {
		t.Errorf("got %+v %v", copied, err)
	}
	torn := errors.New("the disk broke")
	r, w := io.Pipe()
	go func() { _, _ = w.Write([]byte("half")); _ = w.CloseWithError(torn) }()
	if _, err := c.CopyIn(t.Context(), "default.web.1.0", CopyOptions{Path: "/x"}, r); !errors.Is(err, torn) {
		t.Errorf("got %v, want the reader's error", err)
	}
	select {
	case got := <-received:
		if got != "half|broken" {
			t.Errorf("the server received %q", got)
		}
	case <-testkit.Context(t, 20*time.Second).Done():
		t.Error("the server received no end")
	}
}

// TestConnectionThatBreaks says of a broken connection that it broke.
func TestConnectionThatBreaks(t *testing.T) {
	t.Parallel()
	c := talk(t, func(ctx context.Context, _ *http.Request, conn *websocket.Conn) { sendAll(ctx, conn, "\x01some") })
	if _, err := c.Attach(t.Context(), "default.web.1.0", AttachOptions{}); err == nil ||
		!strings.Contains(err.Error(), "the end of the container was not seen: the connection to the server broke") {
		t.Errorf("got %v", err)
	}
}
