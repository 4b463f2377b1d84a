package manifest

import "strings"

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
		n := distance(normalize(word), normalize(w))
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

// distance counts the letters to add, drop, change or swap to make b of a (the optimal
// string alignment distance).
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
