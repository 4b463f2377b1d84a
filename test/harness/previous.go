package harness

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Previous builds the berth of an earlier commit from the folder that scripts/previous wrote, and returns the binary.
// Its version contains the commit.
func Previous(tb testing.TB, kept string) string {
	tb.Helper()
	commit, err := os.ReadFile(filepath.Join(kept, "previous"))
	if err != nil {
		tb.Fatal(err)
	}
	archive, err := filepath.Abs(filepath.Join(kept, "previous.tar.gz"))
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	binary := filepath.Join(dir, "berth")
	// With the same paths and flags as ever, so that what was built once is in the build cache.
	const version = "github.com/berthd/berth/internal/version."
	stamp := "-X " + version + "version=0.0.0-previous -X " + version + "commit=" + strings.TrimSpace(string(commit))
	for _, words := range [][]string{
		{"tar", "-xzf", archive},
		{"go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w " + stamp, "-o", binary, "./cmd/berth"},
	} {
		cmd := exec.CommandContext(tb.Context(), words[0], words[1:]...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			tb.Fatalf("build the berth of %s: %v\n%s", commit, err, out)
		}
	}
	return binary
}
