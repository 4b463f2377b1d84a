package apiserver

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/cluster"
)

func TestBadInput(t *testing.T) {
	w := newWorld(t)
	w.want(201, "PUT", "/v1/definitions/web/1", definition("web", 1))
	before, err := w.engine.List(t.Context(), "berth/")
	if err != nil {
		t.Fatal(err)
	}
	const svc = "/v1/clusters/default/services/web"
	tests := []struct {
		name, method, path string
		body               any
		want               int
		says               string // in the answer
	}{
		{"empty", "PUT", svc, "", 400, "has none"},
		{"only space", "PUT", svc, " \n", 400, "has none"},
		{"truncated", "PUT", svc, `{"count": 1, "definition": "we`, 400, "cut off"},
		{"truncated between values", "PUT", svc, `{"count": 1,`, 400, "cut off"},
		{"truncated list", "PUT", svc, `{"placement": {"constraints": [`, 400, "cut off"},
		{"not JSON", "PUT", svc, "count: 1", 400, "line 1, column 1"},
		{"a bad line", "PUT", svc, "{\"count\": 1,\n  \"x\": y}", 400, "line 2, column 8"},
		{"trailing garbage", "PUT", svc, `{"count": 1} x`, 400, "continues after"},
		{"two values", "PUT", svc, `{"count": 1}{"count": 2}`, 400, "continues after"},
		{"not UTF-8", "PUT", svc, "{\"count\": 1, \"definition\": \"web\xff\"}", 400, "not UTF-8 text: byte 31"},
		{"nested deeply", "PUT", svc, strings.Repeat(`{"placement":`, 100_000), 400, "nested more than 64 deep"},
		{"lists nested deeply", "POST", "/v1/apply", strings.Repeat(`[`, 100_000), 400, "nested more than 64 deep"},
		{"5 MiB", "PUT", svc, strings.NewReader(strings.Repeat(" ", 5<<20)), 413, "larger than 4 MiB"},
		{"10 MB, without length", "POST", "/v1/apply", io.LimitReader(zeros{}, 10e6), 413, "larger than 4 MiB"},
		{"a list for an object", "PUT", svc, `[]`, 422, "is a list, want an object"},
		{"text for an object", "PUT", svc, `"web"`, 422, "is text, want an object"},
		{
			"text for a number", "PUT", svc, `{"count": "3"}`, 422,
			`"path":"count","message":"is text, want a whole number"`,
		},
		{"half a task", "PUT", svc, `{"count": 1.5}`, 422, "1.5 is not a whole number"},
		{"a huge number", "PUT", svc, `{"count": 99999999999999999999}`, 422, "out of range"},
		{"a huge exponent", "PUT", svc, `{"count": 1e999999999}`, 422, "not a whole number"},
		{"a number for text", "PUT", svc, `{"name": 7, "definition": "web@1"}`, 422, "is a number, want text"},
		{
			"an unknown field", "PUT", svc, `{"definition": "web@1", "cuont": 3}`, 422,
			`"path":"cuont","message":"is not a known field; did you mean \"count\"?"`,
		},
		{"a field in another case", "PUT", svc, `{"definition": "web@1", "Count": 3}`, 422, `did you mean \"count\"?`},
		{"a field twice", "PUT", svc, `{"count": 1, "count": 2}`, 422, "is given twice"},
		{
			"negative resources", "PUT", "/v1/definitions/web/2",
			`{"containers": [{"name": "main", "image": "a/b:1", "resources": {"cpu": "-1", "memory": -5}}]}`, 422,
			"containers[0].resources.memory",
		},
		{
			"no size", "PUT", "/v1/definitions/web/2",
			`{"containers": [{"name": "main", "image": "a/b:1", "resources": {"memory": "much"}}]}`, 422,
			`"containers[0].resources.memory","message":"\"much\" is not a size`,
		},
		{
			"no duration", "PUT", "/v1/definitions/web/2",
			`{"grace": "soon", "containers": [{"name": "main", "image": "a/b:1"}]}`, 422, "is not a duration",
		},
		{"a negative count", "PUT", svc, `{"definition": "web@1", "count": -1}`, 422, `"path":"count"`},
		{"a reference with a separator", "PUT", svc, `{"definition": "we/b@1", "count": 1}`, 422, "is not a reference"},
		{
			"another name in the address", "PUT", svc, `{"name": "api", "definition": "web@1"}`, 422,
			`is \"api\", and the address says \"web\"`,
		},
		{
			"another version in the address", "PUT", "/v1/definitions/web/2", definition("web", 3), 422,
			"the address says 2",
		},
		{"a name with a slash", "PUT", "/v1/clusters/a%2Fb", `{}`, 400, "not a valid cluster"},
		{"a name with dots", "PUT", "/v1/clusters/default/services/a.b", `{}`, 400, "not a valid service"},
		{"a name that climbs", "PUT", "/v1/clusters/..%2F..%2Fetc", `{}`, 400, "not a valid cluster"},
		{"version 0", "PUT", "/v1/definitions/web/0", definition("web", 0), 400, "not a valid version"},
		{"a task that is none", "GET", "/v1/tasks/web", nil, 400, "not a valid task"},
		{"an unknown parameter", "GET", "/v1/services?limt=3", nil, 400, `did you mean \"limit\"?`},
		{"a bad limit", "GET", "/v1/services?limit=-3", nil, 400, "not negative"},
		{"a bad cursor", "GET", "/v1/services?cursor=%21", nil, 400, "not a cursor"},
		{"a bad wait", "GET", "/v1/services?index=1&wait=long", nil, 400, "a duration such as"},
		{"a bad state", "GET", "/v1/tasks?state=flying", nil, 400, "not a state"},
		{"a bad If-Match", "PUT", svc, `{}`, 400, "If-Match"},
		{
			"a scale to nothing", "POST", svc + "/scale", `{}`, 422,
			`"path":"count","message":"is missing: want how many tasks there are to be"`,
		},
		{"a negative scale", "POST", svc + "/scale", `{"count": -1}`, 422, "want 0 to"},
		{"too many values", "POST", "/v1/apply", "[" + strings.Repeat("[],", 1<<20) + "[]]", 400, "holds more than"},
		{
			"a missing definition", "PUT", svc, `{"definition": "api@1", "count": 1}`, 422,
			"there is no task definition api",
		},
		{"a missing version", "PUT", svc, `{"definition": "web@7", "count": 1}`, 422, "the newest is web@1"},
		{
			"a missing cluster", "PUT", "/v1/clusters/blue/services/web", `{"definition": "web@1", "count": 1}`, 422,
			"there is no cluster blue",
		},
		{"a wrong method", "PATCH", svc, `{}`, 405, "the method PATCH is not allowed here"},
		{"an unknown path", "GET", "/v1/things", nil, 404, "no path /v1/things"},
		{
			"a body that nobody needs", "GET", "/v1/services", strings.Repeat("x", 5<<10), 400,
			"the request GET /v1/services needs no body",
		},
		{"an unknown kind", "POST", "/v1/apply", manifestsOf("Pod", definition("web", 1)), 422, `objects[0].kind`},
		{"an object without spec", "POST", "/v1/apply", `{"objects": [{"kind": "Service"}]}`, 422, "objects[0].spec"},
		{
			"an unknown field of a spec", "POST", "/v1/apply",
			`{"objects": [{"kind": "Service", "spec": {"nam": "web"}}]}`, 422, "objects[0].nam",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var headers []string
			if test.name == "a bad If-Match" {
				headers = []string{"If-Match", "new"}
			}
			got := w.call(test.method, test.path, test.body, headers...)
			if got.status != test.want || !strings.Contains(string(got.body), test.says) {
				t.Errorf("status %d, want %d and %q in: %s", got.status, test.want, test.says, clipTest(got.body))
			}
			if kind := got.header.Get("Content-Type"); kind != "application/problem+json" {
				t.Errorf("content type %q", kind)
			}
		})
	}
	after, err := w.engine.List(t.Context(), "berth/")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before.Records, after.Records); diff != "" {
		t.Errorf("something was stored (-before +after):\n%s", diff)
	}
}

