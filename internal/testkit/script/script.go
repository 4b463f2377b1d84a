// Package script plays golden scripts: a script is a list of commands; after a line "----" follows their output, up to
// an empty line. Lines that begin with # are comments. The test defines the commands.
package script

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what the scripts print into testdata")

// Files plays each script in testdata with play, which returns the script with its current output. The result must
// equal the file. With the flag -update it is written instead.
func Files(t *testing.T, play func(t *testing.T, script string) string) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(b))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(b), got); diff != "" {
				t.Errorf("(-script +got):\n%s", diff)
			}
		})
	}
}

// Play returns the script with the current output of its commands. do carries out a command, its first word and the
// others, and prints to out.
func Play(t *testing.T, script string, out *strings.Builder, do func(words []string)) string {
	t.Helper()
	var all strings.Builder
	for block := range strings.SplitSeq(strings.TrimRight(script, "\n"), "\n\n") {
		if all.Len() > 0 {
			all.WriteString("\n")
		}
		commands, _, prints := strings.Cut(block, "\n----")
		all.WriteString(commands + "\n")
		out.Reset()
		for line := range strings.SplitSeq(commands, "\n") {
			if words := strings.Fields(line); len(words) > 0 && !strings.HasPrefix(line, "#") {
				do(words)
			}
		}
		if prints {
			all.WriteString("----\n" + out.String())
		} else if out.Len() > 0 {
			t.Errorf("this prints, but has no line \"----\":\n%s", commands)
		}
	}
	return all.String()
}
