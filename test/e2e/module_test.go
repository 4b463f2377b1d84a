package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/berthd/berth/test/harness"
)

// TestClientOfAnotherModule builds a module of its own over the public packages, and runs its tests with a real server and agent.
func TestClientOfAnotherModule(t *testing.T) {
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	s := harness.New(t, harness.Process)
	s.Server()
	s.Agent()
	for _, args := range [][]string{{"vet", "./..."}, {"test", "-count=1", "./..."}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = filepath.Join(root, "examples", "client")
		cmd.Env = append(os.Environ(), "BERTH_ADDR=unix://"+s.Socket)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("go %v in %s: %v\n%s", args, cmd.Dir, err, out)
		}
	}
}
