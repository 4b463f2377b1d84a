package session

import (
	"testing"
)

func TestSlips(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"stauts", "status", 1},
		{"stauts", "start", 2},
		{"", "ps", 2},
		{"rollot", "rollout", 1},
		{"scael", "scale", 1},
		{"same", "same", 0},
	} {
		if got := slips(tt.a, tt.b); got != tt.want {
			t.Errorf("from %q to %q: %d slips, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
