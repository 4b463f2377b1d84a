package readme_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// installPage is not run by TestGuide: it changes the system.
const installPage = "install.md"

// outputInfo is the info string of a block with what the block before it prints.
const outputInfo = "output"

// maxPathLines is the length of the longest page of the path.
const maxPathLines = 120

// pathPages is the number of pages that a newcomer reads.
const pathPages = 10

var (
	pathRow   = regexp.MustCompile(`(?m)^\| \d+ \| \[[^\]]+\]\(([a-z-]+\.md)\)`)
	deadline  = regexp.MustCompile(`_deadline: ([0-9a-z.]+)`)
	guideLink = regexp.MustCompile(`\]\(([a-z-]+\.md)\)`)
)

// guidePages returns the pages of the guide in the order of its contents: the path and then all pages.
func guidePages(contents string) (path, all []string) {
	for _, m := range pathRow.FindAllStringSubmatch(contents, -1) {
		path = append(path, m[1])
	}
	for _, m := range guideLink.FindAllStringSubmatch(contents, -1) {
		if !slices.Contains(all, m[1]) {
			all = append(all, m[1])
		}
	}
	return path, all
}

// TestGuide runs the commands of all pages of the guide in one shell on one `berth dev`, the path first. So no page
// needs a name that an earlier page left behind. Tasks are plain processes. The commands of a block "sh exit=N" must
// exit with N, and a block "output" has what the block before it prints.
func TestGuide(t *testing.T) {
	testkit.NeedCommand(t, "bash", "perl")
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	// A gate of an example queries the default address. The README's commands use it, too, so root has a network
	// namespace for the guide.
	var network []string
	if os.Geteuid() == 0 {
		testkit.NeedCommand(t, "unshare", "ip")
		network = []string{"unshare", "--net", "sh", "-c", `ip link set lo up && exec "$@"`, "sh"}
		t.Parallel()
	} else if l, err := net.Listen("tcp", "127.0.0.1:7373"); err != nil {
		t.Fatalf("the guide's commands serve at the default address, which is taken: %v", err)
	} else {
		_ = l.Close() // it was only tried
	}
	tree := guideFolder(t, root)
	contents, err := os.ReadFile(filepath.Join(root, "docs", "guide", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, all := guidePages(string(contents))
	data := filepath.Join(t.TempDir(), "data")
	var script strings.Builder
	commands := 0
	script.WriteString("PATH=$PWD/bin:$PATH\ntrap 'kill $(jobs -p)' EXIT\n") // also after a failed command
	fmt.Fprintf(&script, "berth dev --data-dir %s --executor process &\n", data)
	script.WriteString("for i in $(seq 300); do berth status >status.txt 2>&1 && break || sleep 0.1; done\n")
	for _, page := range all {
		if page == installPage {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, "docs", "guide", page))
		if err != nil {
			t.Fatal(err)
		}
		part, n := guideScript(page, blocks(string(text)))
		script.WriteString(part)
		commands += n
	}
	script.WriteString("trap - EXIT\nkill %1\n")
	if commands < 100 {
		t.Fatalf("the pages have %d commands, which cannot be all of them", commands)
	}
	t.Cleanup(func() { sweep(data); sweep(filepath.Join(tree, "fleet")) })
	out, err := run(t, tree, script.String(), network...)
	t.Logf("%d commands:\n%s", commands, out)
	if err != nil {
		t.Errorf("the last command failed: %v", err)
	}
	testkit.Eventually(t, 20*time.Second, func() error { return left(data) })
}

// guideFolder makes a folder with the examples and the program, which it builds unless the caller of the test has.
func guideFolder(t *testing.T, root string) string {
	t.Helper()
	tree := t.TempDir()
	if err := os.CopyFS(filepath.Join(tree, "examples"), os.DirFS(filepath.Join(root, "examples"))); err != nil {
		t.Fatalf("copy the examples: %v", err)
	}
	stretchDeadlines(t, filepath.Join(tree, "examples"))
	program := filepath.Join(tree, "bin", "berth")
	if built := harness.Binary(); built != "" {
		if err := os.Mkdir(filepath.Dir(program), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(built, program); err != nil {
			t.Fatal(err)
		}
		return tree
	}
	build := exec.CommandContext(t.Context(), "scripts/build", program)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return tree
}

// stretchDeadlines gives the examples longer deadlines of health. Theirs are short, so that a reader does not wait for
// long until a bad version fails. A busy machine may need more for the good versions that have the same policy.
func stretchDeadlines(t *testing.T, folder string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "rollout*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples of rollouts in %s: %v", folder, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		stretched := deadline.ReplaceAllStringFunc(string(text), func(field string) string {
			d, err := time.ParseDuration(deadline.FindStringSubmatch(field)[1])
			if err != nil {
				t.Fatalf("%s: %s: %v", file, field, err)
			}
			return "_deadline: " + max(harness.Scaled(d), cluster.Duration(3*d)).String()
		})
		if err := os.WriteFile(file, []byte(stretched), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// guideScript returns the commands and files of a page as a script, and counts the commands.
func guideScript(page string, all []block) (script string, commands int) {
	var b strings.Builder
	for i, block := range all {
		kind, code, fails := strings.Cut(block.info, " exit=")
		_, name, isFile := strings.Cut(block.info, " file=")
		isOutput := block.info == outputInfo
		if kind != "sh" && !isFile && !isOutput {
			continue
		}
		fmt.Fprintf(&b, "echo \"=== %s:%d at $SECONDS s\"\n", page, block.line)
		if isFile {
			fmt.Fprintf(&b, "cat >%s <<'END OF FILE'\n%sEND OF FILE\n", name, block.text)
			continue
		}
		if isOutput {
			fmt.Fprintf(&b, "diff - output.txt <<'END OF FILE'\n%sEND OF FILE\n", block.text)
			continue
		}
		keeps := i+1 < len(all) && all[i+1].info == outputInfo
		for line := range strings.Lines(strings.ReplaceAll(block.text, "\\\n", "")) {
			commands++
			line = strings.TrimSpace(line)
			if keeps {
				line += " >output.txt"
			}
			if fails {
				line = fmt.Sprintf("code=0; %s || code=$?; test $code = %s", line, code)
			}
			b.WriteString(line + "\n")
		}
	}
	return b.String(), commands
}

func TestGuideScript(t *testing.T) {
	script, commands := guideScript("p.md", blocks("```\npicture\n```\n```yaml\na: b\n```\n```sh\none\ntwo \\\n  2\n```\n"+
		"```yaml file=a.yaml\na: 1\n```\n```sh exit=1\nthree\n```\n```output\n3\n```\n"))
	want := "echo \"=== p.md:7 at $SECONDS s\"\none\ntwo   2\n" +
		"echo \"=== p.md:12 at $SECONDS s\"\ncat >a.yaml <<'END OF FILE'\na: 1\nEND OF FILE\n" +
		"echo \"=== p.md:15 at $SECONDS s\"\ncode=0; three >output.txt || code=$?; test $code = 1\n" +
		"echo \"=== p.md:18 at $SECONDS s\"\ndiff - output.txt <<'END OF FILE'\n3\nEND OF FILE\n"
	if commands != 3 || script != want {
		t.Errorf("got %d commands in %q, want 3 in %q", commands, script, want)
	}
}

// TestGuideHasAPath checks the contents of the guide: a path of ten short pages, each of which can be run and leads to
// the next one, and a link to every page.
func TestGuideHasAPath(t *testing.T) {
	root := treeOf(t)
	texts := pages(t, root)
	path, listed := guidePages(texts[filepath.Join("docs", "guide", "README.md")])
	if len(path) != pathPages {
		t.Errorf("the path has the pages %q, want %d of them", path, pathPages)
	}
	for i, page := range path {
		text, ok := texts[filepath.Join("docs", "guide", page)]
		if !ok || page == installPage {
			continue // TestLinksLeadSomewhere reports a missing page
		}
		if n := strings.Count(text, "\n"); n > maxPathLines {
			t.Errorf("%s has %d lines, at most %d on the path", page, n, maxPathLines)
		}
		if _, commands := guideScript(page, blocks(text)); commands < 4 {
			t.Errorf("%s has %d commands, want at least 4", page, commands)
		}
		if i+1 < len(path) && !strings.Contains(text, "Next: ["+fmt.Sprint(i+2)+". ") ||
			i+1 < len(path) && !strings.Contains(text, "]("+path[i+1]+")") {
			t.Errorf("%s does not lead to %s", page, path[i+1])
		}
	}
	for name := range texts {
		page, ok := strings.CutPrefix(name, filepath.Join("docs", "guide")+string(filepath.Separator))
		if ok && page != "README.md" && !slices.Contains(listed, page) {
			t.Errorf("docs/guide/README.md does not list %s", page)
		}
	}
}
