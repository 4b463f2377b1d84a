package volumes

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A path is lent if it is below a lent path both before and after its links are resolved.
func TestLentPaths(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(
		os.MkdirAll(at("lent/inner"), 0o700), os.MkdirAll(at("lentil"), 0o700), os.MkdirAll(at("other"), 0o700),
		os.WriteFile(at("lent/file"), nil, 0o600),
		os.Symlink(at("other"), at("lent/out")), os.Symlink("../other", at("lent/out2")),
		os.Symlink("inner", at("lent/in")), os.Symlink(at("lent"), at("door")),
	); err != nil {
		t.Fatal(err)
	}
	lent := &Folders{config: Config{Paths: []string{at("lent")}}}
	door := &Folders{config: Config{Paths: []string{at("door")}}}
	for _, c := range []struct {
		folders    *Folders
		path, want string
		fault      string
	}{
		{lent, "lent", "lent", ""},
		{lent, "lent/inner", "lent/inner", ""},
		{lent, "lent/in", "lent/inner", ""},
		{lent, "lent/out", "", "which the node does not share with tasks"},
		{lent, "lent/out2", "", "which the node does not share with tasks"},
		{lent, "lentil", "", "does not share"},
		{lent, "other", "", "does not share"},
		{lent, "door/inner", "", "does not share"},
		{lent, "lent/none", "", "has no directory"},
		{lent, "lent/file", "", "is not a directory"},
		{door, "door/inner", "lent/inner", ""},
		{&Folders{config: Config{Paths: []string{}}}, "lent", "", "does not share"},
		{&Folders{}, "lent", "", "does not share"},
		{&Folders{config: Config{Paths: []string{"/"}}}, "lent/out", "other", ""},
	} {
		got, err := c.folders.lentPath(at(c.path))
		switch {
		case c.fault == "" && (err != nil || got != at(c.want)):
			t.Errorf("%s with %q: got %q, %v, want %q", c.path, c.folders.config.Paths, got, err, at(c.want))
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)):
			t.Errorf("%s with %q: got %q, %v, want an error with %q", c.path, c.folders.config.Paths, got, err, c.fault)
		}
	}
}
