package output

import (
	"testing"

	"github.com/berthd/berth/api"
)

func TestDifferenceShowsWhatDiffers(t *testing.T) {
	long := "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890"
	tests := []struct{ name, old, now, want string }{
		{"short", `"a"`, `"b"`, `"a" → "b"`},
		{"set", "", "1", "set to 1"},
		{"removed", "1", "", "1 is removed"},
		{"long", long + "x", long + "y", "…12345678901234567890x → …12345678901234567890y"},
		{"signs", `"\u0026\u003c\u003e"`, `"b"`, `"&<>" → "b"`},
	}
	for _, test := range tests {
		if got := FormatChange(api.FieldChange{Old: test.old, New: test.now}); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}
