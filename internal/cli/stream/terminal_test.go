package stream

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

func TestInTask(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{ // order-free: independent cases
		"web.1.0:/etc/hosts": {"/etc/hosts", "web.1.0"}, "web.1.0:a:b": {"a:b", "web.1.0"}, "web.1.0:": {"", "web.1.0"},
		"/a:b": {"/a:b", ""}, "./a:b": {"./a:b", ""}, "dir/a:b": {"dir/a:b", ""}, "plain": {"plain", ""},
		":x": {":x", ""}, "..:x": {"..:x", ""},
	} {
		path, task := splitTaskPath(text)
		if got := [2]string{path, task}; got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

func TestMappings(t *testing.T) {
	t.Parallel()
	f := &forwarding{task: "default.web.1.0"}
	there := map[string]int{"http": 30001}
	got, err := f.parseMappings(&cobra.Command{}, []string{"http", "6060", "8080:http", "0:6060", ":http"}, there)
	want := []portMapping{{30001, "http"}, {6060, "6060"}, {8080, "http"}, {0, "6060"}, {0, "http"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(portMapping{})); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	for arg, word := range map[string]string{ // order-free: independent cases
		"htp": "task default.web.1.0, which has http", "70000": "not the number of a port", "x:http": `"x" is not the number`,
		"-1:http": `"-1" is not`, "8080:": "neither",
	} {
		if _, err := f.parseMappings(&cobra.Command{}, []string{arg}, there); err == nil ||
			!strings.Contains(err.Error(), word) || !strings.Contains(err.Error(), "[LOCAL:]PORT") {
			t.Errorf("%s: got %v, want %q", arg, err, word)
		}
	}
	if _, err := f.parseMappings(&cobra.Command{}, []string{"http"}, nil); err == nil ||
		!strings.Contains(err.Error(), "no named ports") {
		t.Errorf("a task without ports: %v", err)
	}
}
