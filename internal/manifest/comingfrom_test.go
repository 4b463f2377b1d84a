package manifest

import (
	"os"
	"testing"
)

// TestComingFromOthers reads each of Berth's manifests on the page for users of other systems. Manifests of other
// systems are in blocks marked yml and hcl.
func TestComingFromOthers(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/guide/coming-from.md")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, m := range yamlBlock.FindAllStringSubmatch(string(page), -1) {
		objects, err := Parse("coming-from.md", []byte(m[1]))
		if err != nil {
			t.Errorf("%v in\n%s", err, m[1])
		}
		for _, o := range objects {
			kinds[string(o.Kind)]++
		}
	}
	if kinds["TaskDefinition"] < 2 || kinds["Service"] < 1 || kinds["Cron"] < 1 {
		t.Errorf("the page shows %v, want a service and a cron with their definitions", kinds)
	}
}
