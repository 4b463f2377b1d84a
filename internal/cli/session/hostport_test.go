package session

import (
	"strings"
	"testing"

	"github.com/berthd/berth/internal/serve/datadir"
)

func TestHostPort(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1":           "10.0.0.1:7071",
		"10.0.0.1:80":        "10.0.0.1:80",
		"db1.example":        "db1.example:7071",
		"[::1]":              "[::1]:7071",
		"::1":                "[::1]:7071",
		"[2001:db8::1]:7071": "[2001:db8::1]:7071",
		"":                   "want HOST or HOST:PORT",
		":7071":              "want HOST or HOST:PORT",
		"https://x":          "want HOST or HOST:PORT",
		"a/b":                "want HOST or HOST:PORT",
		"u@h":                "want HOST or HOST:PORT",
		"a:b:c":              "want HOST or HOST:PORT",
		"h:0":                "want a port between 1 and 65535",
		"h:65536":            "want a port between 1 and 65535",
		"h:https":            "want a port between 1 and 65535",
		"0.0.0.0":            "not the address of all interfaces",
		"[::]:7071":          "not the address of all interfaces",
	} {
		got, err := ParseHostPort(text, datadir.PortAPI)
		if err != nil {
			got = err.Error()
		}
		if got != want && (err == nil || !strings.Contains(got, want)) {
			t.Errorf("hostPort(%q): got %s, want %s", text, got, want)
		}
	}
}
