package manifest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestComingFromOthers reads Berth's manifests on the pages for users of other systems. Each page has one complete
// manifest. Manifests of other systems are in blocks marked yml, hcl and slurm. The messages name these pages.
func TestComingFromOthers(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/guide/from-*.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, "docs/guide/"+filepath.Base(page))
		objects := 0
		for _, m := range exampleBlock.FindAllStringSubmatch(string(text), -1) {
			found, err := Parse(page, []byte(m[1]))
			if err != nil {
				t.Errorf("%s: %v in\n%s", page, err, m[1])
			}
			objects += len(found)
		}
		if objects == 0 {
			t.Errorf("%s shows no complete manifest", page)
		}
	}
	want := []string{composePage, kubernetesPage, nomadPage, slurmPage}
	if !slices.Equal(names, want) {
		t.Errorf("the pages are %q, the messages name %q", names, want)
	}
}
