package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// readComments returns the comments of the types ("cluster.Service") and fields ("cluster.Service.Count") of packages,
// each on one line. It reads the files of their folders without the tests.
func readComments(folders ...string) (map[string]string, error) {
	comments := map[string]string{}
	for _, dir := range folders {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", dir, err)
		}
		before := len(comments)
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, fmt.Errorf("read the source: %w", err)
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, text,
				parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return nil, fmt.Errorf("parse the source: %w", err)
			}
			for _, decl := range file.Decls {
				if d, ok := decl.(*ast.GenDecl); ok {
					addComments(comments, file.Name.Name, d)
				}
			}
		}
		if len(comments) == before {
			return nil, fmt.Errorf("%s holds no package with types", dir)
		}
	}
	return comments, nil
}

// addComments adds the comments of the types of a declaration.
func addComments(comments map[string]string, pkg string, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		v, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		name, doc := pkg+"."+v.Name.Name, v.Doc
		if doc == nil {
			doc = d.Doc
		}
		comments[name] = oneLine(doc)
		if st, ok := v.Type.(*ast.StructType); ok {
			for _, f := range st.Fields.List {
				for _, field := range f.Names {
					comments[name+"."+field.Name] = strings.TrimSpace(oneLine(f.Doc) + " " + oneLine(f.Comment))
				}
			}
		}
	}
}

// oneLine returns a comment on one line.
func oneLine(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }
