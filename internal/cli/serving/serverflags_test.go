package serving

import (
	"testing"

	"github.com/spf13/cobra"
)

// TestSettingsThatAreShown checks that operators see each flag of a server, and nothing else.
func TestSettingsThatAreShown(t *testing.T) {
	cmd := &cobra.Command{Use: "server"}
	var f serverFlags
	f.addFlags(cmd)
	cmd.InitDefaultHelpFlag()
	if err := cmd.ParseFlags([]string{"--data-dir", t.TempDir(), "--snapshot-keep", "3"}); err != nil {
		t.Fatal(err)
	}
	if err := f.check(cmd); err != nil {
		t.Fatal(err)
	}
	if got := f.Values["snapshot-keep"]; got != "3" || f.Values["data-dir"] == "" {
		t.Errorf("got %v, want the flags", f.Values)
	}
	for _, name := range []string{"help", "certificate-life"} {
		if _, ok := f.Values[name]; ok {
			t.Errorf("%s is shown, which is no setting", name)
		}
	}
}
