package redact

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// secretName matches the names of fields and labels whose values are secret.
var secretName = regexp.MustCompile(`(?i)^` + secretWord + `$`)

// Removed stands where a secret stood.
const Removed = "(removed)"

// leastSecret is the length from which on a value is looked for in other texts: shorter ones are words.
const minSecretLength = 6

// Scrubber takes secrets out of texts: the values that it was told of, and what looks like one.
type Scrubber struct {
	secrets  []string
	patterns []*regexp.Regexp
}

// secretWord is what the names of secrets have in them.
//
//nolint:gosec // it is no secret itself
const secretWord = `[a-z0-9_.-]*(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential|authorization)[a-z0-9_.-]*`

// NewScrubber returns one that knows what secrets look like: of each shape the first group stays.
func NewScrubber() *Scrubber {
	const value = `(?:(?:bearer|basic)\s+)?[^\s"'\\,;&}{\[\]()]+`
	return &Scrubber{patterns: []*regexp.Regexp{
		// password=…, "secret": "…"; the value may be quoted, in a text within JSON also with a backslash.
		regexp.MustCompile(`(?i)(` + secretWord + `(?:\\?")?\s*[=:]\s*(?:\\?["'])?)` + value),
		// --token …, or the two as elements of a list.
		regexp.MustCompile(`(?i)(--?` + secretWord + `(?:\\?["'])?,?\s+(?:\\?["'])?)` + value),
		regexp.MustCompile(`(?i)((?:bearer|basic)\s+)[a-z0-9._~+/=-]{8,}`),
		regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^/\s"'@\\]+@`),
		regexp.MustCompile(`(-----BEGIN [A-Z ]*PRIVATE KEY-----)[^-]*`),
		regexp.MustCompile(`("auth\\?"\s*:\s*\\?")[A-Za-z0-9+/=]+`),                          // a registry's login
		regexp.MustCompile(`()\b[A-Za-z0-9_-]{1,64}\.[A-Za-z0-9_-]{16,128}\.[0-9a-f]{64}\b`), // a join token
	}}
}

// Definition takes out the values of the environment and of files, and remembers them.
func (s *Scrubber) ScrubDefinition(d *cluster.TaskDefinition) {
	for i := range d.Containers {
		c := &d.Containers[i]
		for name, value := range c.Env { // order-free: each value is replaced
			s.addSecret(value)
			if strings.Contains(value, "\n") { // a text that was cut or joined has its lines alone
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

// learn remembers a value that is to be looked for, the longest first, also in the forms that it has in JSON, and in
// JSON that is a text within JSON.
func (s *Scrubber) addSecret(value string) {
	if len(value) < minSecretLength || value == Removed || slices.Contains(s.secrets, value) {
		return
	}
	forms := []string{value}
	for range 2 { // as deep as JSON is nested
		for _, form := range forms {
			forms = append(forms, escapeJSON(form, false), escapeJSON(form, true))
		}
	}
	slices.Sort(forms)
	s.secrets = append(s.secrets, slices.Compact(forms)...)
	slices.SortStableFunc(s.secrets, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
}

// inJSON returns a text as it stands between the quotes of JSON; web says whether <, > and & are escaped too.
func escapeJSON(text string, web bool) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(web)
	_ = e.Encode(text) // of a text nothing fails
	return strings.TrimSuffix(strings.TrimPrefix(b.String(), `"`), "\"\n")
}

// Text returns a text without what is secret.
func (s *Scrubber) ScrubText(text string) string {
	for _, value := range s.secrets {
		text = strings.ReplaceAll(text, value, Removed)
	}
	for _, shape := range s.patterns {
		text = shape.ReplaceAllString(text, "${1}"+Removed)
	}
	return text
}
