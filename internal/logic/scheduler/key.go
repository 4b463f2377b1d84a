package scheduler

import (
	"maps"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

func textKey(b []byte, s string) []byte {
	b = appendNumber(b, uint64(len(s)))
	return append(b, s...)
}

// appendNumber appends a number: one byte for its length, then as few bytes as it needs.
func appendNumber(b []byte, n uint64) []byte {
	at := len(b)
	b = append(b, 0)
	for ; n > 0; n >>= 8 {
		b = append(b, byte(n))
		b[at]++
	}
	return b
}

// labelsKey appends labels.
func labelsKey(b []byte, labels cluster.Labels) []byte {
	b = appendNumber(b, uint64(len(labels)))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		b = textKey(textKey(b, key), labels[key])
	}
	return b
}
