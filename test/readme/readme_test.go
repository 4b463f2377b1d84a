// Package readme_test runs every command of the README as a newcomer would: in a fresh copy of the tree, one after
// the other, in one shell.
package readme_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// demoVariable makes the test run `make demo-check` in place of the README's `make demo`, which serves until Ctrl-C.
// Without it the test skips that block, since CI runs demo-check separately.
const demoVariable = "BERTH_README_DEMO"

// limit ends a run that hangs; most of a run is the compiler's. It is longer on a slow machine.
const limit = 20 * time.Minute

// block is a fenced block of the README that is a command or a file.
type block struct {
	line int
	info string // "sh", or "yaml file=greeter.yaml"
	text string
}

var fence = regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```$")

// blocks returns all fenced blocks that have an info string.
func blocks(readme string) []block {
	var all []block
	for _, m := range fence.FindAllStringSubmatchIndex(readme, -1) {
		if info := readme[m[2]:m[3]]; info != "" {
			all = append(all, block{1 + strings.Count(readme[:m[0]], "\n"), info, readme[m[4]:m[5]]})
		}
	}
	return all
}

func TestBlocks(t *testing.T) {
	got := blocks("text\n```\npicture\n```\n```sh\nmake\n```\nand\n```yaml file=a.yaml\na: 1\nb: 2\n```\n")
	want := []block{{5, "sh", "make\n"}, {9, "yaml file=a.yaml", "a: 1\nb: 2\n"}}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestReadme(t *testing.T) {
	t.Parallel()
	testkit.NeedCommand(t, "git", "make", "bash")
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if l, err := net.Listen("tcp", "127.0.0.1:7373"); err != nil {
		t.Fatalf("the README's commands serve at the default address, which is taken: %v", err)
	} else {
		_ = l.Close() // it was only tried
	}
	tree, data := copyTree(t, root), filepath.Join(t.TempDir(), "data")
	script, commands := scriptOf(t, blocks(string(readme)), data)
	if commands < 10 {
		t.Fatalf("the README has %d commands, which cannot be all of them", commands)
	}
	t.Cleanup(func() { sweep(data) })
	out, err := run(t, tree, script)
	t.Logf("%d commands:\n%s", commands, out)
	if err != nil {
		t.Errorf("a command of the README failed: %v", err)
	}
	testkit.Eventually(t, 20*time.Second, func() error { return left(data) })
}

// copyTree copies what git tracks, or would, into a folder of its own.
func copyTree(t *testing.T, root string) string {
	t.Helper()
	tree := filepath.Join(t.TempDir(), "berth")
	cmd := exec.CommandContext(t.Context(), "git", "-c", "safe.directory="+root, "ls-files", "-z", "--cached",
		"--others", "--exclude-standard")
	cmd.Dir = root
	list, err := cmd.Output()
	if err != nil {
		t.Fatalf("list the files of the tree: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		info, err := os.Stat(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted and not yet committed
		}
		body, err2 := os.ReadFile(filepath.Join(root, name))
		if err != nil || err2 != nil {
			t.Fatalf("copy %s: %v, %v", name, err, err2)
		}
		to := filepath.Join(tree, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, body, info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
	return tree
}

// scriptOf joins the blocks to a script and counts the commands.
func scriptOf(t *testing.T, all []block, data string) (script string, commands int) {
	t.Helper()
	var b strings.Builder
	for _, block := range all {
		fmt.Fprintf(&b, "echo '=== README.md:%d'\n", block.line)
		kind, name, isFile := strings.Cut(block.info, " file=")
		switch {
		case isFile:
			fmt.Fprintf(&b, "cat >%s <<'END OF FILE'\n%sEND OF FILE\n", name, block.text)
			continue
		case kind != "sh":
			t.Errorf("README.md:%d: a block of %q, which is neither a command nor a file", block.line, block.info)
			continue
		}
		for line := range strings.Lines(block.text) {
			commands++
			switch line = strings.TrimSpace(line); {
			case line == "make test":
				// This command runs this test.
			case line == "make demo" && os.Getenv(demoVariable) == "":
			case line == "make demo":
				b.WriteString("make demo-check\n")
			default:
				// The README's folder may be a user's own.
				fmt.Fprintf(&b, "%s\n", strings.ReplaceAll(line, "/tmp/berth-hello", data))
			}
			if strings.Contains(line, " dev ") {
				// A reader waits for the line that reports that it serves.
				b.WriteString("for i in $(seq 300); do bin/berth status >status.txt 2>&1 && break || sleep 0.1; done\n")
			}
		}
	}
	return b.String(), commands
}

// run runs a script in a shell with job control, like a terminal, and ends its background processes. The prefix are
// words before the command of the shell.
func run(t *testing.T, dir, script string, prefix ...string) (string, error) {
	t.Helper()
	words := append(prefix, "bash", "-exmc", script+"\nwait\n")
	cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "XDG_CONFIG_HOME=", "XDG_RUNTIME_DIR=", "NO_COLOR=1",
		"GOCACHE="+goEnv(t, "GOCACHE"), "GOMODCACHE="+goEnv(t, "GOMODCACHE"), "GOFLAGS="+goEnv(t, "GOFLAGS"))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	timer := time.AfterFunc(testkit.Scaled(limit), func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	err := cmd.Run()
	return out.String(), err
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
	if err != nil {
		t.Fatalf("go env %s: %v", name, err)
	}
	return strings.TrimSpace(string(out))
}

// left returns an error while a process is alive that names a folder: the README promises that nothing is left.
func left(dir string) error {
	for _, pid := range harness.ProcessesOf(dir) {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // it may have ended
		return fmt.Errorf("process %d is left: %q", pid, text)
	}
	return nil
}

// sweep ends the processes that a failed README left behind.
func sweep(dir string) {
	for _, pid := range harness.ProcessesOf(dir) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
}
