package server

import (
	"testing"
)

func TestEverywhere(t *testing.T) {
	for address, want := range map[string]string{
		"https://10.0.0.1:7071": "0.0.0.0:7071", "https://db1.example:80": "0.0.0.0:80",
		"https://[2001:db8::1]:7071": "[::]:7071",
	} {
		if got := onAllInterfaces(address); got != want {
			t.Errorf("everywhere(%q): got %q, want %q", address, got, want)
		}
	}
}
