package manifest

import (
	"os"
	"testing"
)

// TestGuideOfFollowing reads the manifests that the guide's page about other services shows.
func TestGuideOfFollowing(t *testing.T) {
	page, err := os.ReadFile("../../docs/guide/following.md")
	if err != nil {
		t.Fatal(err)
	}
	pieces := yamlBlock.FindAllStringSubmatch(string(page), -1)
	for _, m := range pieces {
		if _, err := Parse("following.md", []byte(m[1])); err != nil {
			t.Errorf("%v in\n%s", err, m[1])
		}
	}
	if len(pieces) != 1 {
		t.Errorf("the page shows %d pieces, want 1", len(pieces))
	}
}
