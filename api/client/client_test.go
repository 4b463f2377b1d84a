package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// serve runs a handler and returns a client of it.
func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c, err := New(Config{Addr: srv.URL, Token: "secret", Agent: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestNewRefusesAddresses(t *testing.T) {
	const forms = "http://host:port or unix:///path"
	for addr, want := range map[string]string{
		"": forms, "ftp://host": forms, "unix://": forms, "http://": forms, "http://h/v1": forms, "://": forms,
		"h:x": forms, "localhost:7373": "write http://localhost:7373", "[::1]:7373": "write http://[::1]:7373",
		"127.0.0.1:7373": "write http://127.0.0.1:7373", "s1:7071": "write https://s1:7071",
	} {
		if _, err := New(Config{Addr: addr}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New(%q): got %v, want an error with %q", addr, err, want)
		}
	}
}

// TestRequests compares each call with the API's contract: method, address and headers.
func TestRequests(t *testing.T) {
	ctx := t.Context()
	none := ListOptions{}
	tests := []struct {
		name string
		call func(*Client) error
		want string
	}{
		{"version", func(c *Client) error { _, err := c.Version(ctx); return err }, "GET /v1/version"},
		{"apply", func(c *Client) error {
			_, err := c.Apply(ctx, api.ApplyRequest{DryRun: true})
			return err
		}, `POST /v1/apply {"objects":null,"dry_run":true}`},
		{"all services", func(c *Client) error { _, err := c.Services(ctx, "", none); return err }, "GET /v1/services"},
		{"services", func(c *Client) error {
			_, err := c.Services(ctx, "prod", ListOptions{Index: 7, Wait: 1e9, Limit: 5, Cursor: "web"})
			return err
		}, "GET /v1/clusters/prod/services?cursor=web&index=7&limit=5&wait=1s"},
		{"service", func(c *Client) error {
			_, err := c.Service(ctx, "prod", "web")
			return err
		}, "GET /v1/clusters/prod/services/web"},
		{"put if", func(c *Client) error {
			_, err := c.PutCluster(ctx, api.Cluster{Name: "prod"}, Condition{Revision: 17})
			return err
		}, `PUT /v1/clusters/prod If-Match:"17" {"name":"prod"}`},
		{"put new", func(c *Client) error {
			_, err := c.PutCluster(ctx, api.Cluster{Name: "prod"}, Condition{Absent: true})
			return err
		}, `PUT /v1/clusters/prod If-None-Match:* {"name":"prod"}`},
		{"scale", func(c *Client) error {
			return c.ScaleService(ctx, "default", "web", 3, Condition{})
		}, `POST /v1/clusters/default/services/web/scale {"count":3}`},
		{"stop", func(c *Client) error {
			return c.StopService(ctx, "default", "web")
		}, "POST /v1/clusters/default/services/web/stop"},
		{"restart", func(c *Client) error {
			return c.RestartJob(ctx, "default", "sum")
		}, "POST /v1/clusters/default/jobs/sum/restart"},
		{"delete", func(c *Client) error {
			return c.DeleteJob(ctx, "default", "sum", Condition{})
		}, "DELETE /v1/clusters/default/jobs/sum"},
		{"definition", func(c *Client) error {
			_, err := c.Definition(ctx, cluster.Ref{Name: "web", Version: 2})
			return err
		}, "GET /v1/definitions/web/2"},
		{"tasks", func(c *Client) error {
			_, err := c.Tasks(ctx, TaskFilter{Service: "web", All: true}, none)
			return err
		}, "GET /v1/tasks?all=true&service=web"},
		{"task", func(c *Client) error {
			_, err := c.Task(ctx, "default.web.1.0")
			return err
		}, "GET /v1/tasks/default.web.1.0"},
		{"events", func(c *Client) error {
			_, err := c.Events(ctx, EventOptions{After: "1.0", Types: []string{"task.failed", "node"}},
				ListOptions{Limit: 5})
			return err
		}, "GET /v1/events?after=1.0&limit=5&types=task.failed%2Cnode"},
		{"separators", func(c *Client) error {
			_, err := c.Node(ctx, "../a b")
			return err
		}, "GET /v1/nodes/..%2Fa%20b"},
		{"status", func(c *Client) error { _, err := c.Status(ctx); return err }, "GET /v1/status"},
		{"servers", func(c *Client) error { _, err := c.Servers(ctx, none); return err }, "GET /v1/servers"},
		{"promote", func(c *Client) error {
			_, err := c.PromoteServer(ctx, "s2")
			return err
		}, "POST /v1/servers/s2/promote"},
		{"remove", func(c *Client) error { return c.RemoveServer(ctx, "s2", false) }, "DELETE /v1/servers/s2"},
		{"remove by force", func(c *Client) error {
			return c.RemoveServer(ctx, "s2", true)
		}, "DELETE /v1/servers/s2?force=true"},
		{"recovery", func(c *Client) error { _, err := c.Recovery(ctx); return err }, "GET /v1/recovery"},
		{"recover", func(c *Client) error {
			_, err := c.Recover(ctx, api.RecoverAdopt)
			return err
		}, `POST /v1/recovery {"action":"adopt"}`},
		{"domain", func(c *Client) error { _, err := c.Domain(ctx, "ci"); return err }, "GET /v1/domains/ci"},
		{"pools", func(c *Client) error { _, err := c.Pools(ctx, none); return err }, "GET /v1/pools"},
		{"pool", func(c *Client) error { _, err := c.Pool(ctx, "gpu"); return err }, "GET /v1/pools/gpu"},
		{"put pool", func(c *Client) error {
			_, err := c.PutPool(ctx, api.Pool{Name: "gpu", Strategy: "whole"}, Condition{Revision: 3})
			return err
		}, `PUT /v1/pools/gpu If-Match:"3" {"name":"gpu","strategy":"whole"}`},
		{"delete pool", func(c *Client) error {
			return c.DeletePool(ctx, "gpu", Condition{Revision: 3})
		}, `DELETE /v1/pools/gpu If-Match:"3"`},
		{"reschedule", func(c *Client) error {
			_, err := c.Reschedule(ctx, "ci", 10*time.Minute)
			return err
		}, `POST /v1/domains/ci/reschedule {"for":"10m"}`},
		{"cordon", func(c *Client) error {
			_, err := c.CordonNode(ctx, "n1", Condition{Revision: 3})
			return err
		}, `POST /v1/nodes/n1/cordon If-Match:"3"`},
		{"uncordon", func(c *Client) error {
			_, err := c.UncordonNode(ctx, "n1", Condition{})
			return err
		}, "POST /v1/nodes/n1/uncordon"},
		{"drain", func(c *Client) error {
			_, err := c.DrainNode(ctx, "n1", api.NodeAction{Deadline: cluster.Duration(time.Hour)}, Condition{})
			return err
		}, `POST /v1/nodes/n1/drain {"deadline":"1h"}`},
		{"undrain", func(c *Client) error {
			_, err := c.UndrainNode(ctx, "n1", Condition{})
			return err
		}, "POST /v1/nodes/n1/undrain"},
		{"forget", func(c *Client) error {
			_, err := c.ForgetNode(ctx, "n1", true, Condition{})
			return err
		}, `POST /v1/nodes/n1/forget {"force":true}`},
		{"taint", func(c *Client) error {
			_, err := c.TaintNode(ctx, "n1", []cluster.Taint{{Key: "a", Value: "b", Effect: cluster.TaintEvict}},
				Condition{Revision: 3})
			return err
		}, `POST /v1/nodes/n1/taint If-Match:"3" {"taints":[{"key":"a","value":"b","effect":"evict"}]}`},
		{"untaint", func(c *Client) error {
			_, err := c.UntaintNode(ctx, "n1", []api.TaintKey{{Key: "a"}}, Condition{})
			return err
		}, `POST /v1/nodes/n1/untaint {"taints":[{"key":"a"}]}`},
		{"reserve ports", func(c *Client) error {
			_, err := c.ReservePorts(ctx, "n1", []api.PortRange{"22", "80-90"}, Condition{Revision: 3})
			return err
		}, `POST /v1/nodes/n1/reserve-ports If-Match:"3" {"ports":["22","80-90"]}`},
		{"unreserve ports", func(c *Client) error {
			_, err := c.UnreservePorts(ctx, "n1", []api.PortRange{"22"}, Condition{})
			return err
		}, `POST /v1/nodes/n1/unreserve-ports {"ports":["22"]}`},
		{"pool", func(c *Client) error {
			_, err := c.PoolNode(ctx, "n1", "gpu", Condition{})
			return err
		}, `POST /v1/nodes/n1/pool {"pool":"gpu"}`},
		{"no pool", func(c *Client) error {
			_, err := c.PoolNode(ctx, "n1", "", Condition{})
			return err
		}, "POST /v1/nodes/n1/pool {}"},
		{"consistent", func(c *Client) error {
			_, err := c.Consistent().Service(ctx, "a", "b")
			return err
		}, "GET /v1/clusters/a/services/b?consistent"},
		{"consistent list", func(c *Client) error {
			_, err := c.Consistent().Services(ctx, "", ListOptions{Limit: 5})
			return err
		}, "GET /v1/services?limit=5&consistent"},
		{"consistent where there is no such thing", func(c *Client) error {
			_, err := c.Consistent().Settings(ctx)
			return err
		}, "GET /v1/config"},
		{"settings", func(c *Client) error { _, err := c.Settings(ctx); return err }, "GET /v1/config"},
		{"ready", func(c *Client) error { _, err := c.Ready(ctx); return err }, "GET /readyz"},
		{"metrics", func(c *Client) error { return c.Metrics(ctx, io.Discard) }, "GET /metrics"},
		{"profile", func(c *Client) error {
			return c.Profile(ctx, "profile", 5*time.Second, io.Discard)
		}, "GET /debug/pprof/profile?seconds=5"},
		{"goroutines", func(c *Client) error {
			return c.Goroutines(ctx, io.Discard)
		}, "GET /debug/pprof/goroutine?debug=2"},
		{"images", func(c *Client) error {
			_, err := c.LoadImages(ctx, "n1", strings.NewReader("tar"))
			return err
		}, "POST /v1/images?node=n1 tar"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got string
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				got = r.Method + " " + r.URL.RequestURI()
				for _, h := range []string{"If-Match", "If-None-Match"} {
					if v := r.Header.Get(h); v != "" {
						got += " " + h + ":" + v
					}
				}
				if body, _ := io.ReadAll(r.Body); len(body) > 0 {
					got += " " + string(body)
				}
				if r.Header.Get("Authorization") != "Bearer secret" {
					w.WriteHeader(http.StatusUnauthorized)
				}
				io.WriteString(w, "{}")
			})
			if err := test.call(c); err != nil {
				t.Fatal(err)
			}
			if got != test.want {
				t.Errorf("request:\n got %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	tests := []struct {
		name, media, body string
		status            int
		want              string
		faults            int
	}{
		{
			"problem", "application/problem+json",
			`{"title":"Bad","status":422,"detail":"the request has 2 faults","errors":[{"path":"a","message":"x"},{"path":"b","message":"y"}]}`, 422, "the request has 2 faults: a: x; b: y", 2,
		},
		{"only a title", "application/problem+json", `{"title":"Not Found"}`, 404, "Not Found", 0},
		{"text", "text/plain", "no such thing\nmore", 404, "no such thing", 0},
		{
			"another server", "text/html; charset=utf-8", "<html>", 502,
			"the answer is not of a Berth server: 502 Bad Gateway", 0,
		},
		{"broken", "application/problem+json", `{"title":`, 500, `{"title":`, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", test.media)
				w.WriteHeader(test.status)
				io.WriteString(w, test.body)
			})
			_, err := c.Version(t.Context())
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v, want an *Error", err)
			}
			if e.Error() != test.want || StatusOf(err) != test.status || len(e.Faults) != test.faults {
				t.Errorf("got %q, status %d, %d faults; want %q, %d, %d", e, StatusOf(err), len(e.Faults), test.want,
					test.status, test.faults)
			}
		})
	}
	c, err := New(Config{Addr: "unix://" + filepath.Join(t.TempDir(), "none.sock")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Version(t.Context()); !errors.Is(err, ErrUnreachable) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no socket: got %v, want ErrUnreachable and why", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Version(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnreachable) {
		t.Errorf("cancelled: got %v, want context.Canceled alone", err)
	}
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("a token was sent over the socket")
		}
		io.WriteString(w, `{"version":"1.2.3"}`)
	})}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	c, err := New(Config{Addr: "unix://" + path, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	v, err := c.Version(t.Context())
	if err != nil || v.Version != "1.2.3" {
		t.Errorf("got %+v, %v", v, err)
	}
}

func TestAllFollowsPages(t *testing.T) {
	// The second page has the conditions of the first, and does not wait.
	pages := map[string]string{
		"index=7&limit=2&name=x&selector=app%3Dshop&wait=1s": `{"items":[{"name":"a"},{"name":"b"}],"index":9,"next":"b"}`,
		"cursor=b&limit=2&name=x&selector=app%3Dshop":        `{"items":[{"name":"c"}],"index":10}`,
	}
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		page := pages[r.URL.RawQuery]
		if page == "" {
			t.Errorf("the client requests the page %s", r.URL.RawQuery)
		}
		io.WriteString(w, page)
	})
	items, index, err := All(t.Context(), ListOptions{
		Index: 7, Wait: time.Second, Limit: 2, Name: "x", Selector: "app=shop",
	}, c.Clusters)
	if err != nil {
		t.Fatal(err)
	}
	want := []api.ClusterView{
		{Cluster: api.Cluster{Name: "a"}},
		{Cluster: api.Cluster{Name: "b"}},
		{Cluster: api.Cluster{Name: "c"}},
	}
	if diff := cmp.Diff(want, items); diff != "" || index != 9 {
		t.Errorf("index %d, items (-want +got):\n%s", index, diff)
	}
}

