package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/internal/transport"
)

// agent is a fake agent that answers streams.
func agent(play func(req transport.StreamRequest, conn net.Conn)) func(string,
	transport.StreamRequest) (io.ReadWriteCloser, error) {
	return func(node string, req transport.StreamRequest) (io.ReadWriteCloser, error) {
		if node != "n1" {
			return nil, fmt.Errorf("node %s has no session", node)
		}
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			play(req, far)
		}()
		return near, nil
	}
}

func logLines(t *testing.T, body []byte) []api.LogLine {
	t.Helper()
	var all []api.LogLine
	for dec := json.NewDecoder(bytes.NewReader(body)); ; {
		var l api.LogLine
		err := dec.Decode(&l)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
}

func TestLogs(t *testing.T) {
	w := busy(t)
	asked := make(chan transport.StreamRequest, 1)
	w.nodes.set(agent(func(req transport.StreamRequest, conn net.Conn) {
		asked <- req
		fmt.Fprintf(conn, `{"time":"2026-11-20T12:00:00Z","container":"main","stream":"stdout","text":"one"}`+"\n")
		fmt.Fprintf(conn, `{"lost":3}`+"\n"+`{"time":"2026-11-20T12:00:01Z","stream":"stderr","text":"two"}`+"\n")
	}))
	got := w.want(200, "GET", "/v1/tasks/default.web.1.0/logs?follow&tail=10&since=5m&container=main&stream=stdout",
		nil)
	if got.header.Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("content type %s", got.header.Get("Content-Type"))
	}
	req := <-asked
	want := transport.StreamRequest{
		ID: req.ID, Kind: transport.StreamLogs, Task: "default.web.1.0", UUID: "default.web.1.0-1", Container: "main",
		Logs: &transport.LogsRequest{Follow: true, Tail: 10, Since: cluster.Duration(300e9), Stream: "stdout"},
	}
	if diff := cmp.Diff(want, req); diff != "" || req.ID == "" {
		t.Error(diff)
	}
	lines := logLines(t, got.body)
	if len(lines) != 3 || lines[0].Text != "one" || lines[0].Container != "main" || lines[1].Lost != 3 ||
		lines[2].Container != "main" || lines[2].Task != "default.web.1.0" {
		t.Errorf("%+v", lines)
	}
	w.want(200, "GET", "/v1/tasks/default.web.1.0/logs", nil)
	if req := <-asked; req.Logs.Tail != -1 || req.Logs.Follow {
		t.Errorf("%+v", req.Logs)
	}
	// A pending task has no logs; a task whose node is gone has those that its outcome kept.
	got = w.want(409, "GET", "/v1/tasks/default.web.1.2/logs", nil)
	if !strings.Contains(got.problem().Detail, "memory short") {
		t.Errorf("%s", got.body)
	}
	w.nodes.set(nil)
	w.want(503, "GET", "/v1/tasks/default.web.1.0/logs", nil)
	lines = logLines(t, w.want(200, "GET", "/v1/tasks/default.sum.1.add.1/logs?attempt=1", nil).body)
	if len(lines) != 2 || lines[1].Text != "last" {
		t.Errorf("%+v", lines)
	}
	w.want(400, "GET", "/v1/tasks/default.web.1.0/logs?stream=both", nil)
	w.want(400, "GET", "/v1/tasks/default.web.1.0/logs?tail=all", nil)
}

// TestLogsOfAWaitingRetry reads the logs of the last attempt of a task that waits for its next one.
func TestLogsOfAWaitingRetry(t *testing.T) {
	w := busy(t)
	lines := logLines(t, w.want(200, "GET", "/v1/tasks/default.sum.1.add.1/logs", nil).body)
	if len(lines) != 2 {
		t.Errorf("%+v", lines)
	}
}

