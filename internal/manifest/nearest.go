package manifest

import (
	"strings"

	"github.com/berthd/berth/internal/spelling"
)

// nearest returns the word that was probably meant, or "" if none is near: at most a third
// of its letters are wrong, missing, too many or swapped with a neighbour, or only
// the case and the joints ("_", "-") differ.
func nearest(word string, words []string) string {
	const longest = 40
	if len(word) > longest {
		return ""
	}
	best, found := 0, ""
	for _, w := range words {
		limit := max(1, min(len(word), len(w))/3)
		n := spelling.Distance(plain(word), plain(w))
		if n <= limit && (found == "" || n < best) {
			best, found = n, w
		}
	}
	return found
}

// plain drops what people mix up.
func plain(s string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(s))
}
