// Package output formats results: tables, colours, JSON, templates, sizes and times.
package output

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"text/template"

	"github.com/theory/jsonpath"

	"github.com/berthd/berth/internal/hinted"
)

// Outputs with a text of the user: -o jsonpath=$.nodes[*].name and -o go-template={{.name}}, see also outputColumns.
const (
	outputJSONPath   = "jsonpath"
	outputGoTemplate = "go-template"
)

// Template prints a value in a form that the user chose. The value consists of the types of JSON: maps, slices,
// strings, integers, floats, booleans and nil.
type Template interface {
	Write(w io.Writer, v any) error
}

// NewTemplate parses the value of -o. It returns nil for an output without a template. With noTitles, columns have no
// titles. An error names the place in the text.
func NewTemplate(output string, noTitles bool) (Template, error) {
	kind, text, given := strings.Cut(output, "=")
	switch {
	case kind != outputJSONPath && kind != outputGoTemplate && kind != outputColumns:
		return nil, nil //nolint:nilnil // another output
	case !given || strings.TrimSpace(text) == "":
		return nil, fmt.Errorf("-o %s: it is empty: want %s", kind, map[string]string{
			outputJSONPath:   "a path, such as -o 'jsonpath=$.status.state'",
			outputGoTemplate: "a template, such as -o 'go-template={{.status.state}}'",
			outputColumns:    "columns, such as -o custom-columns=NAME:.name,STATE:.status.state",
		}[kind])
	case kind == outputJSONPath:
		return newJSONPath(text)
	case kind == outputColumns:
		return newColumns(text, noTitles)
	}
	return newGoTemplate(text)
}

// jsonPathTemplate prints each value that a JSONPath query (RFC 9535) selects, one a line, strings without quotes.
type jsonPathTemplate struct{ path *jsonpath.Path }

// positionSuffix matches the position at the end of a parse error of the JSONPath library.
var positionSuffix = regexp.MustCompile(` at position (\d+)$`)

func newJSONPath(text string) (Template, error) {
	query := normalizePath(text)
	path, err := jsonpath.Parse(query)
	if err == nil {
		return jsonPathTemplate{path}, nil
	}
	message := strings.TrimPrefix(err.Error(), "jsonpath: ")
	if m := positionSuffix.FindStringSubmatch(message); m != nil {
		at, _ := strconv.Atoi(m[1])
		message += "\n  " + query + "\n  " + strings.Repeat(" ", max(0, at-1)) + "^"
	}
	err = fmt.Errorf("-o jsonpath: %s", message)
	if strings.ContainsAny(query, "{}") {
		return nil, &hinted.Error{
			Err: err,
			Hint: "jsonpath takes one path of RFC 9535, without text around it and without range. Use " +
				"-o go-template=… for those.",
		}
	}
	return nil, &hinted.Error{Err: err, Hint: "Write a path of RFC 9535, such as $.nodes[?@.state=='down'].name."}
}

// normalizePath accepts other notations of a path: {.status.state} and .status.state become $.status.state.
func normalizePath(text string) string {
	text = strings.TrimSpace(text)
	if inner, ok := strings.CutPrefix(text, "{"); ok && strings.HasSuffix(inner, "}") && strings.Count(text, "{") == 1 {
		text = strings.TrimSpace(strings.TrimSuffix(inner, "}"))
	}
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "[") {
		text = "$" + text
	}
	return text
}

func (s jsonPathTemplate) Write(w io.Writer, v any) error {
	var b bytes.Buffer
	nodes := s.path.SelectLocated(v)
	// A query that names several members has an order. Otherwise the order of an object's members is random.
	if !strings.Contains(s.path.String(), ",") {
		nodes.Sort()
	}
	for _, found := range nodes {
		text, err := encodeBare(found.Node)
		if err != nil {
			return err
		}
		b.WriteString(text + "\n")
	}
	_, err := w.Write(b.Bytes())
	return err
}

// encodeBare returns a string as it is, and any other value as JSON on one line.
func encodeBare(v any) (string, error) {
	if text, ok := v.(string); ok {
		return text, nil
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "", fmt.Errorf("encode output: %w", err)
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// goTemplate prints a value through a text/template with the additional functions json, join, lower and upper.
type goTemplate struct{ template *template.Template }

func newGoTemplate(text string) (Template, error) {
	t, err := template.New(outputGoTemplate).Funcs(template.FuncMap{
		"json": encodeLine, "join": joinList, "lower": strings.ToLower, "upper": strings.ToUpper,
	}).Parse(text)
	if err != nil {
		return nil, templateError(err)
	}
	return goTemplate{t}, nil
}

func (s goTemplate) Write(w io.Writer, v any) error {
	var b bytes.Buffer
	if err := s.template.Execute(&b, v); err != nil {
		return templateError(err)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// templatePlace matches the place at the start of a template error: "template: go-template:1:12: …".
var templatePlace = regexp.MustCompile(`^template: ` + outputGoTemplate + `:(\d+)(?::(\d+))?: (?:executing "` +
	outputGoTemplate + `" )?`)

func templateError(err error) error {
	text := err.Error()
	m := templatePlace.FindStringSubmatch(text)
	if m == nil {
		return fmt.Errorf("-o go-template: %w", err)
	}
	at := "line " + m[1]
	if column, err := strconv.Atoi(m[2]); err == nil { // counted from 0
		at += fmt.Sprintf(", column %d", column+1)
	}
	return &hinted.Error{
		Err:  fmt.Errorf("-o go-template: %s: %s", at, text[len(m[0]):]),
		Hint: "Write a template of Go's text/template for the data that -o json prints.",
	}
}

// encodeLine is the template function json. It returns any value on one line.
func encodeLine(v any) (string, error) {
	if text, ok := v.(string); ok {
		return strconv.Quote(text), nil
	}
	return encodeBare(v)
}

// joinList is the template function join. It joins the elements of a list with a separator.
func joinList(sep string, list any) (string, error) {
	elements, ok := list.([]any)
	if !ok {
		return "", errors.New("join takes a list, as in {{join \", \" .zones}}")
	}
	texts := make([]string, len(elements))
	for i, e := range elements {
		text, err := encodeBare(e)
		if err != nil {
			return "", err
		}
		texts[i] = text
	}
	return strings.Join(texts, sep), nil
}

// Decode decodes JSON into maps, slices and scalars. Integers of any size stay exact.
func Decode(encoded []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(encoded))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("encode output: %w", err)
	}
	return convertNumbers(v), nil
}

// convertNumbers replaces each number by a type that templates and queries can compare.
func convertNumbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v { // order-free: each is replaced in its place
			v[k] = convertNumbers(e)
		}
	case []any:
		for i, e := range v {
			v[i] = convertNumbers(e)
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		if f, err := v.Float64(); err == nil {
			return f
		}
	}
	return v
}
