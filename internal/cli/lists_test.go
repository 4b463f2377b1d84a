package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/version"
)

// TestListsTakeNames checks that every command that lists objects takes -o name and --watch, and that no other takes
// -o name.
func TestListsTakeNames(t *testing.T) {
	sess := session.New(strings.NewReader(""), nil, nil)
	sess.Format = output.OutputName
	lists := 0
	for _, c := range listCommands() {
		isList := slices.Contains([]string{"ps", "ls", "list", "members", "queue", "addresses"}, c.Name()) ||
			c.CommandPath() == "berth cron history"
		if isList {
			lists++
		}
		isWatched := isList || c.CommandPath() == "berth status"
		if flag := c.Flags().Lookup("watch"); isWatched && (flag == nil || flag.Shorthand != "w") {
			t.Errorf("%s has no --watch", c.CommandPath())
		}
		if err := sess.CheckOutput(c); (err == nil) != isList {
			t.Errorf("%s -o name: got error %v, is a list: %v", c.CommandPath(), err, isList)
		}
	}
	if lists < 10 {
		t.Errorf("got %d lists, which cannot be all", lists)
	}
}

// TestVersionFlag checks that --version prints what the command version prints.
func TestVersionFlag(t *testing.T) {
	var stdout, stderr strings.Builder
	code := Run(t.Context(), session.New(strings.NewReader(""), &stdout, &stderr), []string{"--version"})
	if want := version.Current().String() + "\n"; code != 0 || stdout.String() != want || stderr.Len() > 0 {
		t.Errorf("exit code %d\n got %q%s\nwant %q", code, stdout.String(), stderr.String(), want)
	}
}

// TestHelpBeginsWithThePurpose checks that the help of each command begins with a sentence, and not with its usage.
func TestHelpBeginsWithThePurpose(t *testing.T) {
	for _, c := range listCommands() {
		text := c.Long
		if text == "" {
			text = c.Short
		}
		if text == "" || strings.HasPrefix(text, "Usage") || strings.HasPrefix(text, "berth ") {
			t.Errorf("the help of %s begins with %q", c.CommandPath(), text)
		}
	}
}
