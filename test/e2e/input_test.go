package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// badManifest is a file that must be refused: by validate without a server, and by run.
type badManifest struct {
	name  string
	text  string
	words []string // that the refusal must hold
}

func badManifests() []badManifest {
	definition := "kind: TaskDefinition\nname: bad\nversion: 1\ncontainers:\n"
	return []badManifest{
		{"empty", "", []string{"bad.yaml"}},
		{
			"truncated", "kind: TaskDefinition\nname: bad\ncontainers: [{name: main, command: [sh",
			[]string{"bad.yaml:3"},
		},
		{"not UTF-8", "kind: Service\nname: \xff\xfe\n", []string{"bad.yaml", "UTF-8"}},
		{"zero bytes", "kind: Service\x00\n", []string{"bad.yaml"}},
		{"self-referring", "kind: Service\nname: &a [*a]\n", []string{"bad.yaml:2"}},
		{"laughs", laughs(), []string{"bad.yaml"}},
		{"deep list", strings.Repeat("[", 20_000), []string{"bad.yaml", "deep"}},
		{"deep map", "a: " + strings.Repeat("{a: ", 5_000), []string{"bad.yaml", "deep"}},
		{
			"huge", definition + "  - {name: main, command: [echo, \"" + strings.Repeat("x", 12<<20) + "\"]}\n",
			[]string{"bad.yaml", "larger than 4 MiB"},
		},
		{
			"wrong types", "kind: Service\nname: bad\ndefinition: bad@1\ncount: many\nlabels: [a]\n",
			[]string{"bad.yaml:4", "bad.yaml:5", "count", "labels"},
		},
		{"unknown kind", "kind: Servise\nname: bad\n", []string{"bad.yaml:1", `"Service"`}},
		{
			"unknown field", "kind: Service\nname: bad\ndefinition: bad@1\ncuont: 1\n",
			[]string{"bad.yaml:4", "cuont", `"count"`},
		},
		{
			"name with a slash", "kind: Service\nname: ../../bad\ndefinition: bad@1\ncount: 1\n",
			[]string{"bad.yaml:2", "name"},
		},
		{
			"name with a dot", "kind: Service\nname: bad.0\ndefinition: bad@1\ncount: 1\n",
			[]string{"bad.yaml:2", "name"},
		},
		{
			"negative resources", definition + "  - {name: main, command: [x], resources: {cpu: -1, memory: -5MiB}}\n",
			[]string{"bad.yaml:5", "cpu", "memory"},
		},
		{"negative count", "kind: Service\nname: bad\ndefinition: bad@1\ncount: -1\n", []string{"bad.yaml:4", "count"}},
		{
			"number out of range", "kind: Service\nname: bad\ndefinition: bad@1\ncount: 99999999999999999999\n",
			[]string{"bad.yaml:4", "count"},
		},
		{
			"twice the same key", "kind: Service\nname: bad\nname: worse\ndefinition: bad@1\n",
			[]string{"bad.yaml:3", "name"},
		},
		{
			"many faults together", "kind: Service\nname: b/d\ndefinition: '@'\ncount: -1\npriority: -1\n",
			[]string{"bad.yaml:2", "bad.yaml:3", "bad.yaml:4", "bad.yaml:5"},
		},
	}
}

// laughs is a small document that expands to 10^9 elements.
func laughs() string {
	var b strings.Builder
	b.WriteString("a: &a [x, x, x, x, x, x, x, x, x, x]\n")
	for c := 'b'; c <= 'i'; c++ {
		fmt.Fprintf(&b, "%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c, ", c-1), 10), ", "))
	}
	return b.String()
}

// badBody is a request that must be refused.
type badBody struct {
	name         string
	method, path string
	body         io.Reader
	status       int
	word         string // that the answer must hold
}

