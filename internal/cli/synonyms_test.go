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
	for args, want := range map[string]string{
		"rollback service/web":             `did you mean "berth rollout undo"?`,
		"get pods -w":                      `did you mean "berth ps"?`,
		"get pod web":                      `did you mean "berth ps"?`,
		"get secrets":                      `did you mean "berth secret ls"?`,
		"create secret generic db":         `did you mean "berth secret set"?`,
		"create cronjob a --schedule=x":    "berth init cron",
		"delete deployment web":            "service/web",
		"events -w":                        "use --follow",
		"node drain n1 --force":            "--now",
		"stop web.1.0":                     `is a task of default/service/web, and berth stop does not take a task`,
		"restart pod/web.1.0":              `is a task of default/service/web, and berth restart does not take a task`,
		"set image service/web main=web:2": "edit the manifest and run it again",
		"requeue long":                     `did you mean "berth restart"?`,
		"node resume n1":                   `did you mean "berth node uncordon"?`,
		"run --hold":                       "write hold: true in the manifest",
		"scale web --replicas=3":           "berth scale web 3",
		"run --array=0-9 array.yaml":       "write count in the step",
		"run --dry-run web.yaml":           "berth plan",
	} {
		root := newRootCommand(session.New(strings.NewReader(""), io.Discard, &stderr))
		root.SetArgs(strings.Fields(args))
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", args, err, want)
		}
	}
}
