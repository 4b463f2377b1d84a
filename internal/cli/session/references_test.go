package session

import (
	"io"
	"testing"
)

// TestShorten omits the cluster of the user's shell, and only in references to objects and tasks.
func TestShorten(t *testing.T) {
	for _, c := range []struct{ name, home, text, want string }{
		{"an object", "lab", "lab/service/web", "service/web"},
		{
			"in a sentence", "lab", "waits for lab/job/a (failed: berth retry lab/job/a).",
			"waits for job/a (failed: berth retry job/a).",
		},
		{"at the end of a sentence", "lab", "see lab/cron/a.", "see cron/a."},
		{"in quotes", "lab", `"lab/endpoint/a" and 'lab.web.1.0'`, `"endpoint/a" and 'web.1.0'`},
		{"another cluster", "lab", "default/service/web, default.web.1.0", "default/service/web, default.web.1.0"},
		{"a cluster that begins alike", "lab", "lab-2/service/web lab2.web.1.0", "lab-2/service/web lab2.web.1.0"},
		{"no variable", "", "default/service/web", "service/web"},
		{"tasks", "lab", "lab.web.1.0: lab.a.1.fit.12; task/lab.web.1.0.", "web.1.0: a.1.fit.12; task/web.1.0."},
		{
			"a path", "lab", "/var/lab/service/web, x/lab.web.1.0, lab/service/web/log",
			"/var/lab/service/web, x/lab.web.1.0, lab/service/web/log",
		},
		{"an image", "lab", "lab/web:1 reg.example/lab/service/web", "lab/web:1 reg.example/lab/service/web"},
		{"no owner", "lab", "lab/node/web", "lab/node/web"},
		{"a name of a service", "lab", "web.lab.berth", "web.lab.berth"},
	} {
		s := New(nil, io.Discard, io.Discard)
		dir := t.TempDir()
		s.Env = func(name string) string {
			return map[string]string{"BERTH_CLUSTER": c.home, "HOME": dir, "XDG_CONFIG_HOME": dir}[name]
		}
		if got := s.Shorten(c.text); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
		s.Cluster = "other" // a flag does not count: what is printed may be pasted without it
		if got := s.Shorten(c.text); got != c.want {
			t.Errorf("%s, with --cluster: got %q, want %q", c.name, got, c.want)
		}
		s.AllClusters = true
		if got := s.Shorten(c.text); got != c.text {
			t.Errorf("%s, with --all-clusters: got %q, want %q", c.name, got, c.text)
		}
	}
}
