package redact

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/cluster"
)

// FuzzScrub checks that no known secret stays in a text, whatever surrounds it.
func FuzzScrub(f *testing.F) {
	f.Add("password=", "hunter2hunter2", "&x=1")
	f.Add(`{"token": "`, "aaaaaa", `"}`)
	f.Add("Bearer ", "abcdefgh", "\n")
	f.Add("https://", "user:pass", "@h/")
	f.Fuzz(func(t *testing.T, before, secret, after string) {
		if len(secret) < minSecretLength || strings.Contains(Removed, secret) ||
			strings.Contains(before+"|"+after, secret) {
			return // there is nothing to find
		}
		s := NewScrubber()
		s.addSecret(secret)
		if got := s.ScrubText(before + secret + after); strings.Contains(got, secret) {
			t.Errorf("%q is left in %q", secret, got)
		}
	})
}

// TestScrubberKnowsEscapedForms searches for secrets with characters that JSON escapes.
func TestScrubberKnowsEscapedForms(t *testing.T) {
	for _, secret := range []string{
		`p4ss&w0rd<1>x`, `quo"ted-and\slashed`, "two lines\nof-a-key", "tab\tin-it",
		"ümläut-\u2028-line",
	} {
		s := NewScrubber()
		s.ScrubDefinition(&cluster.TaskDefinition{
			Containers: []cluster.Container{{Env: map[string]string{"X": secret}}},
		})
		once, err := json.Marshal(map[string]string{"message": "it said " + secret + " twice"})
		if err != nil {
			t.Fatal(err)
		}
		twice, err := json.MarshalIndent(map[string]string{"message": string(once)}, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		var plain strings.Builder
		e := json.NewEncoder(&plain)
		e.SetEscapeHTML(false)
		if err := e.Encode("it said " + secret + " twice"); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"it said " + secret + " twice", string(once), string(twice), plain.String()} {
			got := s.ScrubText(text)
			for _, word := range strings.FieldsFunc(secret, func(r rune) bool {
				return strings.ContainsRune("&<>\"\\\n\t\u2028", r)
			}) {
				if len(word) > 3 && strings.Contains(got, word) {
					t.Errorf("%q: %q of the secret stays in %s", secret, word, got)
				}
			}
			if !strings.Contains(got, Removed) || !strings.Contains(got, "twice") {
				t.Errorf("%q: got %s", secret, got)
			}
		}
	}
}
