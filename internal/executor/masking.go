package executor

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Masked replaces the value of a secret in logs and messages.
const Masked = "[secret]"

// Lengths of masked texts: whole values from ShortSecret bytes on; of values with several lines, each line from
// longLine bytes on.
const (
	ShortSecret = 4
	longLine    = 12
)

// maxMasked bounds how many texts are searched for: those of the newest values.
const maxMasked = 1024

// sameTime is the least age of a folder's modification time that proves the folder unchanged. Two changes within a tick
// of the kernel's clock, 10 ms at most, have one time.
const sameTime = 50 * time.Millisecond

// FormerFolder is the folder, beside a container's folders of secrets, with the files of replaced values, ordered by
// name: the only list of old values that its programs may still print. The replacer of a value writes there first.
const FormerFolder = "former"

// MaskedTexts returns the texts to mask for secrets with these values (the newest first), the longest text first. If
// there are too many texts, the first values count.
func MaskedTexts(values []string) (texts []string) {
	for _, value := range values {
		if len(texts) >= maxMasked {
			break
		}
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
	slices.SortFunc(texts, func(x, y string) int { return cmp.Or(len(y)-len(x), strings.Compare(x, y)) })
	return slices.Compact(texts)
}

// SecretValues reads the current and former values of a container's secrets: those in its folders of secrets and in the
// file of its variables ("" for none), then the replaced ones, the newest first. Unreadable values are left out.
func SecretValues(folders []string, env string) (values []string) {
	for _, folder := range folders {
		entries, _ := os.ReadDir(folder)
		for _, e := range entries {
			if b, err := os.ReadFile(filepath.Join(folder, e.Name())); err == nil {
				values = append(values, string(b))
			}
		}
	}
	values = append(values, variables(env)...)
	for _, dir := range formerFolders(folders, env) {
		entries, _ := os.ReadDir(dir)
		for _, e := range slices.Backward(entries) {
			name := filepath.Join(dir, e.Name())
			b, err := os.ReadFile(name)
			if err != nil {
				continue
			}
			if bytes.HasSuffix(b, []byte{0}) {
				values = append(values, variables(name)...)
			}
			values = append(values, string(b))
		}
	}
	return values
}

// variables returns the values of a file of variables.
func variables(name string) (values []string) {
	all, _ := ReadEnv(name)
	for _, kv := range all {
		_, value, _ := strings.Cut(kv, "=")
		values = append(values, value)
	}
	return values
}

// formerFolders are the folders with values that were replaced: in general one.
func formerFolders(folders []string, env string) (dirs []string) {
	for _, name := range append(slices.Clip(folders), env) {
		if name == "" {
			continue
		}
		if dir := filepath.Join(filepath.Dir(name), FormerFolder); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// Masker replaces the values of a container's secrets in the output of its program. It reads them with SecretValues
// again whenever they change. It caches them in memory, and beyond the attempt's end, when the files are gone. Not safe
// for concurrent use.
type Masker struct {
	folders []string
	env     string
	seen    []time.Time // when each of them was last written, as far as the values are known
	texts   []string
}

// NewMasker returns the masker of a container with these secrets, or nil without secrets.
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
	began, fresh := time.Now(), false
	for _, name := range append(slices.Clip(m.folders), m.env) {
		if info, err := os.Stat(name); err == nil {
			now = append(now, info.ModTime())
			fresh = fresh || began.Sub(info.ModTime()).Abs() < sameTime
		} else {
			now = append(now, time.Time{}) // the attempt is over: the cached values stay valid
		}
	}
	if slices.Equal(now, m.seen) {
		return
	}
	if m.seen = now; fresh {
		m.seen = nil
	}
	if values := SecretValues(m.folders, m.env); len(values) > 0 {
		m.texts = MaskedTexts(values)
	}
}
