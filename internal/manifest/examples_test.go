package manifest

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/berthd/berth/internal/cluster"
)

// exampleBlock matches a manifest of Berth on a page, with or without the name of a file.
var exampleBlock = regexp.MustCompile("(?ms)^```yaml[^\n]*\n(.*?)^```")

// example is an object that a page or a file shows.
type example struct {
	file  string
	value map[string]any
}

// readExamples returns the objects of README.md, examples and docs/guide, by kind, cluster and name with version. A
// page may show an excerpt of an object.
func readExamples(t *testing.T) map[string][]example {
	t.Helper()
	root := "../.."
	texts := map[string][]string{}
	files, err := filepath.Glob(filepath.Join(root, "examples", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs", "guide", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range slices.Concat(files, pages, []string{filepath.Join(root, "README.md")}) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name, _ := filepath.Rel(root, file)
		if strings.HasSuffix(file, ".yaml") {
			texts[name] = []string{string(text)}
			continue
		}
		for _, m := range exampleBlock.FindAllStringSubmatch(string(text), -1) {
			texts[name] = append(texts[name], m[1])
		}
	}
	all := map[string][]example{}
	for _, file := range slices.Sorted(maps.Keys(texts)) {
		for _, text := range texts[file] {
			for doc := range strings.SplitSeq(text, "\n---\n") {
				raw, err := yaml.YAMLToJSON([]byte(doc))
				if err != nil {
					continue // a fragment
				}
				var value map[string]any
				if json.Unmarshal(raw, &value) != nil || value["name"] == nil {
					continue
				}
				kind, _ := value["kind"].(string)
				if !slices.Contains(Kinds(), cluster.Kind(kind)) {
					continue
				}
				key := strings.Join([]string{kind, scalar(value["cluster"]), scalar(value["name"])}, "/") + "@" +
					scalar(value["version"])
				all[key] = append(all[key], example{file, value})
			}
		}
	}
	return all
}

func scalar(v any) string {
	text, _ := json.Marshal(v)
	return strings.Trim(string(text), `"`)
}

// story returns the example that an object belongs to: "examples/web" for web.yaml, for web-v2.yaml, and for a page
// that shows an excerpt of one of them; else the page itself.
func (e example) story(same []example) string {
	version := regexp.MustCompile(`(-v[0-9]+|-bad)?\.yaml$`)
	if strings.HasPrefix(e.file, "examples") {
		return version.ReplaceAllString(e.file, "")
	}
	for _, other := range same {
		if strings.HasPrefix(other.file, "examples") && isExcerpt(e.value, other.value) {
			return version.ReplaceAllString(other.file, "")
		}
	}
	return e.file
}

// isExcerpt reports whether each field of a value is in another one, with the same value.
func isExcerpt(part, whole any) bool {
	switch p := part.(type) {
	case map[string]any:
		w, ok := whole.(map[string]any)
		for key, value := range p {
			if other, known := w[key]; !ok || !known || !isExcerpt(value, other) {
				return false
			}
		}
		return ok
	case []any:
		w, ok := whole.([]any)
		if !ok || len(p) > len(w) {
			return false
		}
		for i := range p {
			if !isExcerpt(p[i], w[i]) {
				return false
			}
		}
		return true
	}
	return scalar(part) == scalar(whole)
}

// TestExamplesHaveNamesOfTheirOwn compares the examples of the README, of examples and of the guide. A user who runs
// several of them one after the other never meets a version with other content, and never replaces another example.
// Only the files of one story, such as web.yaml and web-v2.yaml, define a service in several ways, and a page may show
// an excerpt of an example.
func TestExamplesHaveNamesOfTheirOwn(t *testing.T) {
	all := readExamples(t)
	if len(all) < 25 {
		t.Errorf("%d objects: this test reads too few", len(all))
	}
	for key, list := range all {
		for i, one := range list {
			for _, other := range list[:i] {
				excerpt := isExcerpt(one.value, other.value) || isExcerpt(other.value, one.value)
				versions := strings.HasSuffix(key, "@null") && one.story(list) == other.story(list)
				if !excerpt && !versions {
					t.Errorf("%s and %s both define %s, in different ways: give one of them another name",
						other.file, one.file, strings.ReplaceAll(strings.TrimSuffix(key, "@null"), "/null/", "/"))
				}
			}
		}
	}
}

// TestExamplesSayWhereTheyRun compares the table in examples/README.md with the manifests: one with an image runs on
// containerd only, as it is.
func TestExamplesSayWhereTheyRun(t *testing.T) {
	page, err := os.ReadFile("../../examples/README.md")
	if err != nil {
		t.Fatal(err)
	}
	says := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `([a-z0-9-]+\\.yaml)` \\| ([a-z]+) \\|")
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		says[m[1]] = m[2]
	}
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := Parse(file, text)
		if err != nil {
			t.Fatal(err)
		}
		want := "both"
		for _, o := range objects {
			if d, ok := o.Value.(*cluster.TaskDefinition); ok && len(d.Images()) > 0 {
				want = "containerd"
			}
		}
		if got := says[filepath.Base(file)]; got != want {
			t.Errorf("examples/README.md says that %s runs on %q, want %q", filepath.Base(file), got, want)
		}
	}
}
