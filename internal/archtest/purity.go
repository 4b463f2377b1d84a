package archtest

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// orderFree marks a range over a map whose result is the same for any order.
const orderFree = "order-free:"

// pureStandard lists the only standard packages that the nouns and the decisions may import. Without context, io, log,
// net, os and sync, a decision cannot wait, write or read.
var pureStandard = []string{
	"bytes", "cmp", "container/heap", "crypto/sha256", "encoding/hex",
	"encoding/json", "errors", "fmt", "iter", "maps", "math", "math/bits",
	"net/netip", "net/url", "slices", "sort", "strconv", "strings", "text/template", "text/template/parse", "time",
	"unicode",
	"unicode/utf8",
}

// pureFuncs lists, for the standard packages that can do more than compute, the
// package-level functions a decision may call. Types, constants and methods of
// the package are allowed, apart from those of impure.
var pureFuncs = map[string][]string{
	"time": {"ParseDuration"},
	"fmt":  {"Append", "Appendf", "Appendln", "Errorf", "Sprint", "Sprintf", "Sprintln"},

	"text/template":       {"IsTrue", "New"},
	"text/template/parse": {"New", "Parse"},
}

// impure lists names of otherwise allowed packages that read the machine's state, wait, or start something.
var impure = map[string][]string{
	"iter": {"Pull", "Pull2"},
	"time": {"Local", "Ticker", "Timer"},

	"text/template": {"ParseFS", "ParseFiles", "ParseGlob"},
}

// impurities type-checks the packages that patterns name, as seen from dir, and returns all that a decision must not
// do. Test files are not checked.
func impurities(ctx context.Context, dir string, patterns ...string) ([]Finding, error) {
	pkgs, err := goList(ctx, dir, append([]string{"-export", "-deps"}, patterns...)...)
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	for _, p := range pkgs {
		exports[p.ImportPath] = p.Export
	}
	var found []Finding
	for _, p := range pkgs {
		if p.Standard || !isPure(strings.TrimPrefix(p.ImportPath, modulePath+"/")) {
			continue
		}
		more, err := packageImpurities(p, exports)
		if err != nil {
			return nil, fmt.Errorf("check %s: %w", p.ImportPath, err)
		}
		found = append(found, more...)
	}
	return sorted(found), nil
}

// packageImpurities parses and type-checks one package against the export data of its imports.
func packageImpurities(p listed, exports map[string]string) ([]Finding, error) {
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil,
			parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("parse: %w", err)
		}
		files = append(files, f)
	}
	info := &types.Info{
		Types:      map[ast.Expr]types.TypeAndValue{},
		Defs:       map[*ast.Ident]types.Object{},
		Uses:       map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{},
	}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", func(pkg string) (io.ReadCloser, error) {
		if exports[pkg] == "" {
			return nil, fmt.Errorf("%s: %w", pkg, errNoExport)
		}
		return os.Open(exports[pkg])
	})}
	if _, err := conf.Check(p.ImportPath, fset, files, info); err != nil {
		return nil, fmt.Errorf("type check: %w", err)
	}
	c := &purity{fset: fset, info: info, sortedKeys: map[ast.Node]bool{}}
	for _, f := range files {
		c.file(f)
	}
	return c.found, nil
}

// errNoExport is a package that go list could not compile, or did not list.
var errNoExport = errors.New("no export data")

// purity is one pass over the files of one package.
type purity struct {
	fset       *token.FileSet
	info       *types.Info
	marked     map[int]bool      // lines of the file at hand with an orderFree mark
	sortedKeys map[ast.Node]bool // calls such as maps.Keys inside a sort
	found      []Finding
}

func (c *purity) report(n ast.Node, format string, args ...any) {
	c.found = append(c.found, Finding{c.fset.Position(n.Pos()), "purity", fmt.Sprintf(format, args...)})
}

func (c *purity) file(f *ast.File) {
	c.marked = markedLines(c.fset, f, orderFree)
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.GenDecl:
			c.variables(d)
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.Name == "init" {
				c.report(d, "init: build the value where it is used")
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		c.node(n)
		return true
	})
}

