package hostapi_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/agent"
	"github.com/berthd/berth/internal/agent/hostapi"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// memory is a listener whose connections have no buffer: a server that writes to a client that does not read waits at
// once.
type memory struct {
	conns  chan net.Conn
	closed chan struct{}
}

type remote struct {
	net.Conn
	host string
}

func (r remote) RemoteAddr() net.Addr { return address(r.host) }

type address string

func (address) Network() string  { return "memory" }
func (a address) String() string { return string(a) }

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error {
	select {
	case <-m.closed:
	default:
		close(m.closed)
	}
	return nil
}

func (m *memory) Addr() net.Addr { return address("node") }

// client is one connection of a client that writes and reads what the test wants.
type client struct {
	net.Conn
	in *bufio.Reader
}

// dial opens a connection as a caller.
func (m *memory) dial(from string) *client {
	here, there := net.Pipe()
	m.conns <- remote{there, from + ":1"}
	return &client{here, bufio.NewReader(here)}
}

// send writes while the server reads. A server that does not read until the end is no error.
func (c *client) send(text string) {
	go func() { _, _ = io.WriteString(c, text) }()
	synctest.Wait()
}

// answer reads the answer to a request.
func (c *client) answer(t *testing.T) (status int, text string) {
	t.Helper()
	res, err := http.ReadResponse(c.in, nil)
	if err != nil {
		t.Fatalf("read the answer: %v", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("read the body: %v", err)
	}
	return res.StatusCode, string(body)
}

// isClosed reports whether the server has closed the connection. It reads one byte of an open one.
func (c *client) isClosed() bool {
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := c.in.ReadByte()
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe)
}

// attack starts a server of a node in the bubble of a test, and ends it with the test.
func attack(t *testing.T, n *fakeNode, d hostapi.Driver) *memory {
	t.Helper()
	n.changed = make(chan struct{}) // one of the bubble
	m := &memory{conns: make(chan net.Conn), closed: make(chan struct{})}
	config := hostapi.Config{Name: "n1", Node: n}
	if d != nil {
		config.Driver = d
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- hostapi.New(config).Run(ctx, m) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return m
}

const host = "Host: node\r\n"

// TestSlowClientsAreCutOff checks that no client keeps its connection, and what it costs the agent, by being slow: with
// headers, with a body, with a body that nobody needs, and with reading the answer.
func TestSlowClientsAreCutOff(t *testing.T) {
	for _, test := range []struct {
		name, request string
		// limit is how long the client may be slow; want is the answer, 0 for none.
		limit time.Duration
		want  int
	}{
		{"nothing", "", 5 * time.Second, 0},
		{"headers", "GET /v1/tasks HTTP/1.1\r\n" + host + "X: y", 5 * time.Second, 0},
		{
			"the body of a new task", "PUT /v1/tasks/web HTTP/1.1\r\n" + host + "Content-Length: 900\r\n\r\n{",
			30 * time.Second, http.StatusRequestTimeout,
		},
		{
			"a body of a start", "POST /v1/tasks/idle/start HTTP/1.1\r\n" + host + "Content-Length: 9\r\n\r\n",
			5 * time.Second, http.StatusBadRequest,
		},
		{
			"a body of a read", "GET /v1/resources HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n5\r\nab",
			5 * time.Second, http.StatusBadRequest,
		},
		{
			"a body of an unknown path", "GET /none HTTP/1.1\r\n" + host + "Content-Length: 9\r\n\r\n",
			5 * time.Second, http.StatusBadRequest,
		},
		{
			"a body of a path that is not clean", "GET /v1//tasks HTTP/1.1\r\n" + host + "Content-Length: 9\r\n\r\n",
			5 * time.Second, http.StatusTemporaryRedirect,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := &fakeDriver{tasks: []hostapi.OwnTask{idle()}}
			synctest.Test(t, func(t *testing.T) {
				m := attack(t, newNode(), d)
				c := m.dial("slow")
				c.send(test.request)
				time.Sleep(test.limit - time.Second)
				if c.isClosed() {
					t.Errorf("the connection was closed before %s", test.limit)
				}
				time.Sleep(2 * time.Second)
				if test.want != 0 {
					_ = c.SetReadDeadline(time.Time{})
					if status, text := c.answer(t); status != test.want {
						t.Errorf("%d %s, want %d", status, text, test.want)
					}
				}
				synctest.Wait()
				if !c.isClosed() {
					t.Errorf("the connection is open after %s", test.limit+time.Second)
				}
				if len(d.calls) > 0 {
					t.Errorf("the node did %v", d.calls)
				}
			})
		})
	}
}