func badBodies() []badBody {
	apply := func(name, body string, status int, word string) badBody {
		return badBody{name, "POST", "/v1/apply", strings.NewReader(body), status, word}
	}
	const service = "/v1/clusters/default/services/bad"
	return []badBody{
		apply("no JSON", "kind: Service", 400, "JSON"),
		apply("truncated", `{"objects":[{"kind":"Service","spec":{"name":"ba`, 400, "cut off"),
		apply("not UTF-8", "{\"objects\":[{\"kind\":\"Service\",\"spec\":{\"name\":\"\xff\"}}]}", 0, ""),
		apply("deep", strings.Repeat("[", 1<<20), 400, "deep"),
		apply("two values", `{"objects":[]}{"objects":[]}`, 400, ""),
		apply("unknown field", `{"objectz":[]}`, 422, "objects"),
		apply("wrong type", `{"objects":"all"}`, 422, "list"),
		apply("unknown kind", `{"objects":[{"kind":"Servise","spec":{}}]}`, 422, "Servise"),
		apply("no such definition",
			`{"objects":[{"kind":"Service","spec":{"name":"bad","definition":"nowhere@1","count":1}}]}`, 0, "nowhere"),
		{
			"10 MB", "POST", "/v1/apply",
			io.MultiReader(strings.NewReader(`{"objects":["`), bytes.NewReader(bytes.Repeat([]byte("x"), 10<<20)),
				strings.NewReader(`"]}`)), 413, "larger than",
		},
		{
			"negative resources", "PUT", "/v1/definitions/bad/1",
			strings.NewReader(`{"name":"bad","version":1,"containers":[{"name":"main","command":["x"],"resources":{"cpu":"-1","memory":-5}}]}`), 422, "resources",
		},
		{
			"name with a separator", "PUT", "/v1/clusters/default/services/..%2Fbad",
			strings.NewReader(`{"name":"../bad","definition":"hello@1","count":1}`), 0, "",
		},
		{"name with zero", "PUT", "/v1/clusters/%00", strings.NewReader(`{"name":"\u0000"}`), 400, "not a valid"},
		{
			"another name", "PUT", service, strings.NewReader(`{"name":"other","definition":"hello@1","count":1}`), 0,
			"other",
		},
		{
			"negative count", "PUT", service, strings.NewReader(`{"name":"bad","definition":"hello@1","count":-1}`),
			422,
			"count",
		},
		{
			"count out of range", "POST", "/v1/clusters/default/services/hello/scale",
			strings.NewReader(`{"count":1e300}`), 422, "count",
		},
		{"wrong method", "PATCH", service, strings.NewReader(`{}`), 405, ""},
		{"no such path", "GET", "/v1/../../etc/passwd", nil, 0, ""},
	}
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	s := harness.New(t, harness.Process)
	dev := s.Dev()
	s.Berth("run", s.Write("v1.yaml", fmt.Sprintf(hello, 1, 2))).Want(t, 0)
	before, dump := running(t, s, "hello", 2), dumpOf(t, s)
	release := slowClients(t, s, dev)

	// All inputs at the same time, beside a healthy service.
	var group sync.WaitGroup
	for i, bad := range badManifests() {
		group.Go(func() { tryManifest(t, s, i, bad) })
	}
	for _, bad := range badBodies() {
		group.Go(func() { tryBody(t, s, bad) })
	}
	group.Wait()
	release()

	if diff := cmp.Diff(dump, dumpOf(t, s)); diff != "" {
		t.Errorf("bad input changed what is stored (-before +after):\n%s", diff)
	}
	if !dev.Alive() {
		t.Fatalf("berth dev has ended:\n%s", dev.Output())
	}
	samePids(t, before, running(t, s, "hello", 2))
	s.Berth("status").Want(t, 0, "healthy", "2/2")
}

func tryManifest(t *testing.T, s *harness.Site, i int, bad badManifest) {
	dir := filepath.Join(s.Dir, fmt.Sprintf("m%d", i))
	file := filepath.Join(dir, "bad.yaml")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Error(err)
		return
	}
	if err := os.WriteFile(file, []byte(bad.text), 0o600); err != nil {
		t.Error(err)
		return
	}
	for _, command := range []string{"validate", "run"} {
		r := s.Berth(command, file)
		if r.Code != 1 && r.Code != 2 || r.Took > testkit.Scaled(soon) {
			t.Errorf("%s: want an immediate refusal:\n%s", bad.name, clip(r.String()))
		}
		for _, w := range bad.words {
			if !strings.Contains(r.Stdout+r.Stderr, w) {
				t.Errorf("%s: want %q in:\n%s", bad.name, w, clip(r.String()))
			}
		}
		if len(r.Stdout+r.Stderr) > 8<<10 {
			t.Errorf("%s: the message is %d bytes long", bad.name, len(r.Stdout+r.Stderr))
		}
		if strings.Contains(r.Stderr, "goroutine ") || strings.Contains(r.Stderr, "panic") {
			t.Errorf("%s: crashed:\n%s", bad.name, clip(r.String()))
		}
	}
}

