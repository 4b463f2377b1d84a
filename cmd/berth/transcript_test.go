package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/berthd/berth/internal/cli"
	"github.com/berthd/berth/internal/cli/session"
)

// compareTranscript runs the commands of a transcript and compares all that they print with it. A command is a line
// that begins with "$ ", its words may be in single quotes, and $WORK is the script's folder; what follows is its
// output and its errors, and at last its exit code in brackets. Lines that begin with # are left alone. The commands
// run in this process, so that many take little time; BERTH_TEST_UPDATE rewrites the transcript.
func compareTranscript(ts *testscript.TestScript, file string) {
	want := ts.ReadFile(file)
	var got strings.Builder
	skip := false
	for line := range strings.Lines(want) {
		command, ok := strings.CutPrefix(line, "$ berth ")
		switch {
		case ok:
			got.WriteString(line)
			got.WriteString(runHere(ts, strings.TrimSpace(command)))
			skip = true
		case strings.HasPrefix(line, "#"), !skip:
			got.WriteString(line)
		case strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]\n"):
			skip = false
		}
	}
	if os.Getenv("BERTH_TEST_UPDATE") != "" {
		ts.Check(rewrite(filepath.Join("testdata", ts.Name()+".txtar"), file, got.String()))
		return
	}
	if diff := cmp.Diff(want, got.String()); diff != "" {
		ts.Fatalf("%s (-want +got):\n%s", file, diff)
	}
}

// runHere runs a command line and returns what it prints, and its exit code.
func runHere(ts *testscript.TestScript, line string) string {
	var said strings.Builder
	work := ts.Getenv("WORK")
	a := session.New(strings.NewReader(""), &said, &said)
	a.Env = ts.Getenv
	a.Now = func() time.Time { return time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) }
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	code := cli.Run(ctx, a, wordsOf(strings.ReplaceAll(line, "$WORK", work)))
	text := strings.ReplaceAll(said.String(), work, "$WORK")
	text = strings.ReplaceAll(text, ts.Getenv("BERTH_ADDR"), "$ADDR")
	return text + fmt.Sprintf("[%d]\n", code)
}

// wordsOf splits a line as a shell does that knows single quotes only.
func wordsOf(line string) []string {
	var words []string
	word, quoted, open := "", false, false
	for _, c := range line + " " {
		switch {
		case c == '\'':
			quoted, open = !quoted, true
		case c == ' ' && !quoted:
			if open {
				words = append(words, word)
			}
			word, open = "", false
		default:
			word, open = word+string(c), true
		}
	}
	return words
}

// rewrite puts a file of a script.
func rewrite(script, file, text string) error {
	archive, err := txtar.ParseFile(script)
	if err != nil {
		return err
	}
	for i := range archive.Files {
		if archive.Files[i].Name == file {
			archive.Files[i].Data = []byte(text)
		}
	}
	return os.WriteFile(script, txtar.Format(archive), 0o644)
}
