package taskclass

import (
	"github.com/berthd/berth/internal/logic/scheduler/index"
)

// imageParts is the bonus for a node with all images of a task, in millionths of a resource. It counts like that much
// less usage for spread, else like that much more. It is small, so that it decides only between nodes of about equal
// fill.
const imageParts = 50_000

// maxListedImageNodes is how many nodes with images of a class are judged one by one. If there are more, a tree search
// soon meets one.
const maxListedImageNodes = 64

// imageDemand is the images that the tasks of a class use.
type imageDemand struct {
	Nodes  []map[int32]struct{} // by image, the nodes that have it
	Common bool                 // too many nodes have them to judge each by itself
}

// Present returns the number of the images on the node.
func (d *imageDemand) Present(slot int32) (n int) {
	for _, nodes := range d.Nodes {
		if _, found := nodes[slot]; found {
			n++
		}
	}
	return n
}

// Bonus returns what that many images on a node subtract from the rank's fill.
func (d *imageDemand) Bonus(present int) uint64 {
	if len(d.Nodes) == 0 {
		return 0
	}
	return uint64(imageParts*present/len(d.Nodes)) << index.TaskBits
}

// Visit yields the nodes that have one of the images, some more than once.
func (d *imageDemand) Visit(yield func(slot int32) bool) {
	for _, nodes := range d.Nodes {
		for slot := range nodes { // order-free: the best is taken
			if !yield(slot) {
				return
			}
		}
	}
}
