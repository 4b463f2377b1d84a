// Package spelling finds the known word that was probably meant by a misspelt one.
package spelling

import (
	"iter"
	"strings"
	"unicode"
)

// Nearest returns the known word that is nearest to a misspelt one, or "" if none is near. Of several that are equally
// near it returns the first in alphabetical order.
func Nearest(word string, known iter.Seq[string]) string {
	found, least := "", 0
	for k := range known {
		n, near := compare(word, k)
		if near && (found == "" || n < least || n == least && k < found) {
			found, least = k, n
		}
	}
	return found
}

// Near reports whether a known word was probably meant by another one: a third of the letters of the shorter word, and
// at least one, may be wrong, missing, extra or swapped with a neighbour. Case and the separators "_" and "-" do not
// count. Words without a common letter are never near.
func Near(word, known string) bool {
	_, near := compare(word, known)
	return near
}

// compare returns the distance between two words, and whether they are near.
func compare(a, b string) (n int, near bool) {
	a, b = normalize(a), normalize(b)
	n = distance(a, b)
	return n, n <= max(1, min(len(a), len(b))/3) && n < max(len(a), len(b), 1)
}

// normalize removes the differences that people confuse: case and separators.
func normalize(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' {
			return -1
		}
		return unicode.ToLower(r)
	}, s)
}

// distance counts the letters to add, drop, change or swap with a neighbour to turn a into b: the optimal string
// alignment distance. It compares bytes. A text of more than 64 bytes is 64 away from every other.
func distance(a, b string) int {
	const longest = 64
	if len(a) > longest || len(b) > longest {
		return longest
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
