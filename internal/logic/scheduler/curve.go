package scheduler

// A shelf holds its nodes along a curve through the plane of CPU and memory, on which neighbours are near each other in
// both. So a page, of whatever height, is nodes with nearly the same of both, and what is said of the most and the
// least that is free below it says much.
const (
	curveBits = (64 - levelShift) / 2 // of each of the two
	curveSide = 1 << curveBits
)

// placeOn returns the entry by which a shelf holds a node: in the order of the curve, and of equals of byFill.
func (g *catalog) placeOn(l *load, slot int32) entry {
	s := sharesOf(l.used, g.shapes[g.classes[l.class].shape])
	cell := func(share uint64) uint64 { return min(share*curveSide/parts, curveSide-1) }
	return entry{
		key: hilbert(cell(s.cpu), cell(s.memory))<<levelShift | l.key[byFill], slot: slot, free: l.free(),
		level: int16(s.balance()), mark: uint8(l.class % 64),
	}
}

// hilbert returns how far along Hilbert's curve a cell of the plane lies. Both are below curveSide.
func hilbert(x, y uint64) (far uint64) {
	for side := uint64(curveSide / 2); side > 0; side /= 2 {
		right, upper := x&side > 0, y&side > 0
		switch {
		case right && upper:
			far += 2 * side * side
		case right:
			far += 3 * side * side
			x, y = curveSide-1-y, curveSide-1-x
		case upper:
			far += side * side
		default:
			x, y = y, x
		}
	}
	return far
}
