package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/testkit"
)

// Previous builds the berth of the commit that a file names, from the history of the checkout, and returns the binary.
// Its version contains the commit, which has to be an ancestor of HEAD. Without the history the test is skipped.
func Previous(tb testing.TB, file string) string {
	tb.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	commit := strings.TrimSpace(string(text))
	root, err := Root()
	if err != nil {
		tb.Fatal(err)
	}
	if err := needCommit(tb, root, commit); err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	sources, binary := filepath.Join(dir, "sources.tar"), filepath.Join(dir, "berth")
	const version = "github.com/berthd/berth/internal/version."
	stamp := "-X " + version + "version=0.0.0-previous -X " + version + "commit=" + commit
	// With the flags of every build, the build cache serves the packages that have not changed since.
	const build = `GOFLAGS=$("$0/scripts/flags") exec go build -ldflags="-s -w $1" -o "$2" ./cmd/berth`
	for _, step := range []struct {
		dir   string
		words []string
	}{
		{root, []string{
			"git", "archive", "--output=" + sources, commit, "go.mod", "go.sum", "VERSION", "cmd", "internal", "api",
		}},
		{dir, []string{"tar", "-xf", sources}},
		{dir, []string{"sh", "-c", build, root, stamp, binary}},
	} {
		if err := run(tb, step.dir, step.words...); err != nil {
			tb.Fatalf("build the berth of %s: %v", commit, err)
		}
	}
	return binary
}

// needCommit skips the test if the checkout lacks the history up to a commit. It returns an error if the commit is no
// ancestor of HEAD.
func needCommit(tb testing.TB, root, commit string) error {
	tb.Helper()
	testkit.NeedCommand(tb, "git", "tar")
	if err := run(tb, root, "git", "rev-parse", "--verify", "--quiet", commit+"^{commit}"); err != nil {
		testkit.Skip(tb, fmt.Sprintf("the checkout has no commit %s, from which the previous build is made; "+
			"a shallow clone gets it by `git fetch --unshallow` (%v)", commit, err))
	}
	if err := run(tb, root, "git", "merge-base", "--is-ancestor", commit, "HEAD"); err != nil {
		return fmt.Errorf("the previous build, commit %s, is no ancestor of HEAD: %w", commit, err)
	}
	return nil
}

// run runs a command in a folder. An error holds the output.
func run(tb testing.TB, dir string, words ...string) error {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), words[0], words[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, out)
	}
	return nil
}
