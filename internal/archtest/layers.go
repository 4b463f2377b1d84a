package archtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/token"
	"io"
	"os/exec"
	"slices"
	"strings"
)

// listed is the output of `go list` for one package.
type listed struct {
	ImportPath   string
	Dir          string
	Export       string // file of export data, with -export
	Standard     bool
	GoFiles      []string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// goList runs `go list -json` in dir. Packages that do not compile are listed as far
// as they parse: whether they compile is the compiler's to say.
func goList(ctx context.Context, dir string, args ...string) ([]listed, error) {
	fields := "ImportPath,Dir,Export,Standard,GoFiles,Imports,TestImports,XTestImports"
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-e", "-json=" + fields}, args...)...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, stderr.String())
	}
	var pkgs []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs, nil
		} else if err != nil {
			return nil, fmt.Errorf("decode go list: %w", err)
		}
		pkgs = append(pkgs, p)
	}
}

// policy is the tables of policy.go as one value, so that a test can hand the
// checkers another.
type policy struct {
	module      string
	layers      map[string][]string
	proof       []string
	drivers     map[string][]string
	modules     map[string][]string
	testModules []string
	pure        []string // standard packages of the pure layers
}

// current is the policy of this tree.
func current() policy {
	return policy{
		module: modulePath, layers: layers(), proof: proof, drivers: drivers,
		modules: modules, testModules: testModules, pure: pureStandard,
	}
}

// check returns the violations of the tables by the packages, and the rows of the tables without a package.
func (p policy) check(pkgs []listed) []Finding {
	c := layerCheck{policy: p, rows: map[string]bool{}, named: map[string]bool{}, mods: map[string]bool{}}
	for _, pkg := range pkgs {
		c.add(pkg)
	}
	for row := range p.layers {
		if !c.rows[row] {
			c.report(row, "layers", "has a row but no package: remove the row")
		}
	}
	for driver := range p.drivers {
		if !c.named[driver] {
			c.report(driver, "drivers", "has a row but nobody imports it: remove the row")
		}
	}
	for mod := range p.modules {
		if !c.mods[mod] {
			c.report(mod, "modules", "has a row but no package imports it: remove the row")
		}
	}
	return sorted(c.found)
}

// layerCheck is one pass over the packages.
type layerCheck struct {
	policy
	rows  map[string]bool // rows of layers that a package matched
	named map[string]bool // rows of drivers that an import matched
	mods  map[string]bool // rows of modules that an import matched
	found []Finding
}

func (c *layerCheck) report(name, rule, text string) {
	c.found = append(c.found, Finding{Pos: token.Position{Filename: name}, Rule: rule, Text: text})
}

func (c *layerCheck) add(pkg listed) {
	name := c.local(pkg.ImportPath)
	row, allowed, ok := c.row(name)
	if !ok {
		c.report(name, "layers", fmt.Sprintf("has no row: add %q to layers in its layer", name))
		return
	}
	c.rows[row] = true
	for _, imp := range pkg.Imports {
		c.code(name, allowed, imp)
	}
	for _, imp := range slices.Concat(pkg.TestImports, pkg.XTestImports) {
		c.test(name, imp)
	}
}

// code checks one import of a package outside its tests.
func (c *layerCheck) code(name string, allowed []string, imp string) {
	dep, ours := c.ours(imp)
	users, isDriver := c.drivers[dep]
	c.named[dep] = c.named[dep] || isDriver
	switch {
	case ours && isDriver && !matchAny(users, name):
		c.report(name, "drivers", fmt.Sprintf("must not name the driver %s", dep))
	case ours && matchAny(c.proof, dep) && !matchAny(c.proof, name):
		c.report(name, "layers", fmt.Sprintf("must not import %s outside tests", dep))
	case ours && !matchAny(allowed, dep):
		c.report(name, "layers", fmt.Sprintf("must not import %s", dep))
	case ours:
	case match("testing/...", imp) && !matchAny(c.proof, name):
		c.report(name, "layers", fmt.Sprintf("must not import %q outside tests", imp))
	case isPure(name) && !slices.Contains(c.pure, imp):
		c.report(name, "layers", fmt.Sprintf("decides, so it must not import %q", imp))
	case isStandard(imp):
	case matchAny(c.proof, name) && c.forTests(imp):
	case !c.mayUse(name, imp):
		c.report(name, "modules", fmt.Sprintf("must not import %q", imp))
	}
}

// test checks one import of a package's tests: any package of ours, but of the
// modules only those for tests and those of its own row.
func (c *layerCheck) test(name, imp string) {
	if _, ours := c.ours(imp); ours || isStandard(imp) || c.forTests(imp) || c.mayUse(name, imp) {
		return
	}
	c.report(name, "modules", fmt.Sprintf("must not import %q in its tests", imp))
}

// row returns the most specific row for a package.
func (c *layerCheck) row(name string) (row string, allowed []string, ok bool) {
	if allowed, ok := c.layers[name]; ok {
		return name, allowed, true
	}
	for r, a := range c.layers {
		if strings.HasSuffix(r, "/...") && match(r, name) && len(r) > len(row) {
			row, allowed, ok = r, a, true
		}
	}
	return row, allowed, ok
}

func (c *layerCheck) mayUse(name, imp string) bool {
	best := ""
	for mod := range c.modules {
		if match(mod+"/...", imp) && len(mod) > len(best) {
			best = mod
		}
	}
	if best == "" {
		return false
	}
	c.mods[best] = true
	return matchAny(c.modules[best], name)
}

func (c *layerCheck) forTests(imp string) bool {
	return slices.ContainsFunc(c.testModules, func(mod string) bool { return match(mod+"/...", imp) })
}

// ours cuts the module's path from an import path.
func (c *layerCheck) ours(imp string) (string, bool) {
	if imp == c.module {
		return ".", true
	}
	return strings.CutPrefix(imp, c.module+"/")
}

func (c *layerCheck) local(imp string) string {
	name, _ := c.ours(imp)
	return name
}

// isPure reports whether a package is of the layers that only compute.
func isPure(name string) bool {
	return match("internal/cluster/...", name) || strings.HasPrefix(name, "internal/logic/")
}

// isStandard reports whether an import path is of the standard library: its first
// element has no dot.
func isStandard(imp string) bool {
	first, _, _ := strings.Cut(imp, "/")
	return !strings.Contains(first, ".")
}

func matchAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return match(p, name) })
}

func match(pattern, name string) bool {
	prefix, wild := strings.CutSuffix(pattern, "...")
	return name == pattern || wild && strings.HasPrefix(name+"/", prefix)
}
