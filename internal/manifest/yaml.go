package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// document is a part of a file between two markers. line is the number of its first line.
type document struct {
	line int
	text []byte
}

// read reads all objects of a file.
func (r *reader) read(data []byte) {
	if len(data) > MaxFile {
		r.fault(Position{File: r.file}, "", "the file is larger than %d MiB", MaxFile>>20)
		return
	}
	if !r.checkText(data) {
		return
	}
	data = bytes.TrimPrefix(data, []byte("\uFEFF"))
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	if r.refuseForeignText(data) {
		return
	}
	if isJSON(data) {
		r.readJSON(data)
		return
	}
	for i, doc := range split(data) {
		if i == MaxDocuments {
			r.fault(Position{r.file, doc.line, 1}, "", "the file has more than %d documents", MaxDocuments)
			return
		}
		if root := r.parseYAML(doc); root != nil {
			r.decode(root)
		}
	}
}

// checkText reports whether the file is text, and faults the first place that is not.
func (r *reader) checkText(data []byte) bool {
	line, column := 1, 1
	for rest := data; len(rest) > 0; {
		c, size := utf8.DecodeRune(rest)
		at := Position{r.file, line, column}
		switch {
		case c == utf8.RuneError && size == 1:
			r.fault(at, "", "byte 0x%02x is not UTF-8: a manifest is UTF-8 text", rest[0])
			return false
		case c < ' ' && c != '\t' && c != '\n' && c != '\r' || c == 0x7f:
			r.fault(at, "", "control character 0x%02x: a manifest is text", c)
			return false
		case c == '\n':
			line, column = line+1, 1
		default:
			column++
		}
		rest = rest[size:]
	}
	return true
}

// split cuts a file at its document markers. Each document is parsed by itself, so a fault in
// one hides no other; a marker is never inside a value, for YAML refuses that too.
func split(data []byte) []document {
	var docs []document
	open := document{line: 1}
	line, start := 0, 0
	for pos := 0; pos < len(data); {
		end := len(data)
		if i := bytes.IndexByte(data[pos:], '\n'); i >= 0 {
			end = pos + i + 1
		}
		line++
		if text := data[pos:end]; isMarker(text) {
			open.text = data[start:pos]
			docs = append(docs, open)
			// The rest of the marker's line belongs to the document.
			open, start = document{line: line}, pos
			if text[0] == '.' {
				open.line, start = line+1, end
			}
		}
		pos = end
	}
	open.text = data[start:]
	return append(docs, open)
}

func isMarker(line []byte) bool {
	for _, m := range []string{"---", "..."} {
		if rest, ok := bytes.CutPrefix(line, []byte(m)); ok &&
			(len(rest) == 0 || strings.ContainsRune(" \t\r\n", rune(rest[0]))) {
			return true
		}
	}
	return false
}

// parseYAML returns the value of a document, or nil if it has none or a fault.
func (r *reader) parseYAML(doc document) *node {
	first := Position{r.file, doc.line, 1}
	if len(doc.text) > MaxDocument {
		r.fault(first, "", "the document is larger than %d MiB", MaxDocument>>20)
		return nil
	}
	tokens := lexer.Tokenize(string(doc.text))
	r.words += len(tokens)
	switch {
	case len(tokens) == 0:
		return nil
	case len(tokens) > MaxTokens:
		r.fault(first, "", "the document has more than %d tokens", MaxTokens)
		return nil
	case r.words > MaxFileWords:
		r.fault(first, "", "the file has more than %d tokens", MaxFileWords)
		return nil
	}
	if tk, message := firstPastLimit(tokens); tk != nil {
		r.fault(r.place(doc, tk), "", "%s", message)
		return nil
	}
	file, err := parseTokens(tokens)
	if err != nil {
		r.syntax(doc, err)
		return nil
	}
	y := yamlBuilder{builder: builder{reader: r}, doc: doc, anchors: map[string]*node{}}
	for _, d := range file.Docs {
		if d.Body == nil || d.Body.Type() == ast.DirectiveType || d.Body.Type() == ast.CommentType {
			continue
		}
		root := y.node(d.Body)
		if y.ended {
			return nil
		}
		if root.shape == shapeNull {
			continue
		}
		return root
	}
	return nil
}

// parseTokens calls the YAML parser. A fault of the parser itself is an error about the text.
func parseTokens(tokens token.Tokens) (file *ast.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			file, err = nil, errors.New("the text is not YAML")
		}
	}()
	return parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
}

