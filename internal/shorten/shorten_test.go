package shorten

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestShorten(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text          string
		most          int
		start, end, q string
	}{
		{"harbour", 7, "harbour", "harbour", "harbour"},
		{"harbour", 4, "harb", "bour", "harb…"},
		{"größer", 3, "gr", "er", "gr…"},
		{"größer", 4, "grö", "ßer", "grö…"},
		{"日本", 2, "", "", "…"},
		{"日本", 0, "", "", "…"},
		{"", 0, "", "", ""},
		{"\x80\x80\x80\x80\x80\x80", 5, "\x80\x80\x80\x80\x80", "\x80\x80\x80\x80\x80", "\x80\x80\x80\x80\x80…"},
	} {
		start, end, marked := Start(c.text, c.most), End(c.text, c.most), Marked(c.text, c.most)
		if start != c.start || end != c.end || marked != c.q {
			t.Errorf("%q to %d bytes: got %q, %q and %q, want %q, %q and %q",
				c.text, c.most, start, end, marked, c.start, c.end, c.q)
		}
	}
}

// A shortened text is a part of the text within the limit, valid if the text was, and shorter than the limit by less
// than a character.
func TestRandom(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string {
			return string(b)
		})).Draw(t, "text")
		most := rapid.IntRange(0, len(text)+2).Draw(t, "most")
		start, end := Start(text, most), End(text, most)
		if !strings.HasPrefix(text, start) || !strings.HasSuffix(text, end) {
			t.Fatalf("%q and %q are no parts of %q", start, end, text)
		}
		for _, part := range []string{start, end} {
			if least := min(len(text), most); len(part) > least || len(part) <= least-utf8.UTFMax {
				t.Fatalf("%q of %q has %d bytes, want at most %d, and at least one within a character of them",
					part, text, len(part), least)
			}
			if utf8.ValidString(text) && !utf8.ValidString(part) {
				t.Fatalf("%q of %q is not valid", part, text)
			}
		}
	})
}
