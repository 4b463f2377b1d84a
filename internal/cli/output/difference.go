package output

import (
	"strings"

	"github.com/berthd/berth/api"
)

// FormatChange shows the old and the new value of a field. Long values are cut to the part that differs, with some text
// before it.
func FormatChange(f api.FieldChange) string {
	const most, before = 80, 20
	old, now := unescapeHTML(f.Old), unescapeHTML(f.New)
	switch {
	case f.Old == "":
		return "set to " + Truncate(now, most)
	case f.New == "":
		return Truncate(old, most) + " is removed"
	}
	if x, y := []rune(old), []rune(now); max(len(x), len(y)) > most {
		same := 0
		for same < min(len(x), len(y)) && x[same] == y[same] {
			same++
		}
		if skip := same - before; skip > 0 {
			old, now = "…"+string(x[skip:]), "…"+string(y[skip:])
		}
	}
	return Truncate(old, most) + " → " + Truncate(now, most)
}

// unescapeHTML restores the characters that Go's JSON encoder escapes for web pages.
func unescapeHTML(text string) string {
	return strings.NewReplacer(`\u0026`, "&", `\u003c`, "<", `\u003e`, ">").Replace(text)
}