func (c *purity) node(n ast.Node) {
	switch n := n.(type) {
	case *ast.GoStmt:
		c.report(n, "go statement: a decision is made on the caller's goroutine")
	case *ast.ChanType:
		c.report(n, "channel: hand values in and out")
	case *ast.SendStmt, *ast.SelectStmt:
		c.report(n, "channel operation: hand values in and out")
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			c.report(n, "channel operation: hand values in and out")
		}
		if n.Op == token.AND {
			c.assigned(n.X, "has its address taken")
		}
	case *ast.AssignStmt:
		for _, lhs := range n.Lhs {
			c.assigned(lhs, "is assigned")
		}
	case *ast.IncDecStmt:
		c.assigned(n.X, "is assigned")
	case *ast.RangeStmt:
		c.ranged(n)
	case *ast.CallExpr:
		c.call(n)
	case *ast.SelectorExpr:
		c.method(n)
	case *ast.Ident:
		c.use(n)
	}
}

// variables refuses package variables but error sentinels, interface assertions
// and unexported tables.
func (c *purity) variables(d *ast.GenDecl) {
	if d.Tok != token.VAR {
		return
	}
	for _, s := range d.Specs {
		spec, ok := s.(*ast.ValueSpec)
		if !ok {
			continue
		}
		for i, name := range spec.Names {
			switch {
			case name.Name == "_":
			case strings.HasPrefix(strings.ToLower(name.Name), "err") && isError(c.info.Defs[name]):
			case i < len(spec.Values) && isTable(spec.Values[i]) && !name.IsExported():
			case i < len(spec.Values) && isTable(spec.Values[i]):
				c.report(name, "exported table %s: any package could assign it; return it from a function", name.Name)
			default:
				c.report(name, "package variable %s: pass it in, or make it a constant", name.Name)
			}
		}
	}
}

func isTable(x ast.Expr) bool {
	_, ok := x.(*ast.CompositeLit)
	return ok
}

func isError(obj types.Object) bool {
	return obj != nil && types.Identical(obj.Type(), types.Universe.Lookup("error").Type())
}

// assigned reports an expression that would change a package variable.
func (c *purity) assigned(x ast.Expr, how string) {
	if v := c.global(x); v != nil {
		c.report(x, "package variable %s %s: tables never change", v.Name(), how)
	}
}

// global returns the package variable that an expression is, or is a part of.
func (c *purity) global(x ast.Expr) *types.Var {
	for {
		switch e := ast.Unparen(x).(type) {
		case *ast.IndexExpr:
			x = e.X
		case *ast.SliceExpr:
			x = e.X
		case *ast.StarExpr:
			x = e.X
		case *ast.SelectorExpr:
			if v, ok := c.info.Uses[e.Sel].(*types.Var); ok && isGlobal(v) {
				return v
			}
			x = e.X
		case *ast.Ident:
			if v, ok := c.info.Uses[e].(*types.Var); ok && isGlobal(v) {
				return v
			}
			return nil
		default:
			return nil
		}
	}
}

func isGlobal(v *types.Var) bool {
	return !v.IsField() && v.Pkg() != nil && v.Parent() == v.Pkg().Scope()
}

// ranged refuses a loop whose order is the runtime's choice.
func (c *purity) ranged(n *ast.RangeStmt) {
	if n.Tok == token.ASSIGN {
		for _, x := range []ast.Expr{n.Key, n.Value} {
			if x != nil {
				c.assigned(x, "is assigned")
			}
		}
	}
	if isMap(c.info.TypeOf(n.X)) && !c.isMarked(n) {
		c.report(n, "range over a map: use slices.Sorted(maps.Keys(m)), or say // %s why", orderFree)
	}
}

func isMap(t types.Type) bool {
	if t == nil {
		return false
	}
	switch u := t.Underlying().(type) {
	case *types.Map:
		return true
	case *types.Interface: // a type parameter: check its constraint
		for e := range u.EmbeddedTypes() {
			if union, ok := e.(*types.Union); ok {
				for term := range union.Terms() {
					if isMap(term.Type()) {
						return true
					}
				}
			} else if isMap(e) {
				return true
			}
		}
	}
	return false
}

func (c *purity) isMarked(n ast.Node) bool {
	return c.marked[c.fset.Position(n.Pos()).Line]
}

