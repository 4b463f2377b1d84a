package readme_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/berthd/berth/test/harness"
)

// pages returns the text of every page that people read, by its path in the tree: those in docs and the ones at the
// root.
func pages(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	add := func(path string) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(b)
	}
	top, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil || len(top) == 0 {
		t.Fatalf("no pages at the root: %v", err)
	}
	for _, path := range top {
		add(path)
	}
	err = filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".md") {
			add(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func treeOf(t *testing.T) string {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

var (
	namedTest   = regexp.MustCompile("`([a-z][a-z/]*): (Test[A-Za-z0-9]+)`")
	definedTest = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`)
)

// TestPagesNameRealTests finds each test that a page names as `folder: TestName`. The prefix internal/ of a folder may
// be omitted.
func TestPagesNameRealTests(t *testing.T) {
	root, known, named := treeOf(t), map[string][]string{}, 0
	testsIn := func(folder string) []string {
		if list, ok := known[folder]; ok {
			return list
		}
		files, _ := filepath.Glob(filepath.Join(root, folder, "*_test.go")) // the pattern is good
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range definedTest.FindAllStringSubmatch(string(b), -1) {
				known[folder] = append(known[folder], m[1])
			}
		}
		return known[folder]
	}
	for page, text := range pages(t, root) {
		for _, m := range namedTest.FindAllStringSubmatch(text, -1) {
			named++
			if !slices.Contains(testsIn(m[1]), m[2]) && !slices.Contains(testsIn("internal/"+m[1]), m[2]) {
				t.Errorf("%s names the test %s in %s, which is not there", page, m[2], m[1])
			}
		}
	}
	if named < 50 {
		t.Errorf("the pages name %d tests, which cannot be all of them", named)
	}
}

var (
	link      = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading   = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInSlug = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// TestFailuresAreDescribedOnce: two rows of a table must not describe the same event.
func TestFailuresAreDescribedOnce(t *testing.T) {
	const page = "docs/guide/failures.md"
	rows, described := 0, map[string]bool{}
	for line := range strings.SplitSeq(withoutFences(pages(t, treeOf(t))[page]), "\n") {
		event, _, isRow := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		if !strings.HasPrefix(line, "| ") || !isRow {
			clear(described) // another table
			continue
		}
		if rows++; described[event] {
			t.Errorf("%s: two rows of a table describe %q", page, event)
		}
		described[event] = true
	}
	if rows < 20 {
		t.Errorf("%s has %d rows in its tables: this test checks nothing", page, rows)
	}
}

// TestLinksLeadSomewhere follows each link of a page to another file of the tree, and to a heading in it.
func TestLinksLeadSomewhere(t *testing.T) {
	root := treeOf(t)
	all := pages(t, root)
	for page, text := range all {
		for _, m := range link.FindAllStringSubmatch(withoutFences(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s links to %s, which is not there", page, m[1])
				continue
			}
			if filepath.Ext(target) == ".json" && anchor != "" {
				if err := followPointer(filepath.Join(root, target), anchor); err != nil {
					t.Errorf("%s links to %s: %v", page, m[1], err)
				}
				continue
			}
			if anchor != "" && !slices.Contains(anchors(all[target]), anchor) {
				t.Errorf("%s links to the heading %s of %s, which has none of that name", page, anchor, target)
			}
		}
	}
}

// followPointer follows a pointer such as "/$defs/Service" (RFC 6901, without escapes) through the objects of a file.
func followPointer(file, pointer string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		object, _ := value.(map[string]any)
		if value = object[name]; value == nil {
			return fmt.Errorf("it has no %q", name)
		}
	}
	return nil
}

// anchors are the headings of a page as links name them.
func anchors(text string) (list []string) {
	for _, m := range heading.FindAllStringSubmatch(withoutFences(text), -1) {
		slug := notInSlug.ReplaceAllString(strings.ToLower(m[1]), "")
		list = append(list, strings.ReplaceAll(slug, " ", "-"))
	}
	return list
}

var fenced = regexp.MustCompile("(?ms)^ *```.*?^ *```$")

func withoutFences(text string) string { return fenced.ReplaceAllString(text, "") }

var (
	section   = regexp.MustCompile(`(?m)^## berth (.*)$`)
	flagRow   = regexp.MustCompile("(?m)^\\| (?:`-([A-Za-z])`, )?`--([a-z-]+)`")
	shellLine = regexp.MustCompile(`(?m)^ *(?:bin/)?berth (.*)$`)
	redirect  = regexp.MustCompile(`( [<>&|].*| \|\| .*)$`)
)

// TestPagesShowRealCommands compares each line in a block of the README or the guide that calls berth with the
// generated reference: the command and its flags must exist.
func TestPagesShowRealCommands(t *testing.T) {
	root := treeOf(t)
	all := pages(t, root)
	flags := commandFlags(all[filepath.Join("docs", "reference", "cli.md")])
	seen := 0
	for page, text := range all {
		if page != "README.md" && !strings.HasPrefix(page, filepath.Join("docs", "guide")) {
			continue
		}
		for _, block := range fenced.FindAllString(text, -1) {
			for _, m := range shellLine.FindAllStringSubmatch(block, -1) {
				seen++
				if err := checkCommand(strings.Fields(redirect.ReplaceAllString(m[1], "")), flags); err != nil {
					t.Errorf("%s: berth %s: %v", page, m[1], err)
				}
			}
		}
	}
	if seen < 30 {
		t.Errorf("the guide shows %d commands, which cannot be all of them", seen)
	}
}

// commandFlags reads the flags of each command from the reference. The key of flags of all commands is "".
func commandFlags(reference string) map[string][]string {
	flags := map[string][]string{}
	command, rest := "", reference
	for rest != "" {
		part := rest
		at := section.FindStringSubmatchIndex(rest)
		if at != nil {
			part = rest[:at[0]]
		}
		flags[command] = append(flags[command], "--help")
		for _, m := range flagRow.FindAllStringSubmatch(part, -1) {
			flags[command] = append(flags[command], "--"+m[2])
			if m[1] != "" {
				flags[command] = append(flags[command], "-"+m[1])
			}
		}
		if at == nil {
			break
		}
		command, rest = rest[at[2]:at[3]], rest[at[1]:]
	}
	return flags
}

// checkCommand returns the faults of a command line.
func checkCommand(words []string, flags map[string][]string) error {
	name := ""
	for i := range words { // the longest beginning that is a command
		if _, ok := flags[strings.Join(words[:i+1], " ")]; ok {
			name = strings.Join(words[:i+1], " ")
		}
		if strings.HasPrefix(words[i], "--") && name == "" { // a flag of all commands, with its value, precedes it
			return checkCommand(slices.Delete(slices.Clone(words), i, min(i+2, len(words))), flags)
		}
	}
	if name == "" {
		return fmt.Errorf("no command begins like this")
	}
	for _, w := range words {
		if w == "--" || strings.HasPrefix(w, "#") {
			break // what follows is another program's, or the reader's
		}
		if !strings.HasPrefix(w, "-") || w == "-" {
			continue
		}
		flag, _, _ := strings.Cut(w, "=")
		given := []string{flag}
		if !strings.HasPrefix(flag, "--") { // combined short flags
			given = given[:0]
			for _, letter := range flag[1:] {
				given = append(given, "-"+string(letter))
			}
		}
		for _, flag := range given {
			if !slices.Contains(flags[name], flag) && !slices.Contains(flags[""], flag) {
				return fmt.Errorf("`berth %s` has no flag %s", name, flag)
			}
		}
	}
	return nil
}
