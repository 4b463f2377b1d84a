package manifest

import (
	"strings"

	"github.com/berthd/berth/internal/spelling"
)

// nearest returns the word that was probably meant, or "". At most a third of its letters may be wrong, missing, extra
// or swapped with a neighbour, or only the case and the separators ("_", "-") may differ.
func nearest(word string, words []string) string {
	const longest = 40
	if len(word) > longest {
		return ""
	}
	best, found := 0, ""
	for _, w := range words {
		limit := max(1, min(len(word), len(w))/3)
		n := spelling.Distance(normalize(word), normalize(w))
		if n <= limit && (found == "" || n < best) {
			best, found = n, w
		}
	}
	return found
}

// normalize removes the differences that people confuse: case and separators.
func normalize(s string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(s))
}