func clipTest(b []byte) string { return string(b[:min(len(b), 2000)]) }

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

// TestBadBodiesEverywhere sends bad bodies to each route with a JSON body. All are refused, and nothing is written.
func TestBadBodiesEverywhere(t *testing.T) {
	w := newWorld(t)
	w.put(map[string]any{"node/n": cluster.Node{Name: "n", State: cluster.NodeReady, Domain: "default"}})
	before := w.tables.Snapshot().Revision()
	for _, rt := range w.server.routes {
		if rt.Body == nil || rt.Role == route.RoleMachine || rt.Open {
			continue
		}
		path := rt.Path
		for _, name := range rt.Names() {
			value := "n"
			if name == "version" {
				value = "1"
			}
			path = strings.ReplaceAll(path, "{"+name+"}", value)
		}
		for _, body := range []string{
			`{`, `{"name": `, `[]`, `"text"`, `{"no_such_field": 1}`, strings.Repeat(`{"a":`, 10_000),
			`{"name": {"a": [1]}, "name": 2}`, "\x00\xff",
		} {
			if got := w.call(rt.Method, path, body); got.status < 400 || got.status >= 500 {
				t.Errorf("%s %s with %.20q: %d %s", rt.Method, path, body, got.status, got.body)
			}
		}
	}
	if after := w.tables.Snapshot().Revision(); after != before {
		t.Errorf("something was written: revision %d, then %d", before, after)
	}
}

