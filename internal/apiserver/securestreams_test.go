package apiserver

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/transport"
)

// dialExec opens a websocket to a command over HTTPS. If it is refused, it returns the status.
func (s *secure) dialExec(token, query string) (*websocket.Conn, int, error) {
	s.t.Helper()
	config, err := pki.Trusting(s.authority.CertificatePEM())
	if err != nil {
		s.t.Fatal(err)
	}
	config.NextProtos = []string{"http/1.1"}
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	return s.dialWebsocket(c, s.https, token, "exec?"+query)
}

// TestExecOverHTTPS runs a command for a submitter from another machine. The audit log has a line before the command
// runs, without the command.
func TestExecOverHTTPS(t *testing.T) {
	s := newSecure(t)
	s.web()
	d := desired("default.web.1.0", 1, cluster.KindService, cluster.Ref{Name: "web", Version: 1})
	s.put(map[string]any{
		"state/n1/default.web.1.0":  d,
		"status/n1/default.web.1.0": observed(d, cluster.StateRunning, cluster.HealthHealthy),
	})
	s.nodes.set(agent(func(_ transport.StreamRequest, conn net.Conn) {
		_ = transport.NewFrameWriter(conn).End(transport.ExecEnd{Code: 7})
		_, _ = io.Copy(io.Discard, conn)
	}))
	submitting, viewing := s.access(cluster.RoleSubmitter), s.access(cluster.RoleViewer)
	s.lines.take()
	if _, status, _ := s.dialExec(viewing, "command=hunter2"); status != 403 {
		t.Errorf("a viewer: status %d", status)
	}
	conn, status, err := s.dialExec(submitting, "command=hunter2")
	if status != 101 {
		t.Fatalf("status %d, %v", status, err)
	}
	defer func() { _ = conn.CloseNow() }()
	_, msg, err := conn.Read(t.Context())
	if err != nil || msg[0] != transport.ChannelExit {
		t.Errorf("%q, %v", msg, err)
	}
	lines := s.lines.take()
	if len(lines) != 2 || lines[0].Status != 403 || lines[1].Status != 101 || lines[1].Operation != "exec" ||
		lines[1].Object != "default.web.1.0" {
		t.Errorf("audit: %+v", lines)
	}
	if strings.Contains(fmt.Sprintf("%+v", lines), "hunter2") {
		t.Error("the audit log shows the command")
	}
}

// TestStreamOverHTTPS reads events over HTTP/2, behind the audit log's writer.
func TestStreamOverHTTPS(t *testing.T) {
	s := newSecure(t)
	s.web()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.https+"/v1/services", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.access(cluster.RoleViewer))
	r.Header.Set("Accept", route.MediaEventStream)
	resp, err := s.plain.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.ProtoMajor != 2 || resp.TLS.Version != tls.VersionTLS13 {
		t.Errorf("HTTP/%d, TLS %x", resp.ProtoMajor, resp.TLS.Version)
	}
	in := bufio.NewScanner(resp.Body)
	await := func(text string) {
		t.Helper()
		for in.Scan() {
			if strings.Contains(in.Text(), text) {
				return
			}
		}
		t.Fatalf("the stream ended before %q: %v", text, in.Err())
	}
	await("synced")
	s.want(200, "POST", "/v1/clusters/default/services/web/scale", map[string]int{"count": 17})
	await(`"count":17`)
}

// TestRevokedTokenEndsItsStreams revokes the token of open streams: a shell, a followed log, a list, a list that waits,
// and the events. Each one ends, and the client of the shell learns why.
func TestRevokedTokenEndsItsStreams(t *testing.T) {
	s := newSecure(t)
	s.web()
	d := desired("default.web.1.0", 1, cluster.KindService, cluster.Ref{Name: "web", Version: 1})
	s.put(map[string]any{
		"state/n1/default.web.1.0":  d,
		"status/n1/default.web.1.0": observed(d, cluster.StateRunning, cluster.HealthHealthy),
	})
	s.nodes.set(agent(func(_ transport.StreamRequest, conn net.Conn) {
		_, _ = io.Copy(io.Discard, conn) // until the server closes the stream
	}))
	lasting, revoked := s.access(cluster.RoleSubmitter), s.token(api.TokenRequest{Role: cluster.RoleSubmitter})
	open := func(token, path string, header ...string) io.ReadCloser {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.https+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		resp, err := s.plain.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: status %d", path, resp.StatusCode)
		}
		return resp.Body
	}
	shell, _, err := s.dialExec(revoked.Token, "command=sh&stdin")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = shell.CloseNow() }()
	streams := map[string]io.ReadCloser{
		"log":    open(revoked.Token, "/v1/tasks/default.web.1.0/logs?follow"),
		"list":   open(revoked.Token, "/v1/services", "Accept", route.MediaEventStream),
		"events": open(revoked.Token, "/v1/events", "Accept", route.MediaEventStream),
	}
	kept := open(lasting, "/v1/services", "Accept", route.MediaEventStream)
	waiting := make(chan reply, 1)
	first := read[api.Page[api.ServiceView]](t, s.want(200, "GET", "/v1/services", nil))
	go func() {
		path := fmt.Sprintf("/v1/services?index=%d&wait=5m", first.Index)
		waiting <- s.ask(s.plain, revoked.Token, "GET", path, nil)
	}()

	s.want(204, "DELETE", "/v1/tokens/"+revoked.ID, nil)
	if _, _, err := shell.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusPolicyViolation ||
		!strings.Contains(err.Error(), "token "+revoked.ID+" was revoked") {
		t.Errorf("the shell ended with %v", err)
	}
	for name, body := range streams {
		if _, err := io.Copy(io.Discard, body); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := <-waiting; got.status != http.StatusUnauthorized {
		t.Errorf("the list that waits: status %d, %s", got.status, got.body)
	}
	s.want(200, "POST", "/v1/clusters/default/services/web/scale", map[string]int{"count": 17})
	for in := bufio.NewScanner(kept); ; {
		if !in.Scan() {
			t.Fatalf("the stream of the other token ended: %v", in.Err())
		}
		if strings.Contains(in.Text(), `"count":17`) {
			break
		}
	}
}