func TestLogs(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if got, want := r.URL.RawQuery, "container=app&follow=true&since=1m0s&tail=0"; got != want {
			t.Errorf("query: got %s, want %s", got, want)
		}
		io.WriteString(w, `{"stream":"stdout","text":"one"}`+"\n"+`{"stream":"stderr","text":"two"}`+"\n"+`{"lost":3}`+"\n"+`{"str`)
	})
	var got []string
	var failed error
	for line, err := range c.Logs(t.Context(), "default.web.1.0",
		LogOptions{Follow: true, Since: 60e9, Container: "app"}) {
		if err != nil {
			failed = err
			break
		}
		got = append(got, string(line.Stream)+" "+line.Text)
	}
	if diff := cmp.Diff([]string{"stdout one", "stderr two", " "}, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if !errors.Is(failed, io.ErrUnexpectedEOF) {
		t.Errorf("a stream that was cut: got %v, want an unexpected end", failed)
	}
}

// TestFollowEventsResumes breaks a stream of events and checks that it continues after the last event received.
func TestFollowEventsResumes(t *testing.T) {
	var asked []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get("Last-Event-ID"))
		switch len(asked) {
		case 1:
			io.WriteString(w, ": hello\n\nid: 1.0\nevent: event\ndata: {\"type\":\"task.placed\"}\n\nevent: "+
				"gap\nid: 1.0\ndata: {\"lost\":2}\n\nevent: reset\ndata: {}\n\nid: 1.1\nevent: event\ndata: "+
				"{\"type\":\ndata: \"task.failed\"}\n\nid: 2.0\ndata: {\"ty")
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 3:
			io.WriteString(w, "id: 2.0\r\ndata: {\"type\":\"task.lost\"}\r\n\r\n")
		default:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusGone)
			io.WriteString(w, `{"detail":"gone"}`)
		}
	})
	lost, missed := 0, 0
	var got []string
	var end error
	for e, err := range c.FollowEvents(t.Context(), EventOptions{After: "0.5", Lost: func(error) {
		lost++
	}, Gap: func(g api.EventGap) { missed += g.Lost }}) {
		if err != nil {
			end = err
			break
		}
		got = append(got, e.ID+" "+e.Type)
	}
	if diff := cmp.Diff([]string{"1.0 task.placed", "1.1 task.failed", "2.0 task.lost"}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"0.5", "1.1", "1.1", "2.0"}, asked); diff != "" {
		t.Errorf("Last-Event-ID (-want +got):\n%s", diff)
	}
	if missed != 2 {
		t.Errorf("events left out: got %d, want 2", missed)
	}
	if StatusOf(end) != http.StatusGone || lost != 3 {
		t.Errorf("got end %v after %d breaks, want 410 after 3", end, lost)
	}
}

