package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/store"
)

// TestLayoutHasEachKind: the page of the layout has a row for each kind of records, with the definition of its schema.
func TestLayoutHasEachKind(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/layout.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `([a-z]+(?:/<[^`>]+>)+)` \\| [^|]+ \\| ([^|]*)\\| [^|]+ \\| [^|]+ \\|$")
	got := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		got[m[1]] = strings.TrimSpace(m[2])
	}
	want := map[string]string{}
	for _, k := range store.Kinds() {
		want[k.Key] = ""
		if k.Record != nil {
			name := k.Record.Name()
			want[k.Key] = "[" + name + "](records.schema.json#/$defs/" + name + ")"
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-kinds +page):\n%s", diff)
	}
}
