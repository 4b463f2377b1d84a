package spelling

import (
	"slices"
	"strings"
	"testing"
)

func TestDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"count", "count", 0},
		{"", "abc", 3},
		{"cuont", "count", 1},
		{"counts", "count", 1},
		{"coont", "count", 1},
		{"ca", "abc", 3},
		{strings.Repeat("a", 65), "a", 64},
	} {
		if got := distance(test.a, test.b); got != test.want {
			t.Errorf("%q to %q: got %d, want %d", test.a, test.b, got, test.want)
		}
		if got := distance(test.b, test.a); got != test.want {
			t.Errorf("%q to %q: got %d, want %d", test.b, test.a, got, test.want)
		}
	}
}

func TestNearest(t *testing.T) {
	for _, test := range []struct {
		word, known, want string
	}{
		{"cuont", "image count counts", "count"},
		{"counts", "count", "count"},
		{"onDisconnect", "disconnect on_disconnect", "on_disconnect"},
		{"dry_run", "dry-run", "dry-run"},
		{"wbe", "web", "web"},
		{"n9", "n2 n1", "n1"},
		{"n", "n1", "n1"},
		{"set", "get", "get"},
		{"ui", "cp", ""},
		{"x", "y", ""},
		{"rub", "image", ""},
		{"", "a ab", ""},
		{"web=3", "web", ""},
		{"web.9.9", "web.1.0", "web.1.0"},
		{"tcsh", "bash zsh fish", ""},
		{"count", "", ""},
	} {
		if got := Nearest(test.word, slices.Values(strings.Fields(test.known))); got != test.want {
			t.Errorf("%q among %q: got %q, want %q", test.word, test.known, got, test.want)
		}
	}
}
