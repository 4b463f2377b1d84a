// Package redact removes secrets from texts that commands print.
package redact

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// secretName matches names of fields and labels with secret values.
var secretName = regexp.MustCompile(`(?i)^` + secretWord + `$`)

// Removed replaces a secret.
const Removed = "(removed)"

// minSecretLength is the minimum length, in bytes, of a value that is searched in other texts. Shorter values are
// common words.
const minSecretLength = 6

// Scrubber removes secrets from texts: the values that it knows, and texts with the form of a secret.
type Scrubber struct {
	secrets  []string
	patterns []*regexp.Regexp
}

// secretWord matches names of secrets.
//
//nolint:gosec // it is no secret itself
const secretWord = `[a-z0-9_.-]*(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential|authorization)[a-z0-9_.-]*`

// NewScrubber returns a scrubber that knows the usual forms of secrets. The first group of each pattern stays.
func NewScrubber() *Scrubber {
	const value = `(?:(?:bearer|basic)\s+)?[^\s"'\\,;&}{\[\]()]+`
	return &Scrubber{patterns: []*regexp.Regexp{
		// password=… and "secret": "…". The value may be quoted, in nested JSON with a backslash before the quote.
		regexp.MustCompile(`(?i)(` + secretWord + `(?:\\?")?\s*[=:]\s*(?:\\?["'])?)` + value),
		// --token …, in one text or as two elements of a list
		regexp.MustCompile(`(?i)(--?` + secretWord + `(?:\\?["'])?,?\s+(?:\\?["'])?)` + value),
		regexp.MustCompile(`(?i)((?:bearer|basic)\s+)[a-z0-9._~+/=-]{8,}`),
		regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^/\s"'@\\]+@`),
		regexp.MustCompile(`(-----BEGIN [A-Z ]*PRIVATE KEY-----)[^-]*`),
		regexp.MustCompile(`("auth\\?"\s*:\s*\\?")[A-Za-z0-9+/=]+`),                          // a registry's login
		regexp.MustCompile(`()\b[A-Za-z0-9_-]{1,64}\.[A-Za-z0-9_-]{16,128}\.[0-9a-f]{64}\b`), // a join token
	}}
}

// ScrubDefinition removes the values of environment variables and files from a definition, and remembers them.
func (s *Scrubber) ScrubDefinition(d *cluster.TaskDefinition) {
	for i := range d.Containers {
		c := &d.Containers[i]
		for name, value := range c.Env { // order-free: each value is replaced
			s.addSecret(value)
			if strings.Contains(value, "\n") { // another text may hold single lines of it
				for line := range strings.Lines(value) {
					s.addSecret(strings.TrimSpace(line))
				}
			}
			c.Env[name] = Removed
		}
		for j := range c.Files {
			for line := range strings.Lines(c.Files[j].Content) {
				s.addSecret(strings.TrimSpace(line))
				if _, value, ok := strings.Cut(line, "="); ok {
					s.addSecret(strings.Trim(strings.TrimSpace(value), `"'`))
				}
			}
			c.Files[j].Content = Removed
		}
	}
}

// addSecret remembers a value to search for, also in its forms in JSON and in nested JSON. The longest values come
// first.
func (s *Scrubber) addSecret(value string) {
	if len(value) < minSecretLength || value == Removed || slices.Contains(s.secrets, value) {
		return
	}
	forms := []string{value}
	for range 2 { // the depth of nested JSON
		for _, form := range forms {
			forms = append(forms, escapeJSON(form, false), escapeJSON(form, true))
		}
	}
	slices.Sort(forms)
	s.secrets = append(s.secrets, slices.Compact(forms)...)
	slices.SortStableFunc(s.secrets, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
}

// escapeJSON returns a text as JSON holds it between quotes. With web, <, > and & are escaped too.
func escapeJSON(text string, web bool) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(web)
	_ = e.Encode(text) // encoding a string cannot fail
	return strings.TrimSuffix(strings.TrimPrefix(b.String(), `"`), "\"\n")
}

// ScrubText returns a text without secrets.
func (s *Scrubber) ScrubText(text string) string {
	for _, value := range s.secrets {
		text = strings.ReplaceAll(text, value, Removed)
	}
	for _, shape := range s.patterns {
		text = shape.ReplaceAllString(text, "${1}"+Removed)
	}
	return text
}
