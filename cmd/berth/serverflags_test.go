package main

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestSettingsThatAreShown reads what operators are shown of a server's flags: each that is one, and nothing besides.
func TestSettingsThatAreShown(t *testing.T) {
	cmd := &cobra.Command{Use: "server"}
	var f serverFlags
	f.flags(cmd)
	cmd.InitDefaultHelpFlag()
	if err := cmd.ParseFlags([]string{"--data-dir", t.TempDir(), "--snapshot-keep", "3"}); err != nil {
		t.Fatal(err)
	}
	if err := f.check(cmd); err != nil {
		t.Fatal(err)
	}
	if got := f.values["snapshot-keep"]; got != "3" || f.values["data-dir"] == "" {
		t.Errorf("got %v, want the flags", f.values)
	}
	for _, name := range []string{"help", "certificate-life"} {
		if _, ok := f.values[name]; ok {
			t.Errorf("%s is shown, which is no setting", name)
		}
	}
}

// TestTraceEndpointIsChecked gives every command that sends traces an address that is none.
func TestTraceEndpointIsChecked(t *testing.T) {
	a := &app{stdout: io.Discard, stderr: io.Discard}
	for _, command := range []string{"dev", "server", "agent"} {
		root := a.newRootCommand()
		root.SetArgs([]string{command, "--data-dir", t.TempDir(), "--trace-endpoint", "nowhere"})
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "--trace-endpoint") {
			t.Errorf("berth %s: got error %v, want that the address of the traces is wrong", command, err)
		}
	}
}