// TestExec runs an echo through the channels.
func TestExec(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("container") == "none" {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, `{"detail":"no container none"}`)
			return
		}
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.CloseNow()
		if r.Header.Get("Authorization") != "Bearer secret" {
			t.Error("no token")
		}
		conn.Write(r.Context(), websocket.MessageBinary, []byte("\x02"+strings.Join(r.URL.Query()["command"], "|")))
		for {
			_, msg, err := conn.Read(r.Context())
			if err != nil {
				return
			}
			if len(msg) == 1 {
				break
			}
			conn.Write(r.Context(), websocket.MessageBinary, append([]byte{ChannelStdout}, msg[1:]...))
		}
		exit, _ := json.Marshal(ExecExit{Code: 7})
		if r.URL.Query().Get("container") != "cut" {
			conn.Write(r.Context(), websocket.MessageBinary, append([]byte{ChannelExit}, exit...))
		}
	})
	var stdout, stderr strings.Builder
	o := ExecOptions{
		Command: []string{"sh", "-c", "cat"}, Stdin: strings.NewReader("hello"), Stdout: &stdout,
		Stderr: &stderr,
	}
	code, err := c.Exec(t.Context(), "default.web.1.0", o)
	if err != nil || code != 7 || stdout.String() != "hello" || stderr.String() != "sh|-c|cat" {
		t.Errorf("got %d, %v, stdout %q, stderr %q", code, err, &stdout, &stderr)
	}
	o.Container, o.Stdin = "none", nil
	if _, err := c.Exec(t.Context(), "default.web.1.0", o); StatusOf(err) != http.StatusNotFound ||
		err.Error() != "no container none" {
		t.Errorf("a container that is not there: got %v", err)
	}
	o.Container, o.Stdin = "cut", strings.NewReader("x")
	if _, err := c.Exec(t.Context(), "default.web.1.0", o); err == nil ||
		!strings.Contains(err.Error(), "was not seen") {
		t.Errorf("a connection that was cut: got %v", err)
	}
}

func FuzzMessages(f *testing.F) {
	f.Add("id: 1\ndata: x\n\n")
	f.Add(": c\n\ndata\ndata:\n\nid\n\n\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		for msg, err := range messages(strings.NewReader(text)) {
			if err == nil && msg.data == nil {
				t.Fatalf("a message without data: %+v", msg)
			}
		}
	})
}