func TestAllFaultsTogether(t *testing.T) {
	w := newWorld(t)
	bad := map[string]any{
		"name": "web", "definition": "web@1", "count": "many", "cuont": 1,
		"placement": map[string]any{"strategy": 7},
	}
	got := w.want(422, "POST", "/v1/apply", manifestsOf(
		"Service", bad,
		"TaskDefinition", map[string]any{
			"name": "Web", "version": 1,
			"containers": []any{map[string]any{"name": "x", "image": "a b"}},
		},
	))
	for _, path := range []string{
		"objects[0].count", "objects[0].cuont", "objects[0].placement.strategy",
		"objects[1].name", "objects[1].containers[0].image",
	} {
		if !strings.Contains(got.faults(), path+":") {
			t.Errorf("no fault at %s in: %s", path, got.faults())
		}
	}
}

func TestOtherContentType(t *testing.T) {
	w := newWorld(t)
	got := w.want(415, "PUT", "/v1/clusters/blue", "name: blue", "Content-Type", "application/yaml")
	if !strings.Contains(got.problem().Detail, "application/json") {
		t.Errorf("%s", got.body)
	}
	w.want(201, "PUT", "/v1/clusters/blue", `{"name": "blue"}`, "Content-Type", "application/json; charset=utf-8")
	w.want(201, "PUT", "/v1/clusters/red", `{"name": "red"}`, "Content-Type", "application/x-www-form-urlencoded")
}

// TestSlowClients sends headers and bodies too slowly.
func TestSlowClients(t *testing.T) {
	tests := []struct{ name, send, want string }{
		{"half a header", "GET /v1/version HTTP/1.1\r\nHost: local", ""},
		{"half a body", "PUT /v1/clusters/blue HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + token +
			"\r\nContent-Length: 100\r\n\r\n{\"na", "408 Request Timeout"},
	}
	srv := newWorld(t, impatient)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			conn, err := net.Dial("tcp", strings.TrimPrefix(srv.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, test.send); err != nil {
				t.Fatal(err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(conn)
			if err != nil {
				t.Fatalf("the server did not hang up: %v", err)
			}
			if test.want == "" && len(text) > 0 && !bytes.Contains(text, []byte("408")) ||
				!bytes.Contains(text, []byte(test.want)) {
				t.Errorf("got %q, want %q", text, test.want)
			}
		})
	}
}

// TestHeaders checks that the server refuses too long headers and continues to serve.
func TestHeaders(t *testing.T) {
	w := newWorld(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /livez HTTP/1.1\r\nHost: localhost\r\nX: %s\r\n\r\n", strings.Repeat("x", 200<<10))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil {
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("status %d, want 431", resp.StatusCode)
		}
	}
	w.want(200, "GET", "/livez", nil)
}
