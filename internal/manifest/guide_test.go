package manifest

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// TestGuideOfPlacement reads every fragment of a manifest on the guide's page about placement, each at its place in an
// object.
func TestGuideOfPlacement(t *testing.T) {
	page, err := os.ReadFile("../../docs/guide/placement.md")
	if err != nil {
		t.Fatal(err)
	}
	around := map[string]string{
		"placement:": "kind: Service\nname: web\ndefinition: web@1\ncount: 3\n",
		"steps:":     "kind: Job\nname: train\n",

		"on_violation: move": "kind: Service\nname: web\ndefinition: web@1\ncount: 3\n",
		"priority: 900":      "kind: Job\nname: urgent\nsteps: [{name: a, definition: web@1}]\n",
		"volumes:": "kind: TaskDefinition\nname: web\nversion: 1\ncontainers:\n- name: main\n  " +
			"command: [web]\n",
		"resources:": "kind: TaskDefinition\nname: web\nversion: 1\ncontainers:\n- name: main\n  " +
			"command: [web]\n",
	}
	pieces := yamlBlock.FindAllStringSubmatch(string(page), -1)
	for _, m := range pieces {
		first, _, _ := strings.Cut(m[1], "\n")
		if strings.HasPrefix(first, "resources: {") {
			first = "resources:"
		}
		text := around[first] + m[1]
		if first == "resources:" {
			text = around[first] + "  " + strings.ReplaceAll(strings.TrimSpace(m[1]), "\n", "\n  ") + "\n"
		}
		if around[first] == "" && !strings.HasPrefix(first, "kind: ") { // a whole object needs nothing around it
			t.Errorf("a piece begins with %q, which no manifest has", first)
			continue
		}
		if _, err := Parse("placement.md", []byte(text)); err != nil {
			t.Errorf("%v in\n%s", err, text)
		}
	}
	if len(pieces) < 10 {
		t.Errorf("the page shows %d pieces, which cannot be all", len(pieces))
	}
}
