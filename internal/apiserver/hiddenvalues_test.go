package apiserver

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// TestValuesAreNotForViewers checks that no answer to a viewer contains a value of an environment or the content of a
// file. Names are shown, and a submitter sees everything.
func TestValuesAreNotForViewers(t *testing.T) {
	s := newSecure(t)
	with := func(version int, value, content string) map[string]any {
		d := definition("web", version)
		c := d["containers"].([]any)[0].(map[string]any)
		c["env"] = map[string]any{"PASSWORD": value}
		c["files"] = []any{map[string]any{"path": "/etc/key", "content": content}}
		return d
	}
	s.want(201, "PUT", "/v1/definitions/web/1", with(1, "first-secret", "first-file"))
	s.want(201, "PUT", "/v1/definitions/web/2", with(2, "second-secret", "second-file"))
	s.want(201, "PUT", "/v1/clusters/default/services/web", service("web", "web@1", 1))
	s.want(200, "PUT", "/v1/clusters/default/services/web", service("web", "web@2", 1))
	viewer, submitter := s.access(cluster.RoleViewer), s.access(cluster.RoleSubmitter)
	for _, path := range []string{
		"/v1/definitions", "/v1/definitions/web", "/v1/definitions/web/2", "/v1/definitions/web/2/diff",
		"/v1/clusters/default/services/web/rollout/history", "/v1/clusters/default/services/web", "/v1/events",
		"/v1/tasks",
	} {
		hidden, shown := s.ask(s.plain, viewer, "GET", path, nil), s.ask(s.plain, submitter, "GET", path, nil)
		if hidden.status != 200 || shown.status != 200 {
			t.Fatalf("%s: status %d and %d: %s", path, hidden.status, shown.status, hidden.body)
		}
		for _, secret := range []string{"first-secret", "second-secret", "first-file", "second-file"} {
			if bytes.Contains(hidden.body, []byte(secret)) {
				t.Errorf("%s shows %s to a viewer: %s", path, secret, hidden.body)
			}
		}
		if strings.Contains(path, "definitions") &&
			(!bytes.Contains(shown.body, []byte("second-secret")) || !bytes.Contains(hidden.body, []byte("PASSWORD"))) {
			t.Errorf("%s: to a submitter %s, to a viewer %s", path, shown.body, hidden.body)
		}
	}
	// A request for the values is refused with a reason.
	for _, path := range []string{"/v1/definitions?reveal", "/v1/definitions/web/2?reveal=true"} {
		if got := s.ask(s.plain, viewer, "GET", path, nil); got.status != 403 ||
			!strings.Contains(got.problem().Detail, "need the role submitter") {
			t.Errorf("%s as a viewer: status %d: %s", path, got.status, got.body)
		}
		if got := s.ask(s.plain, submitter, "GET", path, nil); got.status != 200 ||
			!bytes.Contains(got.body, []byte("second-secret")) {
			t.Errorf("%s as a submitter: status %d: %s", path, got.status, got.body)
		}
	}
	// The tables' own values have not changed.
	if got := s.ask(s.plain, submitter, "GET", "/v1/definitions/web/1", nil); !bytes.Contains(got.body,
		[]byte("first-file")) {
		t.Errorf("afterwards: %s", got.body)
	}
}

func TestDiffOfVersions(t *testing.T) {
	w := newWorld(t)
	for version, image := range map[int]string{1: "web:1", 2: "web:2", 4: "web:2"} {
		d := definition("web", version)
		d["containers"].([]any)[0].(map[string]any)["image"] = image
		w.want(201, "PUT", "/v1/definitions/web/"+string(rune('0'+version)), d)
	}
	image := []api.FieldChange{{Path: "containers[0].image", Old: `"web:1"`, New: `"web:2"`}}
	for _, test := range []struct {
		query, from string
		fields      []api.FieldChange
		note        string
	}{
		{"2/diff", "web@1", image, ""},
		{"2/diff?from=1", "web@1", image, ""},
		{"4/diff?from=1", "web@1", image, ""},
		{"4/diff", "web@2", nil, "web@2 and web@4 have the same content"},
		{
			"1/diff?from=2", "web@2",
			[]api.FieldChange{{Path: "containers[0].image", Old: `"web:2"`, New: `"web:1"`}},
			"",
		},
		{"1/diff", "@0", nil, "web@1 is the first version that is kept"},
		{"1/diff?from=1", "web@1", nil, "it is compared with itself"},
	} {
		v := read[api.DefinitionDiff](t, w.want(200, "GET", "/v1/definitions/web/"+test.query, nil))
		if d := cmp.Diff(test.fields, v.Fields); d != "" || v.Note != test.note || v.From.String() != test.from &&
			v.From.Name != "" {
			t.Errorf("%s: %+v (-want +got):\n%s", test.query, v, d)
		}
	}
	w.want(404, "GET", "/v1/definitions/web/3/diff", nil)
	w.want(404, "GET", "/v1/definitions/web/2/diff?from=3", nil)
	w.want(400, "GET", "/v1/definitions/web/2/diff?from=x", nil)

	next := definition("web", 9)
	next["containers"].([]any)[0].(map[string]any)["image"] = "web:9"
	v := read[api.DefinitionDiff](t, w.want(200, "POST", "/v1/definitions/web/2/diff", next))
	if d := cmp.Diff([]api.FieldChange{{Path: "containers[0].image", Old: `"web:2"`, New: `"web:9"`}},
		v.Fields); d != "" || v.To.String() != "web@9" {
		t.Errorf("%+v (-want +got):\n%s", v, d)
	}
	w.want(404, "GET", "/v1/definitions/web/9", nil)
	w.want(404, "POST", "/v1/definitions/web/3/diff", next)
	w.want(422, "POST", "/v1/definitions/web/2/diff", map[string]any{"name": "web", "version": 9})
}
