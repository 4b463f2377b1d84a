package fleet

import (
	"testing"
)

// TestHilbert checks that the curve visits each cell once, and that consecutive cells are neighbours in the plane.
func TestHilbert(t *testing.T) {
	type cell struct{ x, y int }
	cells := make([]*cell, curveSide*curveSide)
	for x := range curveSide {
		for y := range curveSide {
			far := hilbert(uint64(x), uint64(y))
			if far >= uint64(len(cells)) || cells[far] != nil {
				t.Fatalf("%d, %d lies %d along the curve, as another or beyond its end", x, y, far)
			}
			cells[far] = &cell{x: x, y: y}
		}
	}
	for far := 1; far < len(cells); far++ {
		a, b := cells[far-1], cells[far]
		if away := max(a.x-b.x, b.x-a.x) + max(a.y-b.y, b.y-a.y); away != 1 {
			t.Fatalf("from %v to %v at %d: got %d steps, want one", *a, *b, far, away)
		}
	}
}
