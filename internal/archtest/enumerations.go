package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// enumerations checks the exported text types of some folders: a type with constants has a method Values that lists
// exactly these constants in their order. Validation and the generated schemas read that list. The types in open may
// have values without constants.
func enumerations(tree fs.FS, dirs, open []string) ([]Finding, error) {
	var found []Finding
	for _, dir := range dirs {
		fset, files, err := parseDir(tree, dir)
		if err != nil {
			return nil, err
		}
		e := enumerated{
			fset: fset, types: map[string]token.Pos{}, constants: map[string][]string{}, values: map[string][]string{},
		}
		for _, f := range files {
			for _, decl := range f.Decls {
				e.add(decl)
			}
		}
		found = append(found, e.findings(open)...)
	}
	return sorted(found), nil
}

// parseDir parses the files of a folder, with comments, but not its tests.
func parseDir(tree fs.FS, dir string) (*token.FileSet, []*ast.File, error) {
	names, err := fs.Glob(tree, path.Join(dir, "*.go"))
	if err != nil {
		return nil, nil, fmt.Errorf("list %s: %w", dir, err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src, err := fs.ReadFile(tree, name)
		if err != nil {
			return nil, nil, fmt.Errorf("read %s: %w", name, err)
		}
		f, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, nil, fmt.Errorf("parse: %w", err)
		}
		files = append(files, f)
	}
	return fset, files, nil
}

// enumerated holds the text types of a package, from its source.
type enumerated struct {
	fset      *token.FileSet
	types     map[string]token.Pos
	constants map[string][]string // names, by type, in their order
	values    map[string][]string // the names that the method Values lists, by type
}

func (e *enumerated) add(decl ast.Decl) {
	switch d := decl.(type) {
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			e.spec(spec, d.Tok == token.CONST)
		}
	case *ast.FuncDecl:
		if d.Recv == nil || d.Name.Name != "Values" || d.Body == nil {
			return
		}
		if t, ok := d.Recv.List[0].Type.(*ast.Ident); ok {
			e.values[t.Name] = namesIn(d.Body)
		}
	}
}

// spec records a text type, or constants of one.
func (e *enumerated) spec(spec ast.Spec, constant bool) {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		if kind, ok := s.Type.(*ast.Ident); ok && kind.Name == "string" && s.Name.IsExported() {
			e.types[s.Name.Name] = s.Name.Pos()
		}
	case *ast.ValueSpec:
		if t, ok := s.Type.(*ast.Ident); ok && constant {
			for _, name := range s.Names {
				e.constants[t.Name] = append(e.constants[t.Name], name.Name)
			}
		}
	}
}

// namesIn returns the names that the lists of a function's body hold.
func namesIn(body *ast.BlockStmt) (names []string) {
	ast.Inspect(body, func(n ast.Node) bool {
		if list, ok := n.(*ast.CompositeLit); ok {
			for _, element := range list.Elts {
				if name, ok := element.(*ast.Ident); ok {
					names = append(names, name.Name)
				}
			}
		}
		return true
	})
	return names
}

func (e *enumerated) findings(open []string) []Finding {
	var found []Finding
	for name, pos := range e.types {
		if want, got := e.constants[name], e.values[name]; len(want) > 0 && !slices.Equal(got, want) &&
			!slices.Contains(open, name) {
			found = append(found, Finding{e.fset.Position(pos), "enumerations", fmt.Sprintf(
				"%s has the constants %s, but Values lists %s", name, strings.Join(want, ", "),
				strings.Join(got, ", "))})
		}
	}
	return found
}

// enumeratedIn lists the folders whose types of text list their values.
var enumeratedIn = []string{"internal/cluster", "api"}

// openTexts lists text types that have constants and may have other values as well: a later build may write a reason
// that this one does not know.
var openTexts = []string{"ReasonCode"}
