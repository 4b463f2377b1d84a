package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// bubbled marks a line that only ever runs inside a synctest bubble, where to wait
// costs nothing: a helper called from one, say.
const bubbled = "in-bubble:"

// waits checks every test of a tree, and every file of the packages with checks apart
// from internal/testkit, for sleeps on the real clock.
func waits(tree fs.FS, checks []string) ([]Finding, error) {
	return findInGo(tree, func(name string) bool {
		dir := path.Dir(name)
		return dir != "internal/testkit" && (strings.HasSuffix(name, "_test.go") || slices.Contains(checks, dir))
	}, fileWaits)
}

// findInGo returns the findings of a rule in the Go files of a tree that concern it.
func findInGo(tree fs.FS, concerns func(name string) bool, rule func(name string, src []byte) ([]Finding, error)) (
	[]Finding, error,
) {
	var found []Finding
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && skipDir(d.Name()):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || !concerns(name):
			return nil
		}
		src, err := fs.ReadFile(tree, name)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		more, err := rule(name, src)
		found = append(found, more...)
		return err
	})
	return sorted(found), err
}

func skipDir(base string) bool {
	return base == "testdata" || base == "node_modules" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")
}

// fileWaits returns the sleeps of one file: calls of time.Sleep and pause.For, statements that only receive from
// time.After or time.Tick, and selects with a case that does so and nothing else. A timer whose case does something is
// a deadline, not a sleep.
func fileWaits(name string, src []byte) ([]Finding, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	clock, bubble := importName(f, "time"), importName(f, "testing/synctest")
	pauses := importName(f, modulePath+"/internal/pause")
	if path.Dir(name) == "internal/sim" { // it runs in a bubble as a whole
		pauses = ""
	}
	allowed := markedLines(fset, f, bubbled)
	var found []Finding
	report := func(n ast.Node, what string) {
		pos := fset.Position(n.Pos())
		if !allowed[pos.Line] {
			found = append(found, Finding{
				pos, "waiting",
				what + " outside synctest.Test: poll with testkit.Eventually",
			})
		}
	}
	bare := func(list []ast.Stmt) {
		for _, s := range list {
			if x, _ := s.(*ast.ExprStmt); x != nil && isTimerReceive(x.X, clock) {
				report(x, "a bare receive from a timer")
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if isCall(n, bubble, "Test") {
				return false
			}
			if isCall(n, clock, "Sleep") {
				report(n, "time.Sleep")
			}
			if isCall(n, pauses, "For") {
				report(n, "pause.For")
			}
		case *ast.CommClause:
			if wait, _ := n.Comm.(*ast.ExprStmt); wait != nil && doesNothing(n.Body) && isTimerReceive(wait.X, clock) {
				report(wait, "a select that sleeps")
			}
			bare(n.Body)
		case *ast.BlockStmt:
			bare(n.List)
		}
		return true
	})
	return found, nil
}

// doesNothing reports whether the body of a case is empty, or only continues the loop.
func doesNothing(body []ast.Stmt) bool {
	for _, s := range body {
		if b, ok := s.(*ast.BranchStmt); !ok || b.Tok != token.CONTINUE {
			return false
		}
	}
	return true
}

// isTimerReceive reports whether an expression receives from time.After, time.Tick or
// the channel of a timer.
func isTimerReceive(x ast.Expr, clock string) bool {
	recv, ok := x.(*ast.UnaryExpr)
	if !ok || recv.Op != token.ARROW || clock == "" {
		return false
	}
	if sel, ok := recv.X.(*ast.SelectorExpr); ok {
		return sel.Sel.Name == "C"
	}
	call, ok := recv.X.(*ast.CallExpr)
	return ok && (isCall(call, clock, "After") || isCall(call, clock, "Tick"))
}

// importName returns the name by which a file calls a package, or "".
func importName(f *ast.File, pkg string) string {
	for _, spec := range f.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err != nil || p != pkg {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(pkg)
	}
	return ""
}

// markedLines returns the lines with a comment "// mark reason" on or above them. A mark without a reason marks
// nothing.
func markedLines(fset *token.FileSet, f *ast.File, mark string) map[int]bool {
	lines := map[int]bool{}
	for _, group := range f.Comments {
		for _, c := range group.List {
			_, reason, ok := strings.Cut(c.Text, "// "+mark)
			if !ok || strings.TrimSpace(reason) == "" {
				continue
			}
			lines[fset.Position(c.Pos()).Line] = true
			lines[fset.Position(group.End()).Line+1] = true
		}
	}
	return lines
}

func isCall(call *ast.CallExpr, pkg, name string) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || pkg == "" || sel.Sel.Name != name {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == pkg
}
