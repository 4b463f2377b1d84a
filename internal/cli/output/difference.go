package output

import (
	"strings"

	"github.com/berthd/berth/api"
)

// Difference shows both values of a field. Of long ones it shows what differs, with a little of what stands before it.
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

// plainJSON writes signs as they are that JSON for web pages escapes.
func unescapeHTML(text string) string {
	return strings.NewReplacer(`\u0026`, "&", `\u003c`, "<", `\u003e`, ">").Replace(text)
}
