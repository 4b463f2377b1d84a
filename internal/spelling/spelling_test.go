package spelling

import (
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
		if got := Distance(test.a, test.b); got != test.want {
			t.Errorf("%q to %q: got %d, want %d", test.a, test.b, got, test.want)
		}
		if got := Distance(test.b, test.a); got != test.want {
			t.Errorf("%q to %q: got %d, want %d", test.b, test.a, got, test.want)
		}
	}
}
