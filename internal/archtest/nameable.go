package archtest

import (
	"context"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"strings"
)

// loadExported returns the exported declarations of packages, by their names.
func loadExported(ctx context.Context, dir string, names ...string) ([]*types.Package, error) {
	listed, err := goList(ctx, dir, append([]string{"-export", "-deps"}, names...)...)
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	for _, p := range listed {
		exports[p.ImportPath] = p.Export
	}
	load := importer.ForCompiler(token.NewFileSet(), "gc", func(pkg string) (io.ReadCloser, error) {
		if exports[pkg] == "" {
			return nil, fmt.Errorf("%s: %w", pkg, errNoExport)
		}
		return os.Open(exports[pkg])
	})
	var pkgs []*types.Package
	for _, name := range names {
		p, err := load.Import(name)
		if err != nil {
			return nil, fmt.Errorf("load %s: %w", name, err)
		}
		pkgs = append(pkgs, p)
	}
	return pkgs, nil
}

// unnameable reports types in the exported declarations of public packages that other modules cannot name: types of
// internal packages without an exported alias in a public package, and constants of such types without a copy beside
// the alias.
func unnameable(pkgs []*types.Package) []Finding {
	c := &naming{aliases: map[*types.TypeName]*types.TypeName{}, seen: map[types.Type]bool{}}
	for _, p := range pkgs {
		for _, name := range p.Scope().Names() {
			if t, ok := p.Scope().Lookup(name).(*types.TypeName); ok && t.Exported() && t.IsAlias() {
				if target, ok := types.Unalias(t.Type()).(*types.Named); ok && isInternal(target.Obj()) {
					c.aliases[target.Obj()] = t
				}
			}
		}
	}
	for _, p := range pkgs {
		for _, name := range p.Scope().Names() {
			if o := p.Scope().Lookup(name); o.Exported() {
				c.object(o)
			}
		}
	}
	c.constants()
	return sorted(c.found)
}

// naming is one pass over the public packages.
type naming struct {
	aliases map[*types.TypeName]*types.TypeName // public aliases of internal types
	seen    map[types.Type]bool
	found   []Finding
}

func isInternal(o types.Object) bool {
	return o.Pkg() != nil && strings.HasPrefix(o.Pkg().Path(), modulePath+"/internal/")
}

func (c *naming) report(format string, args ...any) {
	c.found = append(c.found, Finding{token.Position{Filename: "api"}, "nameable", fmt.Sprintf(format, args...)})
}

func (c *naming) object(o types.Object) {
	where := o.Pkg().Path() + "." + o.Name()
	c.visit(o.Type(), where)
	if t, ok := o.(*types.TypeName); ok {
		if named, ok := types.Unalias(t.Type()).(*types.Named); ok && !isInternal(named.Obj()) {
			for m := range named.Methods() {
				if m.Exported() {
					c.visit(m.Type(), where+"."+m.Name())
				}
			}
		}
	}
}

// visit checks all types that a value of t reaches by exported fields, elements and results.
func (c *naming) visit(t types.Type, where string) {
	t = types.Unalias(t)
	if c.seen[t] {
		return
	}
	c.seen[t] = true
	switch t := t.(type) {
	case *types.Named:
		o := t.Obj()
		for arg := range t.TypeArgs().Types() {
			c.visit(arg, where)
		}
		switch {
		case o.Pkg() == nil || !strings.HasPrefix(o.Pkg().Path(), modulePath+"/"):
			return // the standard library's, or another module's
		case isInternal(o) && c.aliases[o] == nil:
			c.report("%s mentions %s, which other modules cannot name: give it an alias in package api", where,
				o.Name())
		}
		c.visit(t.Underlying(), where)
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() || f.Embedded() {
				c.visit(f.Type(), where+"."+f.Name())
			}
		}
	case *types.Signature:
		c.visit(t.Params(), where)
		c.visit(t.Results(), where)
	case *types.Tuple:
		for v := range t.Variables() {
			c.visit(v.Type(), where)
		}
	case *types.Interface:
		for m := range t.Methods() {
			c.visit(m.Type(), where+"."+m.Name())
		}
	case *types.Map:
		c.visit(t.Key(), where)
		c.visit(t.Elem(), where)
	case interface{ Elem() types.Type }: // pointer, slice, array, channel
		c.visit(t.Elem(), where)
	}
}

// constants requires that the constants of an internal type are beside its alias, under any name.
func (c *naming) constants() {
	for target, alias := range c.aliases {
		public := map[string]bool{}
		for _, name := range alias.Pkg().Scope().Names() {
			if k, ok := alias.Pkg().Scope().Lookup(name).(*types.Const); ok && k.Exported() &&
				types.Identical(k.Type(), target.Type()) {
				public[k.Val().ExactString()] = true
			}
		}
		for _, name := range target.Pkg().Scope().Names() {
			if k, ok := target.Pkg().Scope().Lookup(name).(*types.Const); ok && k.Exported() &&
				types.Identical(k.Type(), target.Type()) && !public[k.Val().ExactString()] {
				c.report("%s has no constant for %s.%s", alias.Name(), target.Pkg().Name(), name)
			}
		}
	}
}
