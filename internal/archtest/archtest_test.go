package archtest

import (
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// root is the tree that the rules are about, as seen from this package.
const root = "../.."

// The first tests are the rules; the others show that each can fail.

func TestLayersAndModules(t *testing.T) {
	pkgs, err := goList(t.Context(), root, "./...")
	if err != nil {
		t.Fatal(err)
	}
	if len(pkgs) < 3 {
		t.Fatalf("go list found %d packages: this test looks at nothing", len(pkgs))
	}
	show(t, current().check(pkgs))
}

func TestPurity(t *testing.T) {
	patterns := []string{"./internal/cluster/..."}
	if logic, err := filepath.Glob(root + "/internal/logic/*/*.go"); err != nil {
		t.Fatal(err)
	} else if len(logic) > 0 {
		patterns = append(patterns, "./internal/logic/...")
	}
	found, err := impurities(t.Context(), root, patterns...)
	if err != nil {
		t.Fatal(err)
	}
	show(t, found)
}

func TestNoRealWaiting(t *testing.T) {
	found, err := waits(os.DirFS(root), proof)
	if err != nil {
		t.Fatal(err)
	}
	show(t, found)
}

func TestEnumerations(t *testing.T) {
	found, err := enumerations(os.DirFS(root), enumeratedIn, openTexts)
	if err != nil {
		t.Fatal(err)
	}
	show(t, found)
}

func show(t *testing.T, found []Finding) {
	t.Helper()
	for _, f := range found {
		t.Error(f)
	}
}

func TestPurityCanFail(t *testing.T) {
	std, err := goList(t.Context(), ".", append([]string{"-export", "-deps"}, pureStandard...)...)
	if err != nil {
		t.Fatal(err)
	}
	exports := map[string]string{}
	for _, p := range std {
		exports[p.ImportPath] = p.Export
	}
	names, err := filepath.Glob("testdata/purity/*.go")
	if err != nil || len(names) == 0 {
		t.Fatalf("no planted sources: %v", err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			dir, base := filepath.Split(name)
			found, err := packageImpurities(listed{ImportPath: "planted", Dir: dir, GoFiles: []string{base}}, exports)
			if err != nil {
				t.Fatal(err)
			}
			matchWants(t, name, found)
		})
	}
}

func TestWaitingCanFail(t *testing.T) {
	const name = "testdata/waiting/sleeps_test.go"
	src, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	found, err := fileWaits(name, src)
	if err != nil {
		t.Fatal(err)
	}
	matchWants(t, name, found)
}

func TestEnumerationsCanFail(t *testing.T) {
	const name = "testdata/enumerations/enumerations.go"
	found, err := enumerations(os.DirFS("."), []string{filepath.Dir(name)}, []string{"Open"})
	if err != nil {
		t.Fatal(err)
	}
	matchWants(t, name, found)
}

