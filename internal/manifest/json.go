package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode/utf8"
)

// isJSON reports whether the file is JSON: one object, or several in a row. The YAML reader reads text that only
// resembles JSON, because its messages are better.
func isJSON(data []byte) bool {
	if trimmed := bytes.TrimLeft(data, " \t\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return false
	}
	for dec := json.NewDecoder(bytes.NewReader(data)); ; {
		var raw json.RawMessage
		switch err := dec.Decode(&raw); {
		case errors.Is(err, io.EOF):
			return true
		case err != nil:
			return false
		}
	}
}

// readJSON reads the objects of a file that isJSON.
func (r *reader) readJSON(data []byte) {
	j := jsonBuilder{data: data, dec: json.NewDecoder(bytes.NewReader(data)), at: Position{r.file, 1, 1}}
	j.dec.UseNumber()
	for i := 0; j.dec.More(); i++ {
		if i == MaxDocuments {
			r.fault(j.position(), "", "the file has more than %d documents", MaxDocuments)
			return
		}
		j.builder = builder{reader: r}
		root := j.node(0)
		if root == nil {
			return
		}
		r.decode(root)
	}
}

// jsonBuilder turns JSON into nodes.
type jsonBuilder struct {
	builder
	data   []byte
	dec    *json.Decoder
	at     Position // of the offset
	offset int
}

// position returns the position of the next token.
func (j *jsonBuilder) position() Position {
	offset := int(j.dec.InputOffset())
	for offset < len(j.data) && strings.IndexByte(" \t\r\n,:", j.data[offset]) >= 0 {
		offset++
	}
	for passed := j.data[j.offset:offset]; len(passed) > 0; {
		c, size := utf8.DecodeRune(passed)
		j.at.Column++
		if c == '\n' {
			j.at.Line, j.at.Column = j.at.Line+1, 1
		}
		passed = passed[size:]
	}
	j.offset = offset
	return j.at
}

// node reads the next value; it returns nil, with a fault, if the document is beyond a limit.
func (j *jsonBuilder) node(depth int) *node {
	at := j.position()
	if depth > MaxDepth {
		j.fault(at, "", "values are more than %d levels deep", MaxDepth)
		return nil
	}
	if !j.countValue(1) {
		j.fault(at, "", "the document has more than %d values", MaxValues)
		return nil
	}
	tk, err := j.dec.Token()
	if err != nil {
		j.fault(at, "", "not JSON: %v", err)
		return nil
	}
	switch v := tk.(type) {
	case bool:
		n := &node{shape: shapeBool, at: at, text: "false"}
		if v {
			n.text = "true"
		}
		return n
	case json.Number:
		n := &node{shape: shapeInt, at: at, text: v.String()}
		if strings.ContainsAny(n.text, ".eE") {
			n.shape = shapeFloat
		}
		return n
	case string:
		return &node{shape: shapeText, at: at, text: v}
	case json.Delim:
		if v == '[' {
			return j.list(at, depth)
		}
		return j.object(at, depth)
	}
	return &node{at: at}
}

func (j *jsonBuilder) list(at Position, depth int) *node {
	out := &node{shape: shapeList, at: at}
	for j.dec.More() {
		item := j.node(depth + 1)
		if item == nil {
			return nil
		}
		out.items = append(out.items, item)
	}
	_, _ = j.dec.Token() // isJSON saw the end
	return out
}

func (j *jsonBuilder) object(at Position, depth int) *node {
	var fields []field
	for j.dec.More() {
		f := field{at: j.position()}
		tk, _ := j.dec.Token()
		f.key, _ = tk.(string) // isJSON saw that it is one
		if f.value = j.node(depth + 1); f.value == nil {
			return nil
		}
		fields = append(fields, f)
	}
	_, _ = j.dec.Token()
	return j.builder.object(at, fields)
}
