package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
)

// internalWords are words of the program and its libraries that mean nothing to users.
var internalWords = regexp.MustCompile(
	`\b(api|cluster|store|json|reflect|strconv|http|url)\.[A-Z]|unmarshal|Go struct|interface \{|goroutine|\bEOF\b|context (deadline|canceled)|connection refused|unexpected end of JSON|%!|<nil>|0x[0-9a-f]{6}`)

// refusalOf checks that an answer is a refusal that helps a user: 4xx, or 503 if this server lacks a part. It must be
// problem+json with a sentence, a message for each fault, and no internal words.
func refusalOf(t *testing.T, what string, got reply) api.Problem {
	t.Helper()
	var p api.Problem
	if got.status < 400 || got.status >= 500 && got.status != http.StatusServiceUnavailable {
		t.Errorf("%s: status %d, want 4xx: %s", what, got.status, clipTest(got.body))
		return p
	}
	if kind := got.header.Get("Content-Type"); kind != "application/problem+json" {
		t.Errorf("%s: status %d of content type %q", what, got.status, kind)
		return p
	}
	if err := json.Unmarshal(got.body, &p); err != nil {
		t.Errorf("%s: %v: %s", what, err, clipTest(got.body))
		return p
	}
	if p.Status != got.status || p.Title == "" || len(strings.Fields(p.Detail)) < 3 {
		t.Errorf("%s: status %d: %+v, want a title and a sentence", what, got.status, p)
	}
	for _, f := range p.Faults {
		if len(strings.Fields(f.Message)) < 2 {
			t.Errorf("%s: the fault at %q says %q", what, f.Path, f.Message)
		}
	}
	if word := internalWords.FindString(string(got.body)); word != "" {
		t.Errorf("%s: the answer says %q: %s", what, word, clipTest(got.body))
	}
	return p
}

// namesPlace reports whether a problem has a fault at a path or below it.
func namesPlace(p *api.Problem, place string) bool {
	return slices.ContainsFunc(p.Faults, func(f cluster.Fault) bool {
		rest, ok := strings.CutPrefix(f.Path, place)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// wellFormed fills the variable parts of a route's path with valid names of missing objects.
func wellFormed(rt *route.Route) (path string, values map[string]string) {
	path, values = rt.Path, map[string]string{}
	for _, name := range rt.Names() {
		value := map[string]string{
			"version": "7", "task": "default.none.1.0", "rebalancing": "7",
			"profile": "goroutine",
		}[name]
		if value == "" {
			value = "none"
		}
		values[name] = value
		path = strings.ReplaceAll(path, "{"+name+"}", value)
	}
	return path, values
}

// TestEveryRouteRefusesWithItsPlace sends bad requests to each route: invalid names, unknown or invalid parameters, and
// bodies with one field after the other of a wrong type. Each answer must name the fault's place.
func TestEveryRouteRefusesWithItsPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.tables.Snapshot().Revision()
	junk := []string{"A B", "\x00", "ünï", strings.Repeat("x", 300), "a/b", "-", "%"}
	paths, queries, fields := 0, 0, 0
	for i := range w.server.routes {
		rt := &w.server.routes[i]
		if rt.Role == route.RoleMachine || rt.Open {
			continue
		}
		good, _ := wellFormed(rt)
		// 1. Each part of the path.
		for _, name := range rt.Names() {
			if name == "profile" {
				continue
			}
			for _, value := range junk {
				path := rt.Path
				for _, other := range rt.Names() {
					fill := url.PathEscape(value)
					if other != name {
						_, values := wellFormed(rt)
						fill = values[other]
					}
					path = strings.ReplaceAll(path, "{"+other+"}", fill)
				}
				what := fmt.Sprintf("%s with %s %q", rt.Name, name, value)
				got := w.call(rt.Method, path, bodyFor(rt))
				p := refusalOf(t, what, got)
				if paths++; got.status == 400 && !namesPlace(&p, name) &&
					!strings.Contains(string(got.body), "not a valid") {
					t.Errorf("%s: nothing is said of it: %s", what, clipTest(got.body))
				}
			}
		}
		// 2. The query.
		p := refusalOf(t, rt.Name+" with ?nosuch", w.call(rt.Method, good+"?nosuch=1", bodyFor(rt)))
		if !namesPlace(&p, "?nosuch") {
			t.Errorf("%s: nothing is said of ?nosuch: %+v", rt.Name, p)
		}
		for _, q := range rt.Query {
			if q.Kind == "string" && rt.Method == http.MethodGet && rt.Stream == "" {
				continue // filters accept any name
			}
			if queries++; q.Kind == "integer" || q.Kind == "number" || q.Kind == "boolean" {
				got := w.call(rt.Method, good+"?"+q.Name+"=%21x", bodyFor(rt))
				p := refusalOf(t, rt.Name+" with ?"+q.Name, got)
				if got.status == 400 && !namesPlace(&p, "?"+q.Name) {
					t.Errorf("%s: nothing is said of ?%s: %s", rt.Name, q.Name, clipTest(got.body))
				}
			}
		}
		if rt.Body == nil {
			continue
		}
		// 3. The body, each field in turn.
		for name, field := range strictjson.ShapeOf(rt.Body).Fields {
			if field.Raw {
				continue
			}
			for _, wrong := range []string{`[[{"a": "b"}]]`, `{"no such field": {"a": 1}}`} {
				got := w.call(rt.Method, good, fmt.Sprintf("{%q: %s}", name, wrong))
				what := fmt.Sprintf("%s with %s: %s", rt.Name, name, wrong)
				p := refusalOf(t, what, got)
				if fields++; got.status == 422 && !namesPlace(&p, name) && field.Fields == nil && field.Elem == nil {
					t.Errorf("%s: nothing is said of it: %s", what, clipTest(got.body))
				}
			}
		}
	}
	if paths < 300 || queries < 50 || fields < 100 {
		t.Errorf("checked %d paths, %d parameters and %d fields: the test does not see the routes", paths, queries,
			fields)
	}
	if after := w.tables.Snapshot().Revision(); after != before {
		t.Errorf("something was written: revision %d, then %d", before, after)
	}
}

// bodyFor returns an invalid body for routes with a body, so that no request has an effect.
func bodyFor(rt *route.Route) any {
	if rt.Body == nil {
		return nil
	}
	return `{"no_such_field": 1}`
}