func TestWaitsLooksWhereTestsAre(t *testing.T) {
	const sleep = "package p\n\nimport \"time\"\n\nfunc f() { time.Sleep(1) }\n"
	tree := fstest.MapFS{}
	for _, name := range []string{
		"a/a_test.go", "a/a.go", "proven/suite.go", "internal/testkit/testkit_test.go",
		"a/testdata/b_test.go", ".cache/c_test.go",
	} {
		tree[name] = &fstest.MapFile{Data: []byte(sleep)}
	}
	found, err := waits(tree, []string{"proven", "internal/testkit"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range found {
		got = append(got, f.Pos.Filename)
	}
	if diff := cmp.Diff([]string{"a/a_test.go", "proven/suite.go"}, got); diff != "" {
		t.Errorf("files with sleeps (-want +got):\n%s", diff)
	}
}

// want finds the expectation at the end of a line of a planted source.
var want = regexp.MustCompile(`// want "([^"]*)"$`)

// matchWants compares findings with the wants of a source, line by line: each line
// has exactly what it wants.
func matchWants(t *testing.T, name string, found []Finding) {
	t.Helper()
	src, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	got := map[int][]string{}
	for _, f := range found {
		got[f.Pos.Line] = append(got[f.Pos.Line], f.Text)
	}
	for i, line := range strings.Split(string(src), "\n") {
		m := want.FindStringSubmatch(line)
		texts := got[i+1]
		switch {
		case m == nil && len(texts) > 0:
			t.Errorf("%s:%d: unwanted %q", name, i+1, texts)
		case m != nil && (len(texts) != 1 || !strings.Contains(texts[0], m[1])):
			t.Errorf("%s:%d: got %q, want %q", name, i+1, texts, m[1])
		}
	}
}

func TestLayersCanFail(t *testing.T) {
	p := policy{
		module: "m",
		layers: map[string][]string{
			"internal/cluster":    {},
			"internal/logic/plan": {"internal/cluster"},
			"internal/driver":     {"internal/cluster"},
			"internal/driver/...": {"internal/cluster", "internal/driver"},
			"internal/testkit":    {},
			"cmd/x":               {"..."},
		},
		proof:       []string{"internal/testkit"},
		modules:     map[string][]string{"example.org/db": {"internal/driver/..."}},
		testModules: []string{"example.org/prop"},
		pure:        []string{"fmt"},
	}
	// Every row has a package and an importer, so that a case differs by one fault.
	sound := []listed{
		{ImportPath: "m/internal/cluster", Imports: []string{"fmt"}, TestImports: []string{"os", "example.org/prop/sub"}},
		{ImportPath: "m/internal/logic/plan", Imports: []string{"m/internal/cluster"}},
		{ImportPath: "m/internal/driver", Imports: []string{"os"}},
		{ImportPath: "m/internal/driver/a", Imports: []string{"m/internal/driver", "example.org/db/v2"}},
		{ImportPath: "m/internal/testkit", Imports: []string{"example.org/prop"}},
		{ImportPath: "m/cmd/x", Imports: []string{"m/internal/driver/a"}, XTestImports: []string{"m/internal/testkit"}},
	}
	tests := []struct {
		name string
		pkg  listed // replaces the package of the same path, or is added
		want []string
	}{
		{name: "sound", pkg: sound[0]},
		{
			name: "upwards",
			pkg:  listed{ImportPath: "m/internal/cluster", Imports: []string{"m/internal/logic/plan"}},
			want: []string{"internal/cluster: layers: must not import internal/logic/plan"},
		},
		{
			name: "a driver imports its sibling",
			pkg:  listed{ImportPath: "m/internal/driver/a", Imports: []string{"m/internal/driver/b", "example.org/db"}},
			want: []string{"internal/driver/a: layers: must not import internal/driver/b"},
		},
		{
			name: "a decision opens a file",
			pkg:  listed{ImportPath: "m/internal/logic/plan", Imports: []string{"os"}},
			want: []string{`internal/logic/plan: layers: decides, so it must not import "os"`},
		},
		{
			name: "a decision uses a module",
			pkg:  listed{ImportPath: "m/internal/logic/plan", Imports: []string{"example.org/db"}},
			want: []string{`internal/logic/plan: layers: decides, so it must not import "example.org/db"`},
		},
		{
			name: "a module outside its folder",
			pkg:  listed{ImportPath: "m/internal/driver", Imports: []string{"example.org/db"}},
			want: nil, // "internal/driver/..." is the package itself, too
		},
		{
			name: "a module in a foreign folder",
			pkg:  listed{ImportPath: "m/internal/testkit", Imports: []string{"example.org/db"}},
			want: []string{`internal/testkit: modules: must not import "example.org/db"`},
		},
		{
			name: "a module of the tests in code",
			pkg:  listed{ImportPath: "m/internal/driver", Imports: []string{"example.org/prop"}},
			want: []string{`internal/driver: modules: must not import "example.org/prop"`},
		},
		{
			name: "an unknown module in a test",
			pkg:  listed{ImportPath: "m/internal/driver", XTestImports: []string{"example.org/assert"}},
			want: []string{`internal/driver: modules: must not import "example.org/assert" in its tests`},
		},
		{
			name: "the test kit in code, even where all is allowed",
			pkg:  listed{ImportPath: "m/cmd/x", Imports: []string{"m/internal/testkit"}},
			want: []string{"cmd/x: layers: must not import internal/testkit outside tests"},
		},
		{
			name: "a package without a row",
			pkg:  listed{ImportPath: "m/internal/new"},
			want: []string{`internal/new: layers: has no row: add "internal/new" to layers in its layer`},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pkgs := []listed{tt.pkg}
			for _, s := range sound {
				if s.ImportPath != tt.pkg.ImportPath {
					pkgs = append(pkgs, s)
				}
			}
			if diff := cmp.Diff(tt.want, texts(p.check(pkgs))); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("stale rows", func(t *testing.T) {
		got := texts(p.check(sound[:3]))
		want := []string{
			"cmd/x: layers: has a row but no package: remove the row",
			"example.org/db: modules: has a row but nobody imports it: remove the row",
			"internal/driver/...: layers: has a row but no package: remove the row",
			"internal/testkit: layers: has a row but no package: remove the row",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("findings (-want +got):\n%s", diff)
		}
	})
}

func texts(found []Finding) (out []string) {
	for _, f := range found {
		out = append(out, f.String())
	}
	return out
}

func TestFindingIsClickable(t *testing.T) {
	f := Finding{Pos: token.Position{Filename: "a.go", Line: 3, Column: 7}, Rule: "purity", Text: "x"}
	if got, want := f.String(), "a.go:3:7: purity: x"; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
}
