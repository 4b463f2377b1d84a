package task

import (
	"strings"
	"testing"
)

func FuzzExpand(f *testing.F) {
	for _, s := range []string{"", "$", "$$", "$(", "$(A)", "$$(A)", "x$(A)$(B)y", "$(A", "$()", "$($(A))"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := expand(s, map[string]string{"A": "1"})
		if len(got) > len(s) {
			t.Errorf("%q grew to %q", s, got)
		}
		if !strings.Contains(s, "$") && got != s {
			t.Errorf("%q became %q", s, got)
		}
	})
}
