package session

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSplitList(t *testing.T) {
	got := SplitList([]string{"a, b", "", "c", ","})
	if diff := cmp.Diff([]string{"a", "b", "c"}, got); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
}
