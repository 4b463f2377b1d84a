package main

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/schema"
)

// emptyWords say nothing of what a field means.
var emptyWords = strings.Fields("a an the of this that its it is are in on at for to by as with and or field value values " +
	"object objects name names type number text list which")

// TestFieldsAreDescribed checks that each field of a manifest has a description that says more than the names of the
// field and its type, and more than its default.
func TestFieldsAreDescribed(t *testing.T) {
	comments, err := readComments(filepath.Join(root, "internal/cluster"))
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	s := manifestSchema(comments)
	for _, typ := range s.Defs.Names {
		object := s.Defs.Get(typ)
		if object.Properties == nil {
			continue
		}
		for _, name := range object.Properties.Names {
			checked++
			field := object.Properties.Get(name)
			if said := told(typ, name, field); len(said) < 2 {
				t.Errorf("%s.%s: the description %q says no more than %q: write what the field means in its comment",
					typ, name, field.Description, said)
			}
		}
	}
	if checked < 300 {
		t.Errorf("%d fields were checked, want all of them", checked)
	}
}

// defaultSentence matches a sentence about the default, which the schema has anyway.
var defaultSentence = regexp.MustCompile(`\bDefaults?\b[^.]*(\.|$)`)

// told returns the words of a description that say more than the names of a field and its type.
func told(typ, name string, field *schema.Node) (said []string) {
	known := slices.Concat(emptyWords, words(typ), words(name), words(field.Ref))
	for _, w := range words(defaultSentence.ReplaceAllString(field.Description, "")) {
		if !slices.Contains(known, w) {
			said = append(said, w)
		}
	}
	return said
}

var namePart = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+|[0-9]+`)

// words returns the words of a text or of a name such as MaxDelay or max_delay, in lower case.
func words(text string) []string {
	all := namePart.FindAllString(text, -1)
	for i := range all {
		all[i] = strings.ToLower(all[i])
	}
	return all
}

// TestTold checks that descriptions without a meaning are found.
func TestTold(t *testing.T) {
	for _, test := range []struct {
		typ, name, description string
		says                   int
	}{
		{"Mount", "path", "The path.", 0},
		{"Mount", "path", "", 0},
		{"Restart", "max_delay", "Default 1 m.", 0},
		{"Restart", "max_delay", "The longest delay.", 1},
		{"Constraint", "value", "The value.", 0},
		{"Job", "labels", "Labels of the object.", 0},
		{"Restart", "max_delay", "MaxDelay is the longest wait before a restart. Default 1 m.", 3},
	} {
		got := told(test.typ, test.name, &schema.Node{Description: test.description})
		if len(got) != test.says {
			t.Errorf("%s.%s: %q says %q, want %d words", test.typ, test.name, test.description, got, test.says)
		}
	}
}
