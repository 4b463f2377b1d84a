// Package encode appends values to keys of maps. Each value is preceded by its length, so two sequences of values have
// equal keys only if they are equal.
package encode

import (
	"maps"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// Text appends a text.
func Text(b []byte, s string) []byte {
	b = Number(b, uint64(len(s)))
	return append(b, s...)
}

// Number appends a number: one byte for its length, then as few bytes as it needs.
func Number(b []byte, n uint64) []byte {
	at := len(b)
	b = append(b, 0)
	for ; n > 0; n >>= 8 {
		b = append(b, byte(n))
		b[at]++
	}
	return b
}

// Labels appends labels.
func Labels(b []byte, labels cluster.Labels) []byte {
	b = Number(b, uint64(len(labels)))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		b = Text(Text(b, key), labels[key])
	}
	return b
}