// TestReadersThatDoNotReadAreCutOff checks answers, event streams and logs: a reader that stops loses its connection,
// and its place among the streams, and meanwhile another reader gets all.
func TestReadersThatDoNotReadAreCutOff(t *testing.T) {
	events := "GET /v1/tasks HTTP/1.1\r\n" + host + "Accept: text/event-stream\r\n\r\n"
	logs := "GET /v1/tasks/u1/logs?follow=true HTTP/1.1\r\n" + host + "\r\n"
	for _, test := range []struct {
		name, request string
		limit         time.Duration
	}{
		{"answers", "GET /openapi.json HTTP/1.1\r\n" + host + "\r\n", 30 * time.Second},
		{"events", events, 30 * time.Second},
		{"logs", logs, 10 * time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := newNode()
			n.now.Tasks = []agent.LocalTask{webTask(1, cluster.StateRunning)}
			synctest.Test(t, func(t *testing.T) {
				m := attack(t, n, nil)
				n.logs = func(ctx context.Context, _ transport.StreamRequest, to io.Writer) error {
					for {
						if _, err := io.WriteString(to, "{}\n"); err != nil {
							return err
						}
						select {
						case <-ctx.Done():
							return ctx.Err()
						case <-time.After(time.Second):
						}
					}
				}
				stopped, other := m.dial("stopped"), m.dial("other")
				stopped.send(test.request)
				other.send(test.request)
				lines := make(chan string, 10000)
				go func() {
					defer close(lines)
					for {
						line, err := other.in.ReadString('\n')
						if err != nil {
							return
						}
						lines <- line
					}
				}()
				// The first line of an answer, and a stream ends in the middle of the second event or line.
				if _, err := stopped.in.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
				time.Sleep(test.limit - 2*time.Second)
				n.set(func(o *agent.Observation) { o.Tasks[0].Observed.Restarts = 77 })
				time.Sleep(time.Second)
				synctest.Wait()
				if got := len(lines); got < 5 {
					t.Errorf("beside a reader that stopped, another one got %d lines", got)
				}
				time.Sleep(2*time.Second + 15*time.Second) // a stream without changes is written to every 15 s
				synctest.Wait()
				rest, err := io.ReadAll(stopped.in)
				if err != nil || strings.Contains(string(rest), "77") || len(rest) > 16<<10 {
					t.Errorf("the reader that stopped is still served: %v, %d bytes", err, len(rest))
				}
				_ = other.Close()
				synctest.Wait()
			})
		})
	}
}

// TestConnectionsOfOneCaller checks that a caller with too many connections is told so, and stops no other caller.
func TestConnectionsOfOneCaller(t *testing.T) {
	const ask = "GET /v1/resources HTTP/1.1\r\n" + host + "\r\n"
	synctest.Test(t, func(t *testing.T) {
		m := attack(t, newNode(), nil)
		var open []*client
		for i := range 64 {
			c := m.dial("many")
			c.send(ask)
			if status, text := c.answer(t); status != http.StatusOK {
				t.Fatalf("connection %d: %d %s", i+1, status, text)
			}
			open = append(open, c)
		}
		more := m.dial("many")
		more.send(ask)
		if status, text := more.answer(t); status != http.StatusTooManyRequests ||
			!strings.Contains(text, "at most 64 of one caller") || !more.isClosed() {
			t.Errorf("connection 65: %d %s, want 429 and its end", status, text)
		}
		for range 16 {
			m.dial("many")
		}
		if c := m.dial("many"); !c.isClosed() {
			t.Error("connections without an end get an answer")
		}
		other := m.dial("other")
		other.send(ask)
		if status, text := other.answer(t); status != http.StatusOK {
			t.Errorf("another caller: %d %s", status, text)
		}
		_ = open[0].Close()
		time.Sleep(6 * time.Second) // the refused ones have sent nothing
		again := m.dial("many")
		again.send(ask)
		if status, text := again.answer(t); status != http.StatusOK {
			t.Errorf("after one was closed: %d %s", status, text)
		}
	})
}

