package readme_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// guidePages are the pages of the guide whose commands the test runs, in the order of the page. Each page has a `berth
// dev` of its own that runs tasks as plain processes. The commands of a block "sh exit=N" must exit with N.
var guidePages = []string{"rollouts.md", "autoscaling.md", "cron.md", "terminal.md"}

func TestGuide(t *testing.T) {
	testkit.NeedCommand(t, "git", "bash")
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	// A gate of an example queries the default address.
	if l, err := net.Listen("tcp", "127.0.0.1:7373"); err != nil {
		t.Fatalf("the guide's commands serve at the default address, which is taken: %v", err)
	} else {
		_ = l.Close() // it was only tried
	}
	tree := copyTree(t, root)
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", filepath.Join("bin", "berth"),
		"./cmd/berth")
	build.Dir = tree
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for _, page := range guidePages {
		t.Run(strings.TrimSuffix(page, ".md"), func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(root, "docs", "guide", page))
			if err != nil {
				t.Fatal(err)
			}
			data := filepath.Join(t.TempDir(), "data")
			script, commands := guideScript(page, blocks(string(text)), data)
			if commands < 10 {
				t.Fatalf("the page has %d commands, which cannot be all of them", commands)
			}
			t.Cleanup(func() { sweep(data) })
			out, err := run(t, tree, script)
			t.Logf("%d commands:\n%s", commands, out)
			if err != nil {
				t.Errorf("a command of %s failed: %v", page, err)
			}
			testkit.Eventually(t, 20*time.Second, func() error { return left(data) })
		})
	}
}

// guideScript joins a page's commands to a script, with a `berth dev` around them, and counts them.
func guideScript(page string, all []block, data string) (script string, commands int) {
	var b strings.Builder
	b.WriteString("PATH=$PWD/bin:$PATH\n")
	fmt.Fprintf(&b, "berth dev --data-dir %s --executor process &\n", data)
	b.WriteString("for i in $(seq 300); do berth status >status.txt 2>&1 && break || sleep 0.1; done\n")
	for _, block := range all {
		kind, code, fails := strings.Cut(block.info, " exit=")
		if kind != "sh" {
			continue
		}
		fmt.Fprintf(&b, "echo '=== %s:%d'\n", page, block.line)
		for line := range strings.Lines(block.text) {
			commands++
			line = strings.TrimSpace(line)
			if fails {
				line = fmt.Sprintf("code=0; %s || code=$?; test $code = %s", line, code)
			}
			b.WriteString(line + "\n")
		}
	}
	b.WriteString("kill %1\n")
	return b.String(), commands
}

func TestGuideScript(t *testing.T) {
	script, commands := guideScript("p.md",
		blocks("```\npicture\n```\n```yaml\na: b\n```\n```sh\none\ntwo\n```\n```sh exit=1\nthree\n```\n"), "/d")
	want := "echo '=== p.md:7'\none\ntwo\necho '=== p.md:11'\ncode=0; three || code=$?; test $code = 1\n"
	if commands != 3 || !strings.Contains(script, want) {
		t.Errorf("got %d commands in %q, want 3 in %q", commands, script, want)
	}
}
