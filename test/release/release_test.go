// Package release_test checks the files of a release that need no build. The proof of a whole release is
// scripts/check-release.
package release_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/testkit"
)

const packaging = "../../packaging/deb"

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestServicesUseRealFlags compares the units and their settings, with the commented examples, with the reference.
func TestServicesUseRealFlags(t *testing.T) {
	reference := read(t, "../../docs/reference/cli.md")
	flag := regexp.MustCompile(`--[a-z][a-z-]+`)
	for _, service := range []string{"server", "agent"} {
		_, section, found := strings.Cut(reference, "\n## berth "+service+"\n")
		if !found {
			t.Fatalf("the reference has no section for berth %s", service)
		}
		section, _, _ = strings.Cut(section, "\n## ")
		unit := read(t, filepath.Join(packaging, "berth-"+service+".service"))
		if want := "EnvironmentFile=-/etc/berth/" + service + ".env"; !strings.Contains(unit, want) {
			t.Errorf("the unit of the %s has no line %s", service, want)
		}
		_, command, _ := strings.Cut(unit, "ExecStart=")
		command, _, _ = strings.Cut(command, "\nRestart=")
		settings := read(t, filepath.Join(packaging, service+".env"))
		flags := flag.FindAllString(command+settings, -1)
		if len(flags) < 3 {
			t.Errorf("the %s has the flags %q, which cannot be all", service, flags)
		}
		for _, f := range flags {
			if f != "--help" && !strings.Contains(section, "`"+f+"`") {
				t.Errorf("berth %s has no flag %s", service, f)
			}
		}
	}
}

func TestScriptsAreValid(t *testing.T) {
	testkit.NeedCommand(t, "sh", "bash")
	for file, shell := range map[string]string{
		packaging + "/postinst": "sh", packaging + "/prerm": "sh", packaging + "/postrm": "sh", "install.sh": "bash",
		"../../scripts/release": "bash", "../../scripts/check-release": "bash", "../../scripts/machine": "bash",
	} {
		if out, err := exec.CommandContext(t.Context(), shell, "-n", file).CombinedOutput(); err != nil {
			t.Errorf("%s -n %s: %v\n%s", shell, file, err, out)
		}
	}
}

// TestVersion requires a version that names of files and Debian packages can have.
func TestVersion(t *testing.T) {
	version := strings.TrimSuffix(read(t, "../../VERSION"), "\n")
	if !regexp.MustCompile(`^\d+\.\d+\.\d+(-dev)?$`).MatchString(version) {
		t.Errorf("VERSION has %q, want MAJOR.MINOR.PATCH or MAJOR.MINOR.PATCH-dev", version)
	}
}

var (
	fence    = regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```$")
	pageStep = regexp.MustCompile(`(?m)^\t?page ([a-z]+)\b`)
)

// TestScriptRunsThePage checks that install.sh runs each block of commands of the page about the installation, by the
// name of its step, and runs no other step.
func TestScriptRunsThePage(t *testing.T) {
	// untested are the blocks that the machine cannot run, by their first words.
	untested := map[string]string{"podman load": "the machine has no podman and no registry"}
	script, steps := read(t, "install.sh"), map[string]bool{}
	for _, m := range fence.FindAllStringSubmatch(read(t, "../../docs/guide/install.md"), -1) {
		info, commands := m[1], m[2]
		words := strings.Fields(commands)
		first := strings.Join(words[:min(2, len(words))], " ")
		step, marked := strings.CutPrefix(info, "sh step=")
		switch {
		case !marked && untested[first] == "":
			t.Errorf("the block %q has no step: write ```sh step=NAME, and page NAME in install.sh", first)
		case marked && steps[step]:
			t.Errorf("two blocks are the step %s", step)
		case marked:
			steps[step] = true
		}
	}
	ran := map[string]bool{}
	for _, m := range pageStep.FindAllStringSubmatch(script, -1) {
		ran[m[1]] = true
	}
	for step := range steps {
		if !ran[step] {
			t.Errorf("install.sh does not run the step %s of the page", step)
		}
	}
	for step := range ran {
		if !steps[step] {
			t.Errorf("install.sh runs the step %s, which the page does not have", step)
		}
	}
	if len(steps) < 8 {
		t.Errorf("the page has %d steps, which cannot be all", len(steps))
	}
}
