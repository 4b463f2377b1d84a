package store

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// parseFolder returns the Go files of a folder that are no tests, by name.
func parseFolder(t *testing.T, dir string) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: got %d files and error %v", dir, len(names), err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(name)] = f
	}
	return files
}

// isRecord matches the comment of a record type of internal/cluster, which names its writer or its key.
var isRecord = regexp.MustCompile(`Writers?:|[Tt]he record [a-z]+/`)

// recordTypes returns the names of the types of internal/cluster that are records of the store, by their comments.
func recordTypes(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, f := range parseFolder(t, "../cluster") {
		for _, d := range f.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.TYPE || len(decl.Specs) != 1 {
				continue
			}
			spec, ok := decl.Specs[0].(*ast.TypeSpec)
			if ok && isRecord.MatchString(strings.Join(strings.Fields(decl.Doc.Text()), " ")) {
				names = append(names, spec.Name.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// Each record type of internal/cluster is in the list of kinds, once, and the list has no other types of that package.
func TestEveryRecordTypeIsInTheList(t *testing.T) {
	var listed []string
	for _, k := range kinds {
		if k.record == nil {
			continue
		}
		if of := reflect.TypeOf(k.record).Elem(); strings.HasSuffix(of.PkgPath(), "/internal/cluster") {
			listed = append(listed, of.Name())
		}
	}
	slices.Sort(listed)
	if diff := cmp.Diff(recordTypes(t), listed); diff != "" {
		t.Errorf("record types of internal/cluster (-want +got in the list of kinds):\n%s", diff)
	}
}

// A kind of the list can be applied, found and copied, and no two kinds share a key.
func TestKindsAreComplete(t *testing.T) {
	type place struct {
		noun   string
		nested bool
	}
	seen := map[place]bool{}
	for _, k := range kinds {
		at := place{k.noun(), k.nested}
		if seen[at] {
			t.Errorf("%+v is in the list twice", at)
		}
		seen[at] = true
		if isRecord := k.record != nil; (k.apply != nil) != isRecord || (k.find != nil) != isRecord || k.writer == "" {
			t.Errorf("%+v: a record has a writer, is applied and is found, and a mark only has a writer", at)
		}
		if got, rest := newKindIndex(kinds).of(k.noun() + "/a/b"); got == nil || got.noun() != k.noun() ||
			rest != "a/b" {
			t.Errorf("%s/a/b: got %+v with rest %q", k.noun(), got, rest)
		}
	}
	for _, how := range []derivation{asNew, asPublished, asFork} {
		v := reflect.ValueOf(newSnapshot().derive(how)).Elem()
		for _, f := range reflect.VisibleFields(v.Type()) {
			if !f.Anonymous && f.Type.Kind() == reflect.Pointer && v.FieldByIndex(f.Index).IsNil() {
				t.Errorf("derivation %d: no kind of the list derives the field %s of Snapshot", how, f.Name)
			}
		}
	}
}

// A branch returns the records of each table as they were written, with both revisions.
func TestBranchHasEveryTable(t *testing.T) {
	b := NewBranch(newSnapshot(), DefaultPrefix, slog.New(slog.DiscardHandler))
	for _, k := range kinds {
		if k.record == nil || k.nested || k.progress { // other tests write versions, attempts, plans and events
			continue
		}
		value, err := Encode(reflect.New(reflect.TypeOf(k.record).Elem()).Interface())
		if err != nil {
			t.Fatal(err)
		}
		op := Op{Key: DefaultPrefix + k.noun() + "/a", Value: value}
		var at [2]uint64
		for i := range at {
			result, err := b.Commit(t.Context(), []Group{{Ops: []Op{op}}})
			if err != nil {
				t.Fatal(err)
			}
			at[i] = result.Revision
		}
		want := Record{Key: op.Key, Value: value, Created: at[0], Modified: at[1]}
		got, err := b.Read(t.Context(), op.Key)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: error %v (-want +got):\n%s", k.key, err, diff)
		}
	}
}

// keyOfPage matches a key in the table of keys, such as `state/<node>/<task>`.
var keyOfPage = regexp.MustCompile("`([a-z]+(?:/<[^`>]+>)+)`")

// The page of keys lists exactly the kinds of the list, with their first writers.
func TestThePageOfKeysHasEachKind(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/keys.md")
	if err != nil {
		t.Fatal(err)
	}
	writers, onPage := map[string]string{}, map[string]bool{}
	for _, k := range kinds {
		writers[k.key] = k.writer
	}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) != 3 || !strings.HasPrefix(line, "| `") {
			continue
		}
		for _, m := range keyOfPage.FindAllStringSubmatch(cells[0], -1) {
			want, known := writers[m[1]]
			if !known {
				t.Errorf("%s is on the page and not in the list of kinds", m[0])
				continue
			}
			onPage[m[1]] = true
			if writer := strings.TrimSpace(cells[2]); !strings.HasPrefix(writer, want) {
				t.Errorf("%s: the page names the writer %q, and the list %q", m[0], writer, want)
			}
		}
	}
	for key := range writers {
		if !onPage[key] {
			t.Errorf("%s is in the list of kinds and not on the page", key)
		}
	}
}

// Only the list spells the nouns: every other file of the store uses its constants.
func TestOnlyTheListNamesTheNouns(t *testing.T) {
	isNoun := map[string]bool{}
	for _, k := range kinds {
		isNoun[k.noun()] = true
	}
	folders := []string{"."}
	if err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != "." {
			if found, _ := filepath.Glob(filepath.Join(path, "*.go")); len(found) > 0 {
				folders = append(folders, path)
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, dir := range folders {
		for name, f := range parseFolder(t, dir) {
			if dir == "." && name == "kinds.go" {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				lit, ok := n.(*ast.BasicLit)
				if !ok || lit.Kind != token.STRING {
					return true
				}
				text, err := strconv.Unquote(lit.Value)
				noun, rest, isKey := strings.Cut(text, "/")
				// Other packages use the same words for other things: JSON fields and messages.
				if err == nil && isNoun[noun] && (isKey && !strings.Contains(rest, " ") || dir == "." && text == noun) {
					t.Errorf("%s: %s is a noun of the list of kinds", filepath.Join(dir, name), lit.Value)
				}
				return true
			})
		}
	}
}
