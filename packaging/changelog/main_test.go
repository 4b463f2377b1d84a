package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tree returns a folder with a changelog and fragments.
func tree(t *testing.T, changelog string, fragments map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{"CHANGELOG.md": changelog, "changelog/unreleased/README.md": "# Rules\n"}
	for name, text := range fragments {
		files["changelog/unreleased/"+name] = text
	}
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

const intro = "# Changelog\n\nNewest first.\n"

func TestReleaseMovesFragments(t *testing.T) {
	dir := tree(t, intro+"\n## 0.1.0 (2026-01-02)\n\n### New\n\n#### First\n\nText.\n", map[string]string{
		"b.md": "# Fixed: a fault\n\nIt was wrong. See [it](../../docs/it.md).\n\nIt is right.\n",
		"a.md": "# Things: a second feature\n\nText of a.\n",
		"c.md": "# A feature\n\nText of c.\n",
		"d.md": "# Security: Nobody gets in\n\nText of d.\n",
	})
	if err := run([]string{"-tree", dir, "-version", "0.2.0", "-date", "2026-02-03"}, io.Discard); err != nil {
		t.Fatal(err)
	}
	want := intro + `
## 0.2.0 (2026-02-03)

### Security

#### Nobody gets in

Text of d.

### New

#### Things: a second feature

Text of a.

#### A feature

Text of c.

### Fixed

#### A fault

It was wrong. See [it](docs/it.md).

It is right.

## 0.1.0 (2026-01-02)

### New

#### First

Text.
`
	if diff := cmp.Diff(want, read(t, filepath.Join(dir, "CHANGELOG.md"))); diff != "" {
		t.Errorf("changelog (-want +got):\n%s", diff)
	}
	if got := read(t, filepath.Join(dir, "VERSION")); got != "0.2.0\n" {
		t.Errorf("VERSION is %q", got)
	}
	left, err := filepath.Glob(filepath.Join(dir, "changelog/unreleased/*"))
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != "README.md" {
		t.Errorf("left in the folder: %q, %v; want only its README.md", left, err)
	}
}

func TestRefusals(t *testing.T) {
	good := map[string]string{"a.md": "# A feature\n\nText.\n"}
	tests := []struct {
		name, changelog, version string
		fragments                map[string]string
		want                     string
	}{
		{"version", intro, "v1", good, "want MAJOR.MINOR.PATCH"},
		{"nothing to release", intro, "0.1.0", nil, "no fragments"},
		{"released already", intro + "\n## 0.1.0 (2026-01-02)\n", "0.1.0", good, "has a chapter for 0.1.0"},
		{"no heading", intro, "0.1.0", map[string]string{"a.md": "Text.\n"}, "a.md: the first line is no heading"},
		{"no text", intro, "0.1.0", map[string]string{"a.md": "# A feature\n"}, "a.md: no paragraph"},
		{"two headings", intro, "0.1.0", map[string]string{"a.md": "# A\n\nText.\n\n# B\n\nText.\n"}, "second heading"},
		{"unknown kind", intro, "0.1.0", map[string]string{"a.md": "# Fixes: it\n\nText.\n"}, `kind "Fixes"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := tree(t, tt.changelog, tt.fragments)
			err := run([]string{"-tree", dir, "-version", tt.version}, io.Discard)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
			if got := read(t, filepath.Join(dir, "CHANGELOG.md")); got != tt.changelog {
				t.Errorf("a refused release changed the changelog to\n%s", got)
			}
			for name := range tt.fragments {
				read(t, filepath.Join(dir, "changelog/unreleased", name))
			}
		})
	}
}

// TestFragmentsOfThisTree checks each fragment when it is written.
func TestFragmentsOfThisTree(t *testing.T) {
	if _, err := readFragments("../../changelog/unreleased"); err != nil {
		t.Error(err)
	}
}