func TestExec(t *testing.T) {
	w := busy(t)
	w.nodes.set(agent(func(req transport.StreamRequest, conn net.Conn) {
		out := transport.NewFrameWriter(conn)
		fmt.Fprintf(out.Channel(transport.ChannelStderr), "%s %v", req.Exec.Command, req.Exec.Stdin)
		for in := transport.NewFrameReader(conn); ; {
			f, err := in.Next()
			if err != nil || len(f.Body) == 0 {
				break
			}
			_, _ = out.Channel(transport.ChannelStdout).Write(f.Body)
		}
		_ = out.End(transport.ExecEnd{Code: 7})
	}))
	conn, _, err := w.dialTask("exec?command=cat&command=-n&stdin")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	ctx := t.Context()
	for _, msg := range []string{"\x00hello ", "\x00world", "\x00"} {
		if err := conn.Write(ctx, websocket.MessageBinary, []byte(msg)); err != nil {
			t.Fatal(err)
		}
	}
	got := map[byte]string{}
	for {
		_, msg, err := conn.Read(ctx)
		if websocket.CloseStatus(err) == websocket.StatusNormalClosure {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got[msg[0]] += string(msg[1:])
	}
	want := map[byte]string{
		transport.ChannelStdout: "hello world", transport.ChannelStderr: "[cat -n] true",
		transport.ChannelExit: `{"code":7}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestExecEndsWithTheClient checks that the node's side is closed when the client leaves.
func TestExecEndsWithTheClient(t *testing.T) {
	w := busy(t)
	ended := make(chan error, 1)
	w.nodes.set(agent(func(_ transport.StreamRequest, conn net.Conn) {
		_, err := io.Copy(io.Discard, conn)
		ended <- err
	}))
	conn, _, err := w.dialTask("exec?command=sh&stdin")
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.CloseNow()
	if err := <-ended; err != nil {
		t.Errorf("the node's side saw %v, want its end", err)
	}
}

func TestExecRefusals(t *testing.T) {
	w := busy(t)
	w.want(400, "GET", "/v1/tasks/default.web.1.0/exec", nil)
	w.want(426, "GET", "/v1/tasks/default.web.1.0/exec?command=ls", nil)
	_, status, err := w.dialTask("exec?command=ls")
	if err == nil || status != http.StatusServiceUnavailable {
		t.Errorf("a node without session: %v", err)
	}
	// ended, between attempts, never placed
	for _, id := range []string{"default.sum.1.add.0", "default.sum.1.add.1", "default.web.1.2"} {
		if got := w.call("GET", "/v1/tasks/"+id+"/exec?command=ls", nil, "Upgrade", "websocket", "Connection",
			"Upgrade"); got.status != 409 {
			t.Errorf("%s: %d %s", id, got.status, got.body)
		}
	}
}

func TestImages(t *testing.T) {
	w := busy(t)
	var loaded bytes.Buffer
	w.nodes.set(agent(func(req transport.StreamRequest, conn net.Conn) {
		out := transport.NewFrameWriter(conn)
		if req.Kind == transport.StreamImageLoad {
			for in := transport.NewFrameReader(conn); ; {
				f, err := in.Next()
				if err != nil {
					return
				}
				if len(f.Body) == 0 {
					break
				}
				loaded.Write(f.Body)
			}
			if strings.HasPrefix(loaded.String(), "bad") {
				_ = out.End(transport.ExecEnd{Code: 1, Error: "not an archive of images"})
				return
			}
		}
		_ = json.NewEncoder(out.Channel(transport.ChannelStdout)).Encode(
			[]transport.Image{{Name: "a/web:1", Digest: "sha256:1", Size: 42}})
		_ = out.End(transport.ExecEnd{})
	}))
	want := api.ImagesReply{Items: []api.ImageView{{Node: "n1", Name: "a/web:1", Digest: "sha256:1", Size: 42}}}
	if diff := cmp.Diff(want, read[api.ImagesReply](t, w.want(200, "GET", "/v1/images", nil))); diff != "" {
		t.Error(diff)
	}
	archive := strings.Repeat("0123456789abcdef", 1<<20) // larger than any JSON body may be
	if diff := cmp.Diff(want, read[api.ImagesReply](t, w.want(200, "POST", "/v1/images", archive))); diff != "" {
		t.Error(diff)
	}
	if loaded.String() != archive {
		t.Errorf("%d bytes arrived of %d", loaded.Len(), len(archive))
	}
	loaded.Reset()
	got := w.want(422, "POST", "/v1/images?node=n1", "bad")
	if !strings.Contains(got.problem().Detail, "not an archive") {
		t.Errorf("%s", got.body)
	}
	w.want(404, "GET", "/v1/images?node=n7", nil)

	// One of two nodes has no session, so the other is loaded.
	w.put(map[string]any{"status/n0": cluster.NodeStatus{Name: "n0", Session: 1}})
	loaded.Reset()
	both := read[api.ImagesReply](t, w.want(200, "POST", "/v1/images", archive))
	if len(both.Items) != 1 || len(both.Faults) != 1 || both.Faults[0].Path != "n0" || loaded.Len() != len(archive) {
		t.Errorf("%+v", both)
	}
	if both = read[api.ImagesReply](t, w.want(200, "GET", "/v1/images", nil)); len(both.Items) != 1 ||
		len(both.Faults) != 1 {
		t.Errorf("%+v", both)
	}
	w.nodes.set(nil)
	w.want(503, "GET", "/v1/images?node=n1", nil)
}

// TestCutArchive sends a body shorter than its length. The node must notice the truncation.
func TestCutArchive(t *testing.T) {
	w := busy(t)
	ended := make(chan error, 1)
	w.nodes.set(agent(func(_ transport.StreamRequest, conn net.Conn) {
		for in := transport.NewFrameReader(conn); ; {
			f, err := in.Next()
			if err == nil && len(f.Body) > 0 {
				continue
			}
			ended <- err
			return
		}
	}))
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /v1/images HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+
		"%s\r\nContent-Length: 100\r\n\r\nhalf", token)
	conn.Close()
	if err := <-ended; err == nil {
		t.Error("the node got the end of an archive that was cut")
	}
}

// TestHTTP2 uses HTTP/2 without encryption, on loopback, for the agents' part of the API.
func TestHTTP2(t *testing.T) {
	w := newWorld(t, func(c *Config) {
		c.Agents = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprintf(w, "%s %d", r.URL.Path, r.ProtoMajor)
		})
	})
	two := new(http.Protocols)
	two.SetUnencryptedHTTP2(true)
	client := http.Client{Transport: &http.Transport{Protocols: two}}
	defer client.CloseIdleConnections()
	ask := func(path, bearer string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+bearer)
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	if status, body := ask(transport.PathRegister, token); status != 200 || body != transport.PathRegister+" 2" {
		t.Errorf("%d %s", status, body)
	}
	if status, _ := ask(transport.PathRegister, "wrong"); status != 401 {
		t.Errorf("a wrong token: %d", status)
	}
	if status, _ := ask("/v1/services", token); status != 200 {
		t.Errorf("a list: %d", status)
	}
}

// TestStop stops the server during streams and waits: all end soon.
func TestStop(t *testing.T) {
	w := busy(t)
	w.nodes.set(agent(func(_ transport.StreamRequest, conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }))
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.url = l.URL()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.server.Serve(ctx, l) }()
	s := w.stream("/v1/events")
	s.until(t, "event")
	w.stream("/v1/tasks").until(t, "synced")
	conn, _, err := w.dialTask("exec?command=sh&stdin")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	watch := testkit.NewStopwatch()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("serve: %v", err)
	}
	if took := watch.Elapsed(); took > 4*time.Second {
		t.Errorf("the server took %v to stop", took)
	}
}
