package redact

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ScrubJSON removes secrets from the strings in a JSON value. The structure and the order stay.
func (s *Scrubber) ScrubJSON(encoded []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(encoded))
	dec.UseNumber()
	var out bytes.Buffer
	// A level is an open list or object: its kind, the number of tokens written, and whether the next value is secret.
	type level struct {
		object, secret bool
		n              int
	}
	var stack []level
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return out.Bytes(), nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the text to redact: %w", err)
		}
		delim, isDelim := token.(json.Delim)
		if isDelim && (delim == '}' || delim == ']') {
			stack = stack[:len(stack)-1]
			out.WriteRune(rune(delim))
			continue
		}
		key, secret := false, false
		if len(stack) > 0 {
			top := &stack[len(stack)-1]
			key = top.object && top.n%2 == 0
			secret = top.secret && !key
			switch {
			case top.object && !key:
				out.WriteByte(':')
			case top.n > 0:
				out.WriteByte(',')
			}
			top.n++
		}
		text, isText := token.(string)
		switch {
		case isDelim:
			out.WriteRune(rune(delim))
			stack = append(stack, level{object: delim == '{'})
			continue
		case key:
			stack[len(stack)-1].secret = secretName.MatchString(text)
		case isText && secret && text != "":
			token = Removed
		case isText:
			token = s.ScrubText(text)
		}
		value, err := json.Marshal(token)
		if err != nil {
			return nil, fmt.Errorf("write the redacted text: %w", err)
		}
		out.Write(value)
	}
}
