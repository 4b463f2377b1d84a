package manifest

import (
	"os"
	"testing"
)

// TestGuideOfChecks reads every piece of a manifest that the guide's page about checks shows.
func TestGuideOfChecks(t *testing.T) {
	page, err := os.ReadFile("../../docs/guide/checks.md")
	if err != nil {
		t.Fatal(err)
	}
	const around = "kind: TaskDefinition\nname: web\nversion: 1\ncontainers: [{name: main, command: " +
		"[web]}]\nports: [{name: http}, {name: grpc}]\n"
	pieces := yamlBlock.FindAllStringSubmatch(string(page), -1)
	for _, m := range pieces {
		if _, err := Parse("checks.md", []byte(around+m[1])); err != nil {
			t.Errorf("%v in\n%s", err, m[1])
		}
	}
	if len(pieces) < 3 {
		t.Errorf("the page shows %d pieces, which cannot be all", len(pieces))
	}
}
