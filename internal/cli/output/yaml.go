package output

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

// ToYAML writes JSON as YAML in block form, its fields in their order, without losing a sign: text that a YAML
// reader could take for anything else is written in quotes.
func ToYAML(in []byte) ([]byte, error) {
	w := yamlWriter{dec: json.NewDecoder(bytes.NewReader(in))}
	w.dec.UseNumber()
	if err := w.writeValue("", false); err != nil {
		return nil, fmt.Errorf("write YAML: %w", err)
	}
	return w.out.Bytes(), nil
}

// yamlWriter is one pass over the tokens of a JSON value.
type yamlWriter struct {
	dec *json.Decoder
	out bytes.Buffer
}

// value writes the next value: behind "key:" or "-" on the same line if it is a scalar or empty, else on
// lines of its own that begin with indent. inList says that it stands behind "-", where the
// first entry goes on the same line.
func (w *yamlWriter) writeValue(indent string, inList bool) error {
	tk, err := w.dec.Token()
	if err != nil {
		return err
	}
	switch v := tk.(type) {
	case json.Delim:
		if v == '[' && !inList && indent != "" {
			indent = indent[2:] // the "-" of a field's list stands below its key
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

// block writes the entries of a list or object.
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
			return errors.New("a key is no text")
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

// text writes a string: several lines as a literal block, where that keeps all of it.
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

// literal reports whether a literal block keeps the lines as they are.
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

// plainText is text that needs no quotes: it begins with a letter or "/", and a ":" stands inside a word.
var plainPattern = regexp.MustCompile(
	`^[A-Za-z_/](?:[A-Za-z0-9_/.@+=,()%-]|:[A-Za-z0-9_/.@+=()%-]| [A-Za-z0-9_/.@+=()%-])*$`)

// quantity is text such as "500m" or "1m30s", which is no number to any reader.
var quantityPattern = regexp.MustCompile(`^(?:[0-9]+(?:\.[0-9]+)?(?:ns|µs|ms|s|m|h))+$`)

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
	_ = enc.Encode(s) // text can be encoded
	return strings.TrimSpace(b.String())
}