// block is a list or object in block form that is open at some place of the text.
type block struct{ column, entries, fields int }

// firstPastLimit returns the token at which a document passes MaxDepth, MaxEntries or MaxFields, and the fault, or nil.
// It runs before the parser, which recurses into depth and takes quadratic time for fields.
func firstPastLimit(tokens token.Tokens) (*token.Token, string) {
	flow := 0
	var open []block
	for _, tk := range tokens {
		switch tk.Type {
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow = max(0, flow-1)
		case token.SequenceEntryType, token.MappingKeyType, token.MappingValueType:
			if flow > 0 {
				continue
			}
			column := tk.Position.Column
			if tk.Type == token.MappingValueType && tk.Prev != nil && tk.Prev.Position.Line == tk.Position.Line {
				column = tk.Prev.Position.Column // the key's
			}
			for len(open) > 0 && open[len(open)-1].column > column {
				open = open[:len(open)-1]
			}
			if len(open) == 0 || open[len(open)-1].column < column {
				open = append(open, block{column: column})
			}
			last := &open[len(open)-1]
			if tk.Type == token.SequenceEntryType {
				last.entries++
			} else {
				last.fields++
			}
			switch {
			case last.entries > MaxEntries:
				return tk, fmt.Sprintf("a list has more than %d entries", MaxEntries)
			case last.fields > MaxFields:
				return tk, fmt.Sprintf("an object has more than %d fields", MaxFields)
			}
		default:
			continue
		}
		if flow+len(open) > MaxDepth {
			return tk, fmt.Sprintf("values are more than %d levels deep", MaxDepth)
		}
	}
	return nil, ""
}

// place returns the position of a token in the file.
func (r *reader) place(doc document, tk *token.Token) Position {
	if tk == nil || tk.Position == nil {
		return Position{r.file, doc.line, 1}
	}
	return Position{r.file, doc.line + max(0, tk.Position.Line-1), max(1, tk.Position.Column)}
}

// syntax adds the parser's error as a fault.
func (r *reader) syntax(doc document, err error) {
	at, message := Position{r.file, doc.line, 1}, err.Error()
	if parseErr, ok := errors.AsType[yaml.Error](err); ok {
		at, message = r.place(doc, parseErr.GetToken()), parseErr.GetMessage()
	}
	lines := bytes.Split(doc.text, []byte("\n"))
	if i := at.Line - doc.line; i >= 0 && i < len(lines) {
		indent := lines[i][:len(lines[i])-len(bytes.TrimLeft(lines[i], " \t"))]
		if tab := bytes.IndexByte(indent, '\t'); tab >= 0 {
			r.fault(Position{r.file, at.Line, tab + 1}, "", "a tab indents the line: indent YAML with spaces")
			return
		}
	}
	message, _, _ = strings.Cut(message, "\n")
	if strings.HasPrefix(message, "could not find end character") || strings.HasPrefix(message, "could not find flow") {
		message += ": it ends too early"
	}
	if message == "mapping value is not allowed in this context" {
		message += ": check the indentation, and quote text that contains \": \""
	}
	r.fault(at, "", "not YAML: %.200s", message)
}

// yamlBuilder turns the parser's tree into nodes.
type yamlBuilder struct {
	builder
	doc     document
	anchors map[string]*node // nil while the anchor's own value is being read
	ended   bool             // the document is past a limit
}

// fail faults a value and returns a placeholder, so that the other faults of the document are found, too.
func (y *yamlBuilder) fail(n ast.Node, format string, args ...any) *node {
	at := y.at(n)
	y.fault(at, "", format, args...)
	return &node{shape: shapeBroken, at: at}
}

// end faults a document that is past the limit of values. The rest of the document is not read.
func (y *yamlBuilder) end(n ast.Node) *node {
	if y.ended {
		return &node{shape: shapeBroken}
	}
	y.ended = true
	return y.fail(n, "the document has more than %d values", MaxValues)
}

func (y *yamlBuilder) at(n ast.Node) Position {
	if n == nil {
		return y.place(y.doc, nil)
	}
	tk := n.GetToken()
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 && !m.IsFlowStyle {
		tk = m.Values[0].Key.GetToken()
	}
	if m, ok := n.(*ast.MappingValueNode); ok {
		tk = m.Key.GetToken()
	}
	return y.place(y.doc, tk)
}