// TestBodiesOfOneCaller checks that a caller who sends many bodies slowly is told so, and stops no other caller.
func TestBodiesOfOneCaller(t *testing.T) {
	const body = `{"containers": [{"name": "a", "command": ["x"]}]}`
	const ask = "PUT /v1/tasks/web HTTP/1.1\r\n" + host + "Content-Length: %d\r\n\r\n%s"
	synctest.Test(t, func(t *testing.T) {
		m := attack(t, newNode(), &fakeDriver{})
		for range 8 {
			m.dial("many").send(fmt.Sprintf(ask, len(body), body[:5]))
		}
		c := m.dial("many")
		c.send(fmt.Sprintf(ask, len(body), body))
		if status, text := c.answer(t); status != http.StatusTooManyRequests ||
			!strings.Contains(text, "at most 8 of one caller") {
			t.Errorf("body 9: %d %s, want 429", status, text)
		}
		other := m.dial("other")
		other.send(fmt.Sprintf(ask, len(body), body))
		if status, text := other.answer(t); status != http.StatusCreated {
			t.Errorf("another caller: %d %s", status, text)
		}
		time.Sleep(31 * time.Second)
		again := m.dial("many")
		again.send(fmt.Sprintf(ask, len(body), body))
		if status, text := again.answer(t); status != http.StatusCreated {
			t.Errorf("once the slow bodies were given up: %d %s", status, text)
		}
	})
}