// call refuses calls that print, change a table, or depend on the order of a map.
func (c *purity) call(n *ast.CallExpr) {
	if id, ok := ast.Unparen(n.Fun).(*ast.Ident); ok {
		if _, builtin := c.info.Uses[id].(*types.Builtin); builtin {
			c.builtin(n, id.Name)
			return
		}
	}
	fn := c.callee(n)
	if fn == nil || fn.Pkg() == nil {
		return
	}
	switch pkg, name := fn.Pkg().Path(), fn.Name(); {
	case pkg == "slices" && strings.HasPrefix(name, "Sorted"):
		if len(n.Args) > 0 {
			c.sortedKeys[ast.Unparen(n.Args[0])] = true
		}
	case pkg == "maps" && (name == "Keys" || name == "Values" || name == "All"):
		if !c.sortedKeys[n] && !c.isMarked(n) {
			c.report(n, "maps.%s in the order of a map: sort it immediately, or say // %s why", name, orderFree)
		}
	case (pkg == "slices" || pkg == "sort" || pkg == "maps") && changes(name) && len(n.Args) > 0:
		c.assigned(n.Args[0], "is changed by "+pkg+"."+name)
	case pkg == "fmt" && strings.HasPrefix(name, "Fprint"):
		if len(n.Args) > 0 && !isBuffer(c.info.TypeOf(n.Args[0])) {
			c.report(n, "fmt.%s to other than a strings.Builder or bytes.Buffer: a decision writes nothing", name)
		}
	}
}

// callee returns the function that a call names, generic or not.
func (c *purity) callee(n *ast.CallExpr) *types.Func {
	fun := ast.Unparen(n.Fun)
	switch f := fun.(type) {
	case *ast.IndexExpr:
		fun = f.X
	case *ast.IndexListExpr:
		fun = f.X
	}
	switch f := fun.(type) {
	case *ast.Ident:
		fn, _ := c.info.Uses[f].(*types.Func)
		return fn
	case *ast.SelectorExpr:
		fn, _ := c.info.Uses[f.Sel].(*types.Func)
		return fn
	}
	return nil
}

func (c *purity) builtin(n *ast.CallExpr, name string) {
	switch name {
	case "print", "println":
		c.report(n, "%s: a decision prints nothing", name)
	case "clear", "copy", "delete":
		if len(n.Args) > 0 {
			c.assigned(n.Args[0], "is changed by "+name)
		}
	}
}

// changes reports whether a function of slices, sort or maps changes its first
// argument.
func changes(name string) bool {
	return slices.Contains([]string{
		"Compact", "CompactFunc", "Copy", "Delete", "DeleteFunc", "Insert", "Ints", "Replace", "Reverse",
		"Slice", "SliceStable", "Sort", "SortFunc", "SortStableFunc", "Stable", "Strings",
	}, name)
}

func isBuffer(t types.Type) bool {
	if t == nil {
		return false
	}
	name := t.String()
	return name == "*strings.Builder" || name == "*bytes.Buffer"
}

// method refuses methods that change a table or read the machine's state.
func (c *purity) method(n *ast.SelectorExpr) {
	sel, ok := c.info.Selections[n]
	if !ok || sel.Kind() != types.MethodVal {
		return
	}
	fn := sel.Obj()
	if fn.Pkg() != nil && slices.Contains(impure[fn.Pkg().Path()], fn.Name()) {
		c.report(n, "%s.%s reads the machine: hand the value in", fn.Pkg().Path(), fn.Name())
	}
	sig, ok := fn.Type().(*types.Signature)
	if !ok || sig.Recv() == nil {
		return
	}
	if _, pointer := sig.Recv().Type().(*types.Pointer); pointer {
		c.assigned(n.X, "may be changed by its method "+fn.Name())
	}
}

// use refuses names of the standard library that do more than compute.
func (c *purity) use(id *ast.Ident) {
	obj := c.info.Uses[id]
	if obj == nil || obj.Pkg() == nil || obj.Parent() != obj.Pkg().Scope() {
		return
	}
	pkg, name := obj.Pkg().Path(), obj.Name()
	if slices.Contains(impure[pkg], name) {
		c.report(id, "%s.%s reads the machine, waits or starts something: hand the value in", pkg, name)
		return
	}
	allowed, limited := pureFuncs[pkg]
	if _, isFunc := obj.(*types.Func); !limited || !isFunc || slices.Contains(allowed, name) {
		return
	}
	if pkg == "fmt" && strings.HasPrefix(name, "Fprint") {
		return // call sees to it
	}
	c.report(id, "%s.%s is not among the pure functions of %s: take the value as an argument", pkg, name, pkg)
}
