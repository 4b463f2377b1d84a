package output

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/theory/jsonpath"

	"github.com/berthd/berth/internal/hinted"
)

// outputColumns is the output with columns of the user: -o custom-columns=NAME:.name,STATE:.status.state.
const outputColumns = "custom-columns"

// NoValue is the cell of a column that the user chose for an object without such a value.
const NoValue = "<none>"

// Columns prints a table with columns that the user chose: a row for each element of a list, or one for an object.
type Columns struct {
	titles []string
	paths  []*jsonpath.Path
	// noTitles prints rows only.
	noTitles bool
}

// newColumns parses a list of columns: "NAME:.name,STATE:.status.state".
func newColumns(text string, noTitles bool) (*Columns, error) {
	c := &Columns{noTitles: noTitles}
	for i, part := range splitColumns(text) {
		title, path, ok := strings.Cut(part, ":")
		title = strings.TrimSpace(title)
		err := errors.New("it has the form TITLE:.path")
		var parsed *jsonpath.Path
		if ok && title != "" && strings.TrimSpace(path) != "" {
			parsed, err = jsonpath.Parse(columnPath(path))
		}
		if err != nil {
			return nil, &hinted.Error{
				Err: fmt.Errorf("-o %s: column %d, %q: %s", outputColumns, i+1, part,
					strings.TrimPrefix(err.Error(), "jsonpath: ")),
				Hint: "Write columns such as -o custom-columns=NAME:.name,STATE:.status.state with the fields that " +
					"-o json prints.",
			}
		}
		c.titles, c.paths = append(c.titles, title), append(c.paths, parsed)
	}
	return c, nil
}

// splitColumns splits a text at its commas, except at those in brackets.
func splitColumns(text string) (parts []string) {
	depth, from := 0, 0
	for i, r := range text {
		switch r {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 {
				parts, from = append(parts, text[from:i]), i+1
			}
		}
	}
	return append(parts, text[from:])
}

// columnPath returns the JSONPath query for the path of a column, such as .labels.app or .containers[0].image. The name
// of a field may have any character; "\\." is a point in it.
func columnPath(text string) string {
	rest := strings.TrimPrefix(normalizePath(text), "$")
	if rest != "" && rest[0] != '.' && rest[0] != '[' {
		rest = "." + rest
	}
	var b strings.Builder
	b.WriteString("$")
	for rest != "" {
		end := strings.Index(rest, "]")
		switch {
		case rest[0] == '[' && end > 0:
			b.WriteString(rest[:end+1])
			rest = rest[end+1:]
			continue
		case rest[0] != '.':
			return b.String() + rest // the parser of queries finds the fault
		case strings.HasPrefix(rest, ".."):
			b.WriteString("..")
			rest = rest[1:]
		}
		var name string
		switch name, rest = cutField(rest); name {
		case "":
		case "*":
			b.WriteString("[*]")
		default:
			b.WriteString("['" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(name) + "']")
		}
	}
	return b.String()
}

// cutField returns the name of the field at the begin of a path, and the rest of the path.
func cutField(path string) (name, rest string) {
	var b strings.Builder
	for i := 1; i < len(path); i++ {
		switch c := path[i]; {
		case c == '\\' && i+1 < len(path):
			i++
			b.WriteByte(path[i])
		case c == '.' || c == '[':
			return b.String(), path[i:]
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), ""
}

// Write prints the table of a list or of one object.
func (c *Columns) Write(w io.Writer, v any) error { return c.write(w, v, c.noTitles) }

// WriteItem prints the row of an element of a stream. The first one has the titles above it.
func (c *Columns) WriteItem(w io.Writer, v any) error {
	err := c.write(w, v, c.noTitles)
	c.noTitles = true
	return err
}

func (c *Columns) write(w io.Writer, v any, noTitles bool) error {
	items, ok := v.([]any)
	if !ok {
		items = []any{v}
	}
	t := Table{Titles: c.titles, KeepColumns: true}
	for _, item := range items {
		row := make([]string, len(c.paths))
		for i, path := range c.paths {
			text, err := columnCell(path, item)
			if err != nil {
				return err
			}
			row[i] = text
		}
		t.Add(row...)
	}
	_, err := io.WriteString(w, t.Render(Layout{NoTitles: noTitles}))
	return err
}

// columnCell returns the values that a path selects in an object, separated by commas.
func columnCell(path *jsonpath.Path, item any) (string, error) {
	nodes := path.SelectLocated(item)
	nodes.Sort()
	var texts []string
	for _, found := range nodes {
		text, err := encodeBare(found.Node)
		if err != nil {
			return "", err
		}
		texts = append(texts, strings.Join(strings.Fields(text), " "))
	}
	texts = slices.DeleteFunc(texts, func(text string) bool { return text == "" || text == "null" })
	return cmp.Or(strings.Join(texts, ","), NoValue), nil
}