func clip(s string) string {
	if len(s) > 1500 {
		return s[:1500] + "…"
	}
	return s
}

func tryBody(t *testing.T, s *harness.Site, bad badBody) {
	var d net.Dialer
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", s.Socket) }
	c := http.Client{Transport: &http.Transport{DialContext: dial}, Timeout: soon}
	defer c.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), bad.method, "http://localhost"+bad.path, bad.body)
	if err != nil {
		t.Errorf("%s: %v", bad.name, err)
		return
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := c.Do(req)
	if err != nil {
		t.Errorf("%s: %v", bad.name, err)
		return
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		t.Errorf("%s: %v", bad.name, err)
	}
	if bad.status != 0 && res.StatusCode != bad.status || res.StatusCode/100 != 4 ||
		!bytes.Contains(text, []byte(bad.word)) {
		t.Errorf("%s: want status %d and %q, got %d and %s", bad.name, bad.status, bad.word, res.StatusCode,
			clip(string(text)))
	}
	var p api.Problem
	if err := json.Unmarshal(text, &p); err != nil || res.Header.Get("Content-Type") != "application/problem+json" ||
		p.Status != res.StatusCode {
		t.Errorf("%s: the answer is no problem document: %s %s", bad.name, res.Header.Get("Content-Type"),
			clip(string(text)))
	}
}

// dumpOf returns all stored objects, without fields that change without a request.
func dumpOf(t *testing.T, s *harness.Site) map[string]string {
	t.Helper()
	c := s.Client()
	dump := map[string]string{}
	note := func(kind, name string, spec any) {
		text, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		dump[kind+"/"+name] = string(text)
	}
	clusters, err := c.Clusters(t.Context(), client.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range clusters.Items {
		note("cluster", v.Name, v)
	}
	definitions, err := c.Definitions(t.Context(), client.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range definitions.Items {
		note("definition", v.Ref().String(), v)
	}
	services, err := c.Services(t.Context(), "", client.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range services.Items {
		note("service", v.Cluster+"/"+v.Name, []any{v.Service, v.Revision})
	}
	jobs, err := c.Jobs(t.Context(), "", client.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range jobs.Items {
		note("job", v.Cluster+"/"+v.Name, []any{v.Job, v.Revision})
	}
	return dump
}

// slowClients opens connections that send their request byte by byte, or never read the answer, on the address that
// others may reach. Its result demands that the server closed all connections without a complete header.
func slowClients(t *testing.T, s *harness.Site, dev *harness.Daemon) (release func()) {
	t.Helper()
	address := strings.TrimPrefix(dev.URL(), "http://")
	token := strings.TrimSpace(readFile(t, filepath.Join(s.ServerDir, "token")))
	var conns []net.Conn
	dial := func(text string) net.Conn {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
		if _, err := io.WriteString(c, text); err != nil {
			t.Errorf("slow client: %v", err)
		}
		return c
	}
	var slow []net.Conn
	for range 100 {
		slow = append(slow, dial("GET /v1/services HTTP/1.1\r\nHost: "+address+"\r\nX-Slow: "))
	}
	for range 20 { // a missing body, and unread answers
		dial("POST /v1/apply HTTP/1.1\r\nHost: " + address + "\r\nAuthorization: Bearer " + token +
			"\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
		dial("GET /v1/events HTTP/1.1\r\nHost: " + address + "\r\nAuthorization: Bearer " + token +
			"\r\nAccept: text/event-stream\r\n\r\n")
	}
	return func() {
		t.Helper()
		for _, c := range slow {
			_ = c.SetReadDeadline(time.Now().Add(soon))
			if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
				t.Errorf("a client without a whole header was not cut off: %v", err)
				break
			}
		}
		for _, c := range conns {
			_ = c.Close() // it may have been cut off
		}
	}
}
