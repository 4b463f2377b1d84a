package scheduler

// The tree of a device class orders its nodes along a Hilbert curve through the plane of used CPU and memory.
// Neighbours on the curve are near each other in both. So the nodes below a page have similar free CPU and memory, and
// the bounds of the page are tight.
const (
	curveBits = (64 - levelShift) / 2 // of each coordinate
	curveSide = 1 << curveBits
)

// deviceClassEntry returns the tree entry of a node in its device class: ordered along the curve, equal cells by fill.
func (g *catalog) deviceClassEntry(l *load, slot int32) entry {
	s := sharesOf(l.used, g.shapes[g.classes[l.class].shape])
	cell := func(share uint64) uint64 { return min(share*curveSide/parts, curveSide-1) }
	return entry{
		key: hilbert(cell(s.cpu), cell(s.memory))<<levelShift | l.key[byFill], slot: slot, free: l.free(),
		balance: int16(s.balance()), classBit: uint8(l.class % 64),
	}
}

// hilbert returns the distance along the Hilbert curve of a cell. Both coordinates are below curveSide.
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