// node returns the value of a part of the parser's tree.
func (y *yamlBuilder) node(n ast.Node) *node {
	if !y.countValue(1) {
		return y.end(n)
	}
	at := y.at(n)
	switch v := n.(type) {
	case nil:
		return &node{at: at}
	case *ast.NullNode:
		return &node{at: at}
	case *ast.BoolNode:
		return &node{shape: shapeBool, at: at, text: strconv.FormatBool(v.Value)}
	case *ast.IntegerNode:
		return &node{shape: shapeInt, at: at, text: fmt.Sprint(v.Value)}
	case *ast.FloatNode:
		return &node{shape: shapeFloat, at: at, text: strconv.FormatFloat(v.Value, 'g', -1, 64)}
	case *ast.InfinityNode, *ast.NanNode:
		return &node{shape: shapeFloat, at: at, text: n.GetToken().Value}
	case *ast.StringNode:
		return &node{shape: shapeText, at: at, text: v.Value}
	case *ast.LiteralNode:
		return &node{shape: shapeText, at: at, text: v.Value.Value}
	case *ast.SequenceNode:
		out := &node{shape: shapeList, at: at, items: make([]*node, 0, len(v.Values))}
		for _, item := range v.Values {
			out.items = append(out.items, y.node(item))
		}
		return out
	case *ast.MappingNode:
		return y.mapping(at, v.Values)
	case *ast.MappingValueNode:
		return y.mapping(at, []*ast.MappingValueNode{v})
	case *ast.AnchorNode:
		return y.anchor(v)
	case *ast.AliasNode:
		return y.alias(v)
	case *ast.TagNode:
		return y.fail(n, "the tag %s is not supported; to make a value text, quote it", clip(v.Start.Value))
	}
	return y.fail(n, "a %s is not allowed here", n.Type())
}

func (y *yamlBuilder) mapping(at Position, entries []*ast.MappingValueNode) *node {
	own := make([]field, 0, len(entries))
	var merged []field
	partial := false
	for _, e := range entries {
		if e.Key.IsMergeKey() {
			fields, ok := y.merge(e.Value)
			merged = append(merged, fields...)
			partial = partial || !ok
			continue
		}
		key, ok := y.key(e.Key)
		if !ok {
			y.fail(e.Key, "a key must be a word or text")
			continue
		}
		own = append(own, field{key, y.at(e.Key), y.node(e.Value)})
	}
	out := y.object(at, own)
	out.partial = partial
	if len(merged) == 0 {
		return out
	}
	known := make(map[string]bool, len(own)+len(merged))
	for _, f := range out.fields {
		known[f.key] = true
	}
	for _, f := range merged { // keys of the mapping itself win, then the first merge
		if !known[f.key] {
			known[f.key] = true
			out.fields = append(out.fields, f)
		}
	}
	return out
}

// merge returns the fields of "<<": an object or a list of objects. It reports whether all of them could be read.
func (y *yamlBuilder) merge(value ast.Node) (fields []field, ok bool) {
	n := y.node(value)
	sources := []*node{n}
	if n.shape == shapeList {
		sources = n.items
	}
	ok = true
	for _, s := range sources {
		if s.shape == shapeBroken {
			ok = false
			continue
		}
		if s.shape != shapeObject {
			y.fail(value, `"<<" merges objects, found %s`, s.describe())
			return fields, false
		}
		if !y.countValue(len(s.fields)) {
			y.end(value)
			return nil, false
		}
		fields = append(fields, s.fields...)
		ok = ok && !s.partial
	}
	return fields, ok
}

// key returns the text of a key.
func (y *yamlBuilder) key(n ast.MapKeyNode) (string, bool) {
	switch k := n.(type) {
	case *ast.StringNode:
		return k.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	case *ast.MappingKeyNode:
		if s, ok := k.Value.(*ast.StringNode); ok {
			return s.Value, true
		}
	}
	return "", false
}

func (y *yamlBuilder) anchor(v *ast.AnchorNode) *node {
	name := nameOf(v.Name)
	y.anchors[name] = nil
	n := y.node(v.Value)
	y.anchors[name] = n
	return n
}

func (y *yamlBuilder) alias(v *ast.AliasNode) *node {
	name := nameOf(v.Value)
	n, known := y.anchors[name]
	switch {
	case !known:
		return y.fail(v, "*%s: no anchor &%s comes before it in the document", clip(name), clip(name))
	case n == nil:
		return y.fail(v, "*%s is inside the value that it refers to", clip(name))
	}
	return n
}

// nameOf returns the name of an anchor or alias.
func nameOf(n ast.Node) string {
	if n == nil || n.GetToken() == nil {
		return ""
	}
	return n.GetToken().Value
}
