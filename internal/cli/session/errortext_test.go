package session

import (
	"testing"

	"github.com/spf13/cobra"
)

// TestSuggestCommand checks that only a similar command is suggested, and none that changes something for a word that
// reads.
func TestSuggestCommand(t *testing.T) {
	root := &cobra.Command{Use: "berth"}
	secret := &cobra.Command{Use: "secret"}
	root.AddCommand(secret)
	for _, use := range []string{"set", "ls", "rm"} {
		secret.AddCommand(&cobra.Command{Use: use, Run: func(*cobra.Command, []string) {}})
	}
	for word, want := range map[string]string{ // order-free: each word is a case of its own
		"get": "", "show": "", "view": "", "sett": `: did you mean "berth secret set"?`, "ui": "", "copy": "",
	} {
		if got := suggestCommand(secret, word); got != want {
			t.Errorf("%s: got %q, want %q", word, got, want)
		}
	}
}
