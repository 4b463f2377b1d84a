package artifact_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/agent/artifact"
	"github.com/berthd/berth/internal/cluster"
)

// lentFolder returns a folder with a file, and beside it a secret that is not lent.
func lentFolder(t *testing.T, content []byte) (lent, secret string) {
	t.Helper()
	dir := t.TempDir()
	lent, secret = filepath.Join(dir, "lent"), filepath.Join(dir, "secret")
	if err := os.Mkdir(lent, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(lent, "tool"), secret} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return lent, secret
}

// A file of the node is kept as a copy, which stays as it is when the file changes or goes.
func TestFileOfTheNode(t *testing.T) {
	t.Parallel()
	content := []byte("a tool\n")
	lent, _ := lentFolder(t, content)
	s := newStore(t, func(c *artifact.Config) { c.Paths = []string{lent} })
	a := &cluster.Artifact{Source: "file://" + filepath.Join(lent, "tool"), Checksum: sha256Of(content), Mode: "0755"}
	path, err := s.Get(t.Context(), a, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(lent, "tool")); err != nil {
		t.Fatal(err)
	}
	again, err := s.Get(t.Context(), a, nil)
	if err != nil || again != path {
		t.Errorf("second use: got %q, %v, want %q", again, err, path)
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != string(content) {
		t.Errorf("got %q, %v, want %q", got, err, content)
	}
}

// The agent reads no file that the node does not share, whatever the path looks like. It says what is wrong with other
// files.
func TestFilesThatAreRefused(t *testing.T) {
	t.Parallel()
	content := []byte("a tool\n")
	lent, secret := lentFolder(t, content)
	at := func(name string) string { return filepath.Join(lent, name) }
	if err := os.Symlink(secret, at("link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(secret), at("up")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(at("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		path     string
		lent     []string
		checksum string
		word     string
	}{
		"nothing is lent":         {path: at("tool"), word: "does not share"},
		"beside the folder":       {path: secret, lent: []string{lent}, word: "does not share"},
		"a link out of it":        {path: at("link"), lent: []string{lent}, word: "is a link to " + secret},
		"a folder that leads out": {path: at("up/secret"), lent: []string{lent}, word: "is a link to " + secret},
		"not there":               {path: at("none"), lent: []string{lent}, word: "the node has no file " + at("none")},
		"a folder":                {path: lent, lent: []string{lent}, word: "not a regular file"},
		"a pipe":                  {path: at("pipe"), lent: []string{lent}, word: "not a regular file"},
		"a wrong checksum": {
			path: at("tool"), lent: []string{lent}, checksum: "sha256:" + strings.Repeat("ab", 32),
			word: "its checksum is " + sha256Of(content),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, func(c *artifact.Config) { c.Paths = tc.lent })
			a := &cluster.Artifact{Source: "file://" + tc.path, Checksum: sha256Of(content), Mode: "0644"}
			if tc.checksum != "" {
				a.Checksum = tc.checksum
			}
			if path, err := s.Get(t.Context(), a, nil); err == nil || !strings.Contains(err.Error(), tc.word) {
				t.Errorf("got %q, %v, want an error with %q", path, err, tc.word)
			}
		})
	}
}
