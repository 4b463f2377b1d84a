package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strings"
)

// clauseSwitches reports each place of a tree that could switch a clause of the protocol off. Only tests and the folder
// of the simulator may do that (ADR 0083). All other code may ask whether a clause is off, hand such a set on, and
// nothing else.
func clauseSwitches(tree fs.FS, simulator string) ([]Finding, error) {
	return findInGo(tree, func(name string) bool {
		return !strings.HasSuffix(name, "_test.go") && path.Dir(name) != simulator
	}, fileSwitches)
}

// fileSwitches returns the uses of the constants of package clause in one file, except as the argument of Off.
func fileSwitches(name string, src []byte) ([]Finding, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	pkg := importName(f, modulePath+"/internal/clause")
	if pkg == "" {
		return nil, nil
	}
	var found []Finding
	ast.Inspect(f, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && isQuestion(call) {
			return false
		}
		sel, ok := n.(*ast.SelectorExpr)
		if !ok || sel.Sel.Name == "Set" {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == pkg {
			found = append(found, Finding{fset.Position(n.Pos()), "clauses", fmt.Sprintf(
				"only tests and the simulator may use %s.%s, except as the argument of Off", pkg, sel.Sel.Name)})
		}
		return true
	})
	return found, nil
}

// isQuestion reports whether a call asks a set whether a clause is off.
func isQuestion(call *ast.CallExpr) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "Off" && len(call.Args) == 1
}
