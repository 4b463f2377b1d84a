package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestRun needs a server with a node that runs plain programs; test/e2e starts them.
func TestRun(t *testing.T) {
	addr := os.Getenv("BERTH_ADDR")
	if addr == "" {
		t.Skip("BERTH_ADDR names no server")
	}
	var out strings.Builder
	err := run(t.Context(), []string{
		"-addr", addr, "-name", "outside", "-tasks", "2", "--", "/bin/sh", "-c",
		`echo "task $BERTH_INDEX of $BERTH_COUNT"`,
	}, &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	lines := strings.Split(out.String(), "\n")
	for _, want := range []string{
		"default.outside.1.main.0: succeeded", "default.outside.1.main.1: succeeded",
		"default.outside.1.main.0 | task 0 of 2", "default.outside.1.main.1 | task 1 of 2",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("the output lacks %q:\n%s", want, out.String())
		}
	}
}

// TestRefused expects the error of a request that the server refuses.
func TestRefused(t *testing.T) {
	addr := os.Getenv("BERTH_ADDR")
	if addr == "" {
		t.Skip("BERTH_ADDR names no server")
	}
	err := run(t.Context(), []string{"-addr", addr, "-name", "Not a name", "--", "/bin/true"}, &strings.Builder{})
	if err == nil || !strings.Contains(err.Error(), "name") {
		t.Errorf("got %v, want a fault of the name", err)
	}
}
