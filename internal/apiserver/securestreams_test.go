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

	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/transport"
)

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
	config, err := pki.Trusting(s.authority.CertificatePEM())
	if err != nil {
		t.Fatal(err)
	}
	config.NextProtos = []string{"http/1.1"}
	dial := func(token string) (*websocket.Conn, int) {
		conn, resp, err := websocket.Dial(t.Context(), s.https+"/v1/tasks/default.web.1.0/exec?command=hunter2",
			&websocket.DialOptions{
				HTTPClient: &http.Client{Transport: &http.Transport{TLSClientConfig: config}},
				HTTPHeader: http.Header{"Authorization": {"Bearer " + token}},
			})
		if resp == nil {
			t.Fatal(err)
		}
		if resp.Body != nil {
			resp.Body.Close()
		}
		return conn, resp.StatusCode
	}
	submitting, viewing := s.access(cluster.RoleSubmitter), s.access(cluster.RoleViewer)
	s.lines.take()
	if _, status := dial(viewing); status != 403 {
		t.Errorf("a viewer: status %d", status)
	}
	conn, status := dial(submitting)
	if status != 101 {
		t.Fatalf("status %d", status)
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
