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

// source holds what the source of package cluster says beyond its types.
type source struct {
	types map[string]string            // doc comments of types
	docs  map[string]map[string]string // comments of fields, by type and field
}

// readSource parses the files of a folder, without its tests.
func readSource(dir string) (*source, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	s := &source{map[string]string{}, map[string]map[string]string{}}
	set := token.NewFileSet()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read the source: %w", err)
		}
		file, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("parse the source: %w", err)
		}
		for _, decl := range file.Decls {
			if d, ok := decl.(*ast.GenDecl); ok {
				s.add(d)
			}
		}
	}
	if len(s.types) == 0 {
		return nil, fmt.Errorf("%s holds no package", dir)
	}
	return s, nil
}

func (s *source) add(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		if v, ok := spec.(*ast.TypeSpec); ok {
			doc := v.Doc
			if doc == nil {
				doc = d.Doc
			}
			s.types[v.Name.Name] = sentence(doc)
			if st, ok := v.Type.(*ast.StructType); ok {
				s.docs[v.Name.Name] = fieldDocs(st)
			}
		}
	}
}

func fieldDocs(st *ast.StructType) map[string]string {
	docs := map[string]string{}
	for _, f := range st.Fields.List {
		text := strings.TrimSpace(sentence(f.Doc) + " " + sentence(f.Comment))
		for _, name := range f.Names {
			docs[name.Name] = text
		}
	}
	return docs
}

// sentence returns a comment on one line.
func sentence(c *ast.CommentGroup) string {
	return strings.Join(strings.Fields(c.Text()), " ")
}
