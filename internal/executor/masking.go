package executor

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Masked stands in logs and messages for the value of a secret.
const Masked = "[secret]"

// What is masked: whole values from ShortSecret bytes on, and of values with several lines each that is as long as longLine.
const (
	ShortSecret = 4
	longLine    = 12
)

// maxMasked bounds how many texts a Masker looks for: those of the newest values.
const maxMasked = 256

// MaskedTexts returns what is masked of secrets with these values, the longest first.
func MaskedTexts(values []string) (texts []string) {
	for _, value := range values {
		if len(value) >= ShortSecret {
			texts = append(texts, value)
		}
		if lines := strings.Split(strings.TrimSpace(value), "\n"); len(lines) > 1 {
			for _, line := range lines {
				if line = strings.TrimSpace(line); len(line) >= longLine {
					texts = append(texts, line)
				}
			}
		} else if trimmed := strings.TrimSpace(value); trimmed != value && len(trimmed) >= ShortSecret {
			texts = append(texts, trimmed)
		}
	}
	slices.SortStableFunc(texts, func(x, y string) int { return len(y) - len(x) })
	return texts
}

// SecretValues reads the values that are in folders of secrets and in a file of their variables, "" for none. What cannot be read is left out.
func SecretValues(folders []string, env string) (values []string) {
	for _, folder := range folders {
		entries, _ := os.ReadDir(folder)
		for _, e := range entries {
			if b, err := os.ReadFile(filepath.Join(folder, e.Name())); err == nil {
				values = append(values, string(b))
			}
		}
	}
	all, _ := ReadEnv(env)
	for _, kv := range all {
		_, value, _ := strings.Cut(kv, "=")
		values = append(values, value)
	}
	return values
}

// Masker takes the values of a container's secrets out of what its program writes. The values are read where the program finds them, anew
// whenever they were replaced; older ones stay masked, as the program may go on with them. Not safe for concurrent use.
type Masker struct {
	folders []string
	env     string
	seen    []time.Time // when each of them was last written, as far as the values are known
	texts   []string
}

// NewMasker returns the masker of a container with these secrets, nil where there are none.
func NewMasker(secrets []Mount, env string) *Masker {
	if len(secrets) == 0 && env == "" {
		return nil
	}
	m := &Masker{env: env}
	for _, s := range secrets {
		m.folders = append(m.folders, s.Source)
	}
	return m
}

// Func returns Mask for the log of the container, nil where nothing is masked.
func (m *Masker) Func() func([]byte) []byte {
	if m == nil {
		return nil
	}
	return m.Mask
}

// Mask returns the text with Masked in the place of values; it may be the text itself.
func (m *Masker) Mask(text []byte) []byte {
	m.refresh()
	for _, t := range m.texts {
		if bytes.Contains(text, []byte(t)) {
			text = bytes.ReplaceAll(text, []byte(t), []byte(Masked))
		}
	}
	return text
}

// refresh reads the values again if they were replaced: a rename into a folder changes the folder.
func (m *Masker) refresh() {
	now := make([]time.Time, 0, len(m.folders)+1)
	for _, name := range append(slices.Clip(m.folders), m.env) {
		if info, err := os.Stat(name); err == nil {
			now = append(now, info.ModTime())
		} else {
			now = append(now, time.Time{}) // the attempt is over: what was known stays
		}
	}
	if slices.Equal(now, m.seen) {
		return
	}
	m.seen = now
	texts := MaskedTexts(SecretValues(m.folders, m.env))
	for _, old := range m.texts {
		if !slices.Contains(texts, old) && len(texts) < maxMasked {
			texts = append(texts, old)
		}
	}
	slices.SortStableFunc(texts, func(x, y string) int { return len(y) - len(x) })
	m.texts = texts
}
