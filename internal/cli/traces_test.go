package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/cli/session"
)

// TestTraceEndpointIsChecked passes a wrong address to every command that sends traces.
func TestTraceEndpointIsChecked(t *testing.T) {
	a := session.New(nil, io.Discard, io.Discard)
	a.Env = func(string) string { return "" }
	for _, command := range []string{"dev", "server", "agent"} {
		root := newRootCommand(a)
		root.SetArgs([]string{command, "--data-dir", t.TempDir(), "--trace-endpoint", "nowhere"})
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "--trace-endpoint") {
			t.Errorf("berth %s: got error %v, want that the address of the traces is wrong", command, err)
		}
	}
}