// TestClientsCostTheAgentOneObservation checks that neither many requests nor many streams make the agent collect its
// state again and again, and that all streams get each change.
func TestClientsCostTheAgentOneObservation(t *testing.T) {
	n := newNode()
	n.now.Tasks = []agent.LocalTask{webTask(1, cluster.StateStarting)}
	synctest.Test(t, func(t *testing.T) {
		m := attack(t, n, nil)
		c := m.dial("one")
		for range 500 {
			c.send("GET /v1/tasks HTTP/1.1\r\n" + host + "\r\n")
			if status, _ := c.answer(t); status != http.StatusOK {
				t.Fatal(status)
			}
		}
		if got := n.observed(); got != 1 {
			t.Errorf("500 requests of one moment made the agent observe %d times", got)
		}
		streams := make([]chan string, 60)
		for i := range streams {
			c := m.dial(fmt.Sprintf("caller%d", i%2))
			c.send("GET /v1/tasks HTTP/1.1\r\n" + host + "Accept: text/event-stream\r\n\r\n")
			streams[i] = make(chan string, 1000)
			go func() {
				for {
					line, err := c.in.ReadString('\n')
					if err != nil {
						return
					}
					streams[i] <- line
				}
			}()
		}
		synctest.Wait()
		before := n.observed()
		for i := range 10 {
			n.set(func(o *agent.Observation) {
				o.Tasks = []agent.LocalTask{webTask(1, cluster.StateRunning)}
				o.Tasks[0].Observed.Restarts = 1000 + i
			})
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if got := n.observed() - before; got > 10 {
			t.Errorf("10 changes for 60 streams made the agent observe %d times", got)
		}
		for i := range streams {
			var text strings.Builder
			for len(streams[i]) > 0 {
				text.WriteString(<-streams[i])
			}
			for change := range 10 {
				if !strings.Contains(text.String(), fmt.Sprintf(`"restarts":%d`, 1000+change)) {
					t.Fatalf("stream %d lacks change %d", i, change)
				}
			}
		}
	})
}

// TestALogThatIsQuietForLongEndsWell checks that the end of a stream reaches a reader long after its last line.
func TestALogThatIsQuietForLongEndsWell(t *testing.T) {
	for _, first := range []time.Duration{time.Second, time.Hour} {
		n := newNode()
		n.now.Tasks = []agent.LocalTask{webTask(1, cluster.StateRunning)}
		synctest.Test(t, func(t *testing.T) {
			m := attack(t, n, nil)
			n.logs = func(_ context.Context, _ transport.StreamRequest, to io.Writer) error {
				time.Sleep(first)
				_, err := io.WriteString(to, "{}\n")
				time.Sleep(time.Hour)
				return err
			}
			c := m.dial("reader")
			c.send("GET /v1/tasks/u1/logs?follow=true HTTP/1.1\r\n" + host + "\r\n")
			if status, text := c.answer(t); status != http.StatusOK || text != "{}\n" {
				t.Errorf("%d %q, want one line", status, text)
			}
		})
	}
}

// TestStreamsOfOneCaller checks that a caller with too many streams is told so, and that another caller has a share of
// its own.
func TestStreamsOfOneCaller(t *testing.T) {
	const ask = "GET /v1/tasks HTTP/1.1\r\n" + host + "Accept: text/event-stream\r\n\r\n"
	synctest.Test(t, func(t *testing.T) {
		m := attack(t, newNode(), nil)
		for range 32 {
			m.dial("many").send(ask)
		}
		c := m.dial("many")
		c.send(ask)
		if status, text := c.answer(t); status != http.StatusTooManyRequests ||
			!strings.Contains(text, "at most 32 of one caller") {
			t.Errorf("stream 33: %d %s, want 429", status, text)
		}
		other := m.dial("other")
		other.send(ask)
		if line, err := other.in.ReadString('\n'); err != nil || !strings.Contains(line, "200 OK") {
			t.Errorf("another caller: %q, %v", line, err)
		}
	})
}

// TestHostileRequests checks the answers to requests that are wrong: none reaches the driver, and each says what is
// wrong, with the name of the field.
func TestHostileRequests(t *testing.T) {
	n := newNode()
	n.set(func(o *agent.Observation) {
		o.Facts = cluster.Facts{CPU: 2000, Memory: cluster.GiB, Folders: &cluster.FolderFacts{
			HostVolumes: []api.HostVolume{{Name: "media", ReadOnly: true}}, Paths: []string{"/srv"},
		}}
	})
	d := &fakeDriver{tasks: []hostapi.OwnTask{idle()}, changed: make(chan struct{})}
	s := serve(t, n, d)
	task := func(more string) string {
		return `{"containers": [{"name": "a", "command": ["x"], "mounts": [{"volume": "v", "path": "/v"}]}]` + more + `}`
	}
	const web = "/v1/tasks/web"
	for _, test := range []struct {
		method, path, kind, body string
		status                   int
		want                     string
	}{
		// addresses
		{"GET", "/v1/tasks/..%2f..%2fetc", "", "", 400, "in the address is not a valid name_or_id"},
		{"GET", "/v1/tasks/%2e%2e%2f", "", "", 400, "is not a valid name_or_id"},
		{"PUT", "/v1/tasks/" + strings.Repeat("a", 64), "", task(""), 400, "is not a valid name_or_id"},
		{"PUT", "/v1/tasks/Web", "", task(""), 400, "is not a valid name_or_id"},
		{"PUT", "/v1/tasks/web%00", "", task(""), 400, "is not a valid name_or_id"},
		{"PUT", "/v1/tasks/default.web.1.0", "", task(""), 400, "cannot be the name of a task"},
		{"PUT", "/v1/tasks/w%C3%A9b", "", task(""), 400, "is not a valid name_or_id"},
		{"PUT", web + "?replace=..%2fx", "", task(""), 400, `"?replace"`},
		{"PUT", web + "?replace=web", "", task(""), 400, "names the new task itself"},
		{"PUT", web + "?force=true", "", task(""), 400, "?force"},
		{"PUT", web + "/", "", task(""), 404, "there is no path"},
		{"GET", "/v1/tasks/idle/logs?history=-1", "", "", 400, "?history"},
		{"GET", "/v1/tasks/idle/logs?history=99999999999999999999", "", "", 400, "?history"},
		{"GET", "/v1/tasks/idle/logs?stream=x", "", "", 400, "?stream"},
		{"GET", "/v2/tasks", "", "", 404, "there is no path"},
		// methods
		{"POST", web, "", task(""), 405, "the method POST is not allowed here"},
		{"PATCH", "/v1/tasks/idle/start", "", "", 405, "only POST"},
		{"BREW", "/v1/resources", "", "", 405, "the method BREW"},
		// bodies
		{"PUT", web, "text/yaml", "containers: []", 415, "want application/json"},
		{"PUT", web, "application/json", "", 400, "needs a body of JSON"},
		{"PUT", web, "", `{"containers": [`, 400, "cut off"},
		{"PUT", web, "", `{"containers": [}`, 400, "line 1, column 17"},
		{"PUT", web, "", `{"containers": []} {}`, 400, "continues after its JSON value"},
		{"PUT", web, "", "\xff\xfe", 400, "not UTF-8"},
		{"PUT", web, "", `[]`, 400, "want an object"},
		{"PUT", web, "", task(`, "volums": []`), 400, `did you mean \"volumes\"?`},
		{"PUT", web, "", task(`, "ports": [], "ports": []`), 400, `"path":"ports","message":"is given twice"`},
		{"PUT", web, "", task(`, "ports": [{"port": "80"}]`), 400, `"ports[0].port"`},
		{"PUT", web, "", task(`, "ports": [{"port": 1e99}]`), 400, `"ports[0].port"`},
		{"PUT", web, "", strings.Repeat("[", 100_000), 400, "nested more than 64 deep"},
		{"PUT", web, "", `{"a":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, 400, "nested more than"},
		{"PUT", web, "", "[" + strings.Repeat(" ", 600<<10) + "]", 413, "the body is larger than 512 KiB"},
		{"POST", "/v1/tasks/idle/start", "", strings.Repeat("x", 5<<10), 400, "needs no body"},
		// what the node does not share
		{
			"PUT", web, "", task(`, "volumes": [{"name": "v", "host_volume": "movies"}]`), 400,
			`"path":"volumes[0].host_volume","message":"it declares no host volume \"movies\"`,
		},
		{
			"PUT", web, "", task(`, "volumes": [{"name": "v", "host_volume": "media"}]`), 400,
			`"path":"volumes[0].host_volume","message":"its host volume \"media\" is read-only`,
		},
		{
			"PUT", web, "", task(`, "volumes": [{"name": "v", "host": "/etc"}]`), 400,
			`"path":"volumes[0].host","message":"its agent does not share the path /etc`,
		},
	} {
		name := test.method + " " + test.path + " " + test.body[:min(len(test.body), 60)]
		t.Run(name, func(t *testing.T) {
			body := strings.NewReader(test.body)
			r, err := http.NewRequestWithContext(t.Context(), test.method, s.URL+test.path, body)
			if err != nil {
				t.Fatal(err)
			}
			if test.kind != "" {
				r.Header.Set("Content-Type", test.kind)
			}
			res, err := s.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			text, err := io.ReadAll(res.Body)
			if err != nil || res.StatusCode != test.status || !strings.Contains(string(text), test.want) {
				t.Errorf("%d %s, %v; want %d with %q", res.StatusCode, text, err, test.status, test.want)
			}
			if kind := res.Header.Get("Content-Type"); kind != "application/problem+json" || len(text) > 4<<10 {
				t.Errorf("the answer is %s of %d bytes, want a short problem", kind, len(text))
			}
		})
	}
	if len(d.calls) > 0 {
		t.Errorf("the node did %v", d.calls)
	}
}

// TestPathsThatAreNotClean checks that a path with ".." reaches no other operation than the one it names in full.
func TestPathsThatAreNotClean(t *testing.T) {
	d := &fakeDriver{tasks: []hostapi.OwnTask{idle()}}
	synctest.Test(t, func(t *testing.T) {
		m := attack(t, newNode(), d)
		for _, path := range []string{
			"/v1/tasks/x/../idle", "//v1/tasks/idle", "/v1/./tasks/idle", "/v1/tasks/%2e%2e/tasks/idle",
		} {
			c := m.dial("one")
			c.send("DELETE " + path + " HTTP/1.1\r\n" + host + "\r\n")
			if status, text := c.answer(t); status < 300 {
				t.Errorf("DELETE %s: %d %s", path, status, text)
			}
		}
		if len(d.calls) > 0 {
			t.Errorf("the node did %v", d.calls)
		}
	})
}
