//go:build prove

package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// managementLimit bounds one run of a program for configuration management, which starts an interpreter for each step.
const managementLimit = 3 * time.Minute

// manager is a program for configuration management that brings a node to the manifests of a folder.
type manager struct {
	// run returns the output and whether the program reports changes. The error is its failure.
	run       func(t *testing.T) (output string, changed bool, err error)
	manifests string // the folder that the program copies
}

// Ansible and Puppet drive a standalone node with the role, the class and the manifests of the examples. The second run
// changes nothing. A manifest that is taken away ends its service. A broken manifest changes nothing, and the run fails
// with the place of the fault.
func TestAnsibleDrivesANode(t *testing.T) {
	t.Parallel()
	testkit.NeedCommand(t, "ansible-playbook", "python3")
	s := harness.New(t, harness.Process)
	s.Standalone()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	copyFolder(t, filepath.Join(root, "examples", "ansible"), work)
	m := manager{manifests: filepath.Join(work, "manifests")}
	variables, err := json.Marshal(map[string]any{
		"ansible_python_interpreter": "/usr/bin/python3", "berth_service": false,
		"berth_directory": filepath.Join(s.Dir, "manifests"), "berth_executable": harness.Binary(),
		"berth_addr": "unix://" + s.Socket,
	})
	if err != nil {
		t.Fatal(err)
	}
	m.run = func(t *testing.T) (string, bool, error) {
		out, err := manage(t, s, work, "ansible-playbook", "--connection", "local", "--inventory", "localhost,",
			"--diff", "--extra-vars", string(variables), "site.yml")
		return out, !strings.Contains(out, "changed=0 "), err
	}
	m.drive(t, s)
}

// drive is the story of both programs.
func (m *manager) drive(t *testing.T, s *harness.Site) {
	t.Helper()
	succeed := func(changes bool) {
		t.Helper()
		out, changed, err := m.run(t)
		if err != nil {
			t.Fatalf("%v:\n%s", err, out)
		}
		if changed != changes {
			t.Fatalf("it reports changes: %v, want %v:\n%s", changed, changes, out)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(m.manifests, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("more.yaml", fmt.Sprintf(quiet, "more", 1, "red"))
	succeed(true)
	s.Berth("wait", "web/service/files", "service/more", "--timeout", "1m").Want(t, 0)
	before := running(t, s, "more", 1)
	succeed(false)
	samePids(t, before, running(t, s, "more", 1))

	broken := "kind: Service\nname: broken\ncount: -1\ncolour: red\ndefinition: web@1\n"
	write("broken.yaml", broken)
	write("more.yaml", fmt.Sprintf(quiet, "more", 2, "red"))
	out, _, err := m.run(t)
	if err == nil {
		t.Fatalf("it succeeds with a broken manifest:\n%s", out)
	}
	for _, want := range []string{"broken.yaml:3:8: count: ", "broken.yaml:4:1: unknown field "} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	samePids(t, before, running(t, s, "more", 1))

	for _, name := range []string{"broken.yaml", "more.yaml"} {
		if err := os.Remove(filepath.Join(m.manifests, name)); err != nil {
			t.Fatal(err)
		}
	}
	succeed(true)
	s.Berth("inspect", "service/more").Want(t, 2)
	s.Berth("wait", "web/service/files", "--timeout", "1m").Want(t, 0)
}

// manage runs a program and returns all that it prints. Its home and its temporary files are those of the site.
func manage(t *testing.T, s *harness.Site, dir, name string, args ...string) (string, error) {
	t.Helper()
	limit, cancel := testkit.WithLimit(t.Context(), managementLimit)
	defer cancel()
	cmd := exec.CommandContext(limit, name, args...)
	cmd.Dir = dir
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "HOME=") || strings.HasPrefix(v, "BERTH_") || strings.HasPrefix(v, "XDG_")
	}), "HOME="+filepath.Join(s.Dir, "home"), "ANSIBLE_NOCOLOR=1", "LC_ALL=C.UTF-8")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return strings.ReplaceAll(out.String(), `\n`, "\n"), err
}

// copyFolder copies a folder to an existing one.
func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatalf("copy %s: %v", from, err)
	}
}
