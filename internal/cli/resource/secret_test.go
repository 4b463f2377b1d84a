package resource

import (
	"io"
	"os"
	"testing"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cli/session"
)

// TestSecretFromNull checks that /dev/null is an empty input, and no terminal.
func TestSecretFromNull(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	_, err = readSecretValue(session.New(null, io.Discard, io.Discard), &cobra.Command{Use: "set"}, "")
	if want := "read the secret: standard input is empty"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
