// Package shorten shortens texts to a number of bytes and never cuts inside a character of UTF-8.
package shorten

import "unicode/utf8"

// Marked returns text if it has at most most bytes, and otherwise its start with "…" behind at most most bytes. It is
// for texts from outside that a message quotes.
func Marked(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return Start(text, most) + "…"
}

// Start returns at most most bytes from the start of text.
func Start(text string, most int) string {
	if len(text) <= most {
		return text
	}
	// Bytes that are no UTF-8 are not characters: a cut among them is as good as any other.
	for back := range utf8.UTFMax {
		if at := most - back; at <= 0 || utf8.RuneStart(text[at]) {
			return text[:max(at, 0)]
		}
	}
	return text[:most]
}

// End returns at most most bytes from the end of text.
func End(text string, most int) string {
	if len(text) <= most {
		return text
	}
	at := len(text) - most
	for ahead := range utf8.UTFMax {
		if at+ahead >= len(text) || utf8.RuneStart(text[at+ahead]) {
			return text[at+ahead:]
		}
	}
	return text[at:]
}
