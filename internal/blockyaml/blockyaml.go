// Package blockyaml writes JSON as YAML for people: the output of commands and the OpenAPI document.
package blockyaml

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"
)

// FromJSON converts one JSON value to YAML in block form and keeps the order of fields. Strings that YAML could
// read as another type are quoted.
func FromJSON(in []byte) ([]byte, error) {
	w := yamlWriter{dec: json.NewDecoder(bytes.NewReader(in))}
	w.dec.UseNumber()
	if err := w.writeValue("", false); err != nil {
		return nil, fmt.Errorf("write YAML: %w", err)
	}
	return w.out.Bytes(), nil
}

// yamlWriter converts the tokens of one JSON value.
type yamlWriter struct {
	dec *json.Decoder
	out bytes.Buffer
}

// writeValue writes the next value. A scalar or an empty value stays on the line of "key:" or "-". Other values get
// lines that begin with indent. After "-" (inList) the first entry stays on the line.
func (w *yamlWriter) writeValue(indent string, inList bool) error {
	tk, err := w.dec.Token()
	if err != nil {
		return err
	}
	switch v := tk.(type) {
	case json.Delim:
		if v == '[' && !inList && indent != "" {
			indent = indent[2:] // the "-" of a field's list is aligned with its key
		}
		return w.writeBlock(v, indent, inList)
	case string:
		w.writeScalar(formatText(v, indent))
	case nil:
		w.writeScalar("null")
	default:
		w.writeScalar(fmt.Sprint(v))
	}
	return nil
}

func (w *yamlWriter) writeScalar(s string) {
	if w.out.Len() > 0 {
		w.out.WriteByte(' ')
	}
	w.out.WriteString(s + "\n")
}

// writeBlock writes the entries of a list or an object.
func (w *yamlWriter) writeBlock(open json.Delim, indent string, inList bool) error {
	if !w.dec.More() {
		w.writeScalar(map[json.Delim]string{'[': "[]", '{': "{}"}[open])
		_, err := w.dec.Token()
		return err
	}
	first := true
	for w.dec.More() {
		switch {
		case first && inList:
			w.out.WriteByte(' ')
		case first && w.out.Len() > 0:
			w.out.WriteByte('\n')
			fallthrough
		default:
			w.out.WriteString(indent)
		}
		first = false
		if open == '[' {
			w.out.WriteByte('-')
			if err := w.writeValue(indent+"  ", true); err != nil {
				return err
			}
			continue
		}
		tk, err := w.dec.Token()
		if err != nil {
			return err
		}
		key, ok := tk.(string)
		if !ok {
			return errors.New("a key is not text")
		}
		w.out.WriteString(plainOrQuoted(key) + ":")
		if err := w.writeValue(indent+"  ", false); err != nil {
			return err
		}
	}
	_, err := w.dec.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// formatText writes a string. Several lines become a literal block if YAML keeps them unchanged.
func formatText(s, indent string) string {
	body, newline := strings.CutSuffix(s, "\n")
	lines := strings.Split(body, "\n")
	if len(lines) < 2 && !newline || !fitsLiteralBlock(lines) {
		return plainOrQuoted(s)
	}
	if indent == "" {
		indent = "  "
	}
	head := "|-"
	if newline {
		head = "|"
	}
	for _, l := range lines {
		head += "\n"
		if l != "" {
			head += indent + l
		}
	}
	return head
}

// fitsLiteralBlock reports whether a literal block keeps the lines unchanged.
func fitsLiteralBlock(lines []string) bool {
	if lines[len(lines)-1] == "" || strings.HasPrefix(lines[0], " ") || lines[0] == "" {
		return false
	}
	for _, l := range lines {
		if strings.TrimRight(l, " \t") != l || strings.ContainsFunc(l, func(r rune) bool {
			return !unicode.IsPrint(r)
		}) {
			return false
		}
	}
	return true
}

// plainPattern matches a string without need of quotes: it begins with a letter or "/", and a ":" is inside a word.
var plainPattern = regexp.MustCompile(
	`^[A-Za-z_/](?:[A-Za-z0-9_/.@+=,()%-]|:[A-Za-z0-9_/.@+=()%-]| [A-Za-z0-9_/.@+=()%-])*$`)

// quantityPattern matches a string such as "500m" or "1m30s". No YAML reader takes it for a number.
var quantityPattern = regexp.MustCompile(`^(?:[0-9]+(?:\.[0-9]+)?(?:ns|µs|ms|s|m|h|[KMGT]iB))+$`)

func plainOrQuoted(s string) string {
	const longest = 120
	switch strings.ToLower(s) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
		return `"` + s + `"`
	}
	if len(s) <= longest && (plainPattern.MatchString(s) || quantityPattern.MatchString(s)) {
		return s
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // encoding a string cannot fail
	return strings.TrimSpace(b.String())
}
