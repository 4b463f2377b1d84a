package readme_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	messageRow  = regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|")
	codeSpan    = regexp.MustCompile("`([^`]+)`")
	formatVerb  = regexp.MustCompile(`%[-+#0]*[0-9.]*[a-zA-Z]`)
	placeholder = "…"
)

// minFragment is the length of the shortest part of a message that is searched for.
const minFragment = 4

// TestTroubleshootingQuotesRealMessages searches the texts of the program for each part of each message that the page
// quotes. A changed message must change on the page, too.
func TestTroubleshootingQuotesRealMessages(t *testing.T) {
	root := treeOf(t)
	texts := programTexts(t, root)
	page := pages(t, root)[filepath.Join("docs", "guide", "troubleshooting.md")]
	checked := 0
	for _, row := range messageRow.FindAllStringSubmatch(page, -1) {
		for _, m := range codeSpan.FindAllStringSubmatch(row[1], -1) {
			longest := 0
			for part := range strings.SplitSeq(m[1], placeholder) {
				part = strings.Trim(part, " ")
				if len(part) < minFragment {
					continue
				}
				longest = max(longest, len(part))
				if !strings.Contains(texts, part) {
					t.Errorf("no text of the program contains %q of the message %q", part, m[1])
				}
			}
			if checked++; longest < minFragment {
				t.Errorf("the message %q has no part that can be searched for", m[1])
			}
		}
	}
	if checked < 60 {
		t.Errorf("the page quotes %d messages, which cannot be all of them", checked)
	}
}

// programTexts returns the texts in the code of the program, a line each. Numbers and names in them are placeholders.
func programTexts(t *testing.T, root string) string {
	t.Helper()
	var b strings.Builder
	for _, dir := range []string{"internal", "cmd", "api"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				e, ok := n.(ast.Expr)
				if !ok {
					return true
				}
				text, ok := literalText(e)
				if ok {
					b.WriteString(formatVerb.ReplaceAllString(text, placeholder) + "\n")
				}
				return !ok
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// literalText returns the text of a literal, or of a sum of which parts are literals.
func literalText(e ast.Expr) (string, bool) {
	switch v := e.(type) {
	case *ast.BasicLit:
		if v.Kind != token.STRING {
			return "", false
		}
		text, err := strconv.Unquote(v.Value)
		return text, err == nil
	case *ast.ParenExpr:
		return literalText(v.X)
	case *ast.BinaryExpr:
		if v.Op != token.ADD {
			return "", false
		}
		left, isLeft := literalText(v.X)
		right, isRight := literalText(v.Y)
		switch {
		case isLeft && isRight:
			return left + right, true
		case isLeft:
			return left + placeholder, true
		case isRight:
			return placeholder + right, true
		}
	}
	return "", false
}

func TestLiteralText(t *testing.T) {
	for _, test := range [][2]string{
		{`"one " + "two"`, "one two"},
		{`"needs " + name + " of " + "it"`, "needs … of it"},
		{`("a" + "b")`, "ab"},
	} {
		e, err := parser.ParseExpr(test[0])
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := literalText(e); got != test[1] {
			t.Errorf("%s: got %q, want %q", test[0], got, test[1])
		}
	}
}
