package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/test/harness"
)

// TestClientOfAnotherModule builds a module of its own over the public packages, and runs its tests with a real server
// and agent.
func TestClientOfAnotherModule(t *testing.T) {
	t.Parallel()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	s := harness.New(t, harness.Process)
	s.Server()
	s.Agent()
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = filepath.Join(root, "examples", "client")
		cmd.Env = append(os.Environ(), "BERTH_ADDR=unix://"+s.Socket)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("go %v in %s: %v\n%s", args, cmd.Dir, err, out)
		}
		return string(out)
	}
	run("vet", "./...")
	out := run("test", "-v", "-count=1", "./...")
	for _, test := range []string{"TestRun", "TestRefused"} { // they are skipped where there is no server
		if !strings.Contains(out, "--- PASS: "+test+" ") {
			t.Errorf("%s did not pass:\n%s", test, out)
		}
	}
}
