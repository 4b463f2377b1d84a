package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"regexp"
)

// quotedWord is a value in a comment, such as "rolling-out".
var quotedWord = regexp.MustCompile(`"[a-z]+(-[a-z]+)*"`)

// textFields reports the fields of type string whose comment quotes two or more words: "healthy" or "failing". Such a
// field gets a type with constants, so that the generated documents list its values. The fields in plain, as
// "Type.Field", are exceptions; one that needs no exception is reported as well.
func textFields(tree fs.FS, dirs []string, plain map[string]string) ([]Finding, error) {
	var found []Finding
	unused := map[string]bool{}
	for name := range plain {
		unused[name] = true
	}
	for _, dir := range dirs {
		fset, files, err := parseDir(tree, dir)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			for field, at := range listingFields(f) {
				delete(unused, field)
				if plain[field] == "" {
					found = append(found, Finding{fset.Position(at), "textfields", fmt.Sprintf(
						"the comment of %s lists values: give them a type with constants and Values", field)})
				}
			}
		}
	}
	for name := range unused {
		found = append(found, Finding{token.Position{Filename: "policy.go"}, "textfields", fmt.Sprintf(
			"%s needs no exception", name)})
	}
	return sorted(found), nil
}

// listingFields returns the positions of the string fields of a file whose comments quote several words, by their
// names.
func listingFields(f *ast.File) map[string]token.Pos {
	found := map[string]token.Pos{}
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		structure, ok := spec.Type.(*ast.StructType)
		if !ok {
			return true
		}
		for _, field := range structure.Fields.List {
			kind, ok := field.Type.(*ast.Ident)
			comment := field.Doc.Text() + field.Comment.Text()
			if !ok || kind.Name != "string" || len(quotedWord.FindAllString(comment, -1)) < 2 {
				continue
			}
			for _, name := range field.Names {
				found[spec.Name.Name+"."+name.Name] = name.Pos()
			}
		}
		return true
	})
	return found
}

// plainTexts lists fields of type string whose comments quote several words, each with the reason.
var plainTexts = map[string]string{
	"Gate.Pass":          "the words are variables of an expression",
	"RankPart.Name":      "some names hold a user's words, and a later build adds more",
	"SimulateNodes.Name": "the words are names of nodes",
}
