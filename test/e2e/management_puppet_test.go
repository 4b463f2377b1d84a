//go:build prove

package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// TestPuppetDrivesANode does the same as TestAnsibleDrivesANode with Puppet.
func TestPuppetDrivesANode(t *testing.T) {
	t.Parallel()
	testkit.NeedCommand(t, "puppet", "python3")
	s := harness.New(t, harness.Process)
	s.Standalone()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	copyFolder(t, filepath.Join(root, "examples", "puppet"), work)
	m := manager{manifests: filepath.Join(work, "manifests")}
	site := fmt.Sprintf("class { 'berth':\n  manifests  => '%s',\n  directory  => '%s',\n  service    => false,\n"+
		"  executable => '%s',\n  addr       => 'unix://%s',\n}\n", m.manifests, filepath.Join(s.Dir, "manifests"),
		harness.Binary(), s.Socket)
	if err := os.WriteFile(filepath.Join(work, "site.pp"), []byte(site), 0o600); err != nil {
		t.Fatal(err)
	}
	m.run = func(t *testing.T) (string, bool, error) {
		out, err := manage(t, s, work, "puppet", "apply", "--detailed-exitcodes", "--color", "false",
			"--confdir", filepath.Join(work, "conf"), "--vardir", filepath.Join(work, "var"),
			"--modulepath", filepath.Join(work, "modules"), "site.pp")
		exit, ok := errors.AsType[*exec.ExitError](err)
		if ok && exit.ExitCode() == 2 { // changes and no failure
			return out, true, nil
		}
		return out, false, err
	}
	m.drive(t, s)
}
