package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/cli/session"
)

// TestSynonyms checks that each synonym names an existing command and is no command itself.
func TestSynonyms(t *testing.T) {
	t.Parallel()
	var stderr strings.Builder
	root := newRootCommand(session.New(strings.NewReader(""), io.Discard, &stderr))
	for word, command := range session.Synonyms() {
		found, rest, err := root.Find(strings.Fields(command))
		if err != nil || len(rest) > 0 || found.CommandPath() != "berth "+command {
			t.Errorf("%s leads to %q, which is no command: %v", word, command, err)
		}
		if c, rest, err := root.Find(strings.Fields(word)); err == nil && c != root && len(rest) == 0 {
			t.Errorf("%s is a command", word)
		}
	}
	root.SetArgs([]string{"rollback", "service/web"})
	if err, want := root.Execute(), `did you mean "berth rollout undo"?`; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}
