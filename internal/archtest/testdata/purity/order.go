package planted

import (
	"maps"
	"slices"
)

type set map[string]bool

func ranges[M map[string]int | set, N ~map[int]int](s set, m M, n N) (out []string) {
	for k := range s { // want "range over a map"
		out = append(out, k)
	}
	for range n { // want "range over a map"
	}
	for k := range maps.Keys(s) { // want "maps.Keys in the order of a map"
		out = append(out, k)
	}
	all := slices.Collect(maps.Values(s)) // want "maps.Values in the order of a map"
	for k := range s {                    // want "range over a map"
		// order-free: a mark inside the loop says nothing about the loop
		out = append(out, k)
	}
	// order-free:
	for range s { // want "range over a map"
	}

	for _, k := range slices.Sorted(maps.Keys(s)) {
		out = append(out, k)
	}
	count := 0
	// order-free: counting is the same in any order
	for range s {
		count++
	}
	for range s { // order-free: counting, again
		count++
	}
	for _, v := range all {
		_ = v
	}
	return out
}
