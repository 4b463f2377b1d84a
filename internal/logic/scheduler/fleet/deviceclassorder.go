package fleet

import (
	"github.com/berthd/berth/internal/logic/scheduler/index"
)

// The tree of a device class orders its nodes along a Hilbert curve through the plane of used CPU and memory.
// Neighbours on the curve are near each other in both. So the nodes below a page have similar free CPU and memory, and
// the bounds of the page are tight.
const (
	curveBits = (64 - index.LevelShift) / 2 // of each coordinate
	curveSide = 1 << curveBits
)

// deviceClassEntry returns the tree entry of a node in its device class: ordered along the curve, equal cells by fill.
func (g *Catalog) deviceClassEntry(l *Load, slot int32) index.Entry {
	s := index.SharesOf(l.Used, g.Shapes[g.Classes[l.Class].Shape])
	cell := func(share uint64) uint64 { return min(share*curveSide/index.Parts, curveSide-1) }
	return index.Entry{
		Key: hilbert(cell(s.CPU), cell(s.Memory))<<index.LevelShift | l.Key[ByFill], Slot: slot, Free: l.Free(),
		Balance: int16(s.Balance()), ClassBit: uint8(l.Class % 64),
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
