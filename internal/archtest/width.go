package archtest

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	// maxColumns is the widest line of source or of documentation; a tab counts as tabColumns.
	maxColumns = 120
	tabColumns = 4
	// longText is the length, in columns, from which a string in a test may make its line too wide, because tests
	// compare whole lines of output.
	longText = 60
)

var (
	generatedGo       = regexp.MustCompile(`^// Code generated .* DO NOT EDIT\.$`)
	generatedMarkdown = regexp.MustCompile(`\A# .*\n\n.*Generated from .*make generate`)
)

// ciDir is the hidden folder that the rules for text read, too.
const ciDir = ".ci"

// generatedYAML is the description of the API, which go generate writes.
const generatedYAML = "api/openapi.yaml"

// isScript reports whether a file is a script or the Makefile.
func isScript(name string) bool {
	dir, base := path.Split(name)
	return base == "Makefile" || path.Ext(name) == ".sh" ||
		path.Ext(name) == "" && (dir == "scripts/" || dir == ciDir+"/")
}

// lineFinder returns the function that finds the lines of a file that are too wide; nil if the file has no such rule.
func lineFinder(name string) func(name string, src []byte) []int {
	switch path.Ext(name) {
	case ".go":
		return wideGo
	case ".md":
		return wideMarkdown
	case ".yaml", ".yml":
		if name != generatedYAML {
			return wideText
		}
	}
	if isScript(name) {
		return wideText
	}
	return nil
}

// widths finds the lines of Go, Markdown, YAML, scripts and the Makefile that are wider than maxColumns. These may be:
//   - lines of Go that hold a part of a raw string, a directive such as //go:generate, or, in tests, a long string;
//   - files that are generated;
//   - rows of a table, and lines of code, in Markdown;
//   - lines that cannot be broken, as they hold one long word.
func widths(tree fs.FS) ([]Finding, error) {
	var found []Finding
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		wide := lineFinder(name)
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && name != ciDir && skipDir(d.Name()):
			return fs.SkipDir
		case d.IsDir() || wide == nil:
			return nil
		}
		src, err := fs.ReadFile(tree, name)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		for _, line := range wide(name, src) {
			found = append(found, Finding{
				Pos: token.Position{Filename: name, Line: line}, Rule: "width",
				Text: fmt.Sprintf("the line is wider than %d columns", maxColumns),
			})
		}
		return nil
	})
	return sorted(found), err
}

// columns returns how wide a line is.
func columns(line []byte) int {
	return utf8.RuneCount(line) + (tabColumns-1)*bytes.Count(line, []byte("\t"))
}

// wideGo returns the numbers of the lines of a Go file that are too wide.
func wideGo(name string, src []byte) (wide []int) {
	lines := bytes.Split(src, []byte("\n"))
	may := map[int]bool{}
	fset := token.NewFileSet()
	file := fset.AddFile(name, -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, scanner.ScanComments)
	for {
		pos, kind, text := s.Scan()
		if kind == token.EOF {
			break
		}
		line := fset.Position(pos).Line
		switch {
		case kind == token.STRING && text[0] == '`':
			for i := range strings.Count(text, "\n") + 1 {
				may[line+i] = true
			}
		case kind == token.STRING && strings.HasSuffix(name, "_test.go") && len(text) > longText:
			may[line] = true
		case kind == token.COMMENT && (strings.HasPrefix(text, "//go:") || strings.HasPrefix(text, "//nolint")):
			may[line] = true
		case kind == token.COMMENT && generatedGo.MatchString(text):
			return nil
		}
	}
	for i, line := range lines {
		if columns(line) > maxColumns && !may[i+1] {
			wide = append(wide, i+1)
		}
	}
	return wide
}

// wideText returns the numbers of all lines of a file that are too wide.
func wideText(_ string, src []byte) (wide []int) {
	for i, line := range bytes.Split(src, []byte("\n")) {
		if columns(line) > maxColumns {
			wide = append(wide, i+1)
		}
	}
	return wide
}

// wideMarkdown returns the numbers of the lines of a Markdown file that are too wide.
func wideMarkdown(_ string, src []byte) (wide []int) {
	if generatedMarkdown.Match(src) {
		return nil
	}
	var code bool
	for i, line := range bytes.Split(src, []byte("\n")) {
		text := bytes.TrimSpace(line)
		if bytes.HasPrefix(text, []byte("```")) {
			code = !code
		}
		if code || bytes.HasPrefix(text, []byte("|")) || columns(line) <= maxColumns {
			continue
		}
		head := bytes.TrimLeft(text[:min(len(text), maxColumns)], "-*0123456789. ")
		if bytes.ContainsRune(head, ' ') {
			wide = append(wide, i+1)
		}
	}
	return wide
}
