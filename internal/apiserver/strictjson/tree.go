package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
)

// Bounds of a body.
const (
	MaxBody = 4 << 20
	// drainedBody is how many bytes of a too large body are read and dropped, so that its sender reads the answer.
	drainedBody = 16 << 20
	// maxIgnoredBody is how many bytes of a body are read and dropped where a request needs none.
	maxIgnoredBody = 4 << 10
	maxDepth       = 64
	maxValues      = 500_000
)

// tree is a parsed JSON value with its text.
type tree struct {
	text   []byte // of this value
	kind   byte   // '{', '[', '"', '0' for a number, 't' for a bool, 'n' for null
	keys   []string
	values []*tree // of an object or an array
	twice  []string
}

// parse parses a JSON text. A text that is not JSON is a problem of status 400.
func parse(text []byte) (*tree, error) {
	if !utf8.Valid(text) {
		return nil, respond.Problemf(400, "the body is not UTF-8 text: byte %d", invalidAt(text))
	}
	if json.Valid(text) {
		if root, ok := parseValid(text); ok {
			return root, nil
		}
	}
	return parseSlowly(text)
}

// parseSlowly parses token by token. For a text that is not JSON, or beyond the bounds, its error says what is wrong.
func parseSlowly(text []byte) (*tree, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	p := parser{dec: dec, text: text}
	root, err := p.value(0)
	var prob *respond.Problem
	switch {
	case err == nil:
	case errors.As(err, &prob):
		return nil, prob
	case errors.Is(err, io.EOF) && len(bytes.TrimSpace(text)) == 0:
		return nil, respond.Problemf(400, "the request needs a body of JSON, and has none")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, respond.Problemf(400, "the body ends in the middle of a value: it seems to be cut off")
	default:
		return nil, notJSON(text, err)
	}
	if rest := bytes.TrimSpace(text[dec.InputOffset():]); len(rest) > 0 {
		line, column := lineColumn(text, int64(len(text)-len(bytes.TrimLeft(text[dec.InputOffset():], " \t\r\n"))))
		return nil, respond.Problemf(400, "the body continues after its JSON value: line %d, column %d", line, column)
	}
	return root, nil
}

// notJSON returns where a text stops being JSON. The decoder of tokens does not know the exact place.
func notJSON(text []byte, err error) error {
	var whole json.RawMessage
	var syntax *json.SyntaxError
	if !errors.As(json.Unmarshal(text, &whole), &syntax) {
		return respond.Problemf(400, "the body is not JSON: %v", err)
	}
	line, column := lineColumn(text, syntax.Offset-1)
	return respond.Problemf(400, "the body is not JSON: line %d, column %d: %v", line, column, syntax)
}

type parser struct {
	dec    *json.Decoder
	text   []byte
	values int
}

func (p *parser) value(depth int) (*tree, error) {
	if p.values++; p.values > maxValues {
		return nil, respond.Problemf(400, "the body holds more than %d values", maxValues)
	}
	if depth > maxDepth {
		return nil, respond.Problemf(400, "the body is nested more than %d deep", maxDepth)
	}
	tok, err := p.dec.Token()
	if err != nil {
		return nil, err
	}
	end := p.dec.InputOffset()
	switch v := tok.(type) {
	case json.Delim:
		t := &tree{kind: byte(v)}
		if err := p.members(t, depth); err != nil {
			return nil, err
		}
		t.text = p.text[end-1 : p.dec.InputOffset()]
		return t, nil
	case string:
		return &tree{kind: '"', text: lastValue(p.text[:end])}, nil
	case json.Number:
		return &tree{kind: '0', text: []byte(v.String())}, nil
	case bool:
		return &tree{kind: 't', text: fmt.Append(nil, v)}, nil
	case nil:
		return &tree{kind: 'n', text: []byte("null")}, nil
	}
	return nil, fmt.Errorf("unexpected %v", tok)
}

// members reads the contents of an object or an array, and the closing bracket.
func (p *parser) members(t *tree, depth int) error {
	for p.dec.More() {
		if t.kind == '{' {
			tok, err := p.dec.Token()
			if err != nil {
				return err
			}
			key, ok := tok.(string)
			if !ok {
				return fmt.Errorf("unexpected %v in place of a key", tok)
			}
			t.keys = append(t.keys, key)
		}
		v, err := p.value(depth + 1)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		t.values = append(t.values, v)
	}
	t.twice = repeated(t.keys)
	_, err := p.dec.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// lastValue returns the string literal at the end of the text.
func lastValue(text []byte) []byte {
	for i := len(text) - 2; i >= 0; i-- {
		if text[i] != '"' {
			continue
		}
		escapes := 0
		for j := i - 1; j >= 0 && text[j] == '\\'; j-- {
			escapes++
		}
		if escapes%2 == 0 {
			return text[i:]
		}
	}
	return text
}

// lineColumn returns the line and the column, in bytes, of an offset; both count from 1.
func lineColumn(text []byte, offset int64) (line, column int) {
	before := text[:min(max(offset, 0), int64(len(text)))]
	return bytes.Count(before, []byte("\n")) + 1, len(before) - (bytes.LastIndexByte(before, '\n') + 1) + 1
}

func invalidAt(text []byte) int {
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return len(text)
}

// word returns the name of the value's kind for people.
func (t *tree) word() string {
	switch t.kind {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "text"
	case '0':
		return "a number"
	case 't':
		return "true or false"
	}
	return "null"
}

// PrefixPaths adds a path before the paths of faults.
func PrefixPaths(faults cluster.Faults, path string) cluster.Faults {
	out := make(cluster.Faults, len(faults))
	for i, f := range faults {
		out[i] = cluster.Fault{Path: join(path, f.Path), Message: f.Message}
	}
	return out
}

func join(path, field string) string {
	switch {
	case path == "":
		return field
	case field == "" || field[0] == '[':
		return path + field
	}
	return path + "." + field
}
