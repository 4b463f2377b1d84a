package runspec

import (
	"strings"
	"testing"
)

func TestOverride(t *testing.T) {
	got := strings.Join(Override([]string{"A=1", "PATH=/bin"}, []string{"B=2", "A=3"}), " ")
	if want := "A=3 PATH=/bin B=2"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
