package scheduler

// imageParts is the bonus for a node with all images of a task, in millionths of a resource. It counts like that much
// less usage for spread, else like that much more. It is small, so that it decides only between nodes of about equal
// fill.
const imageParts = 50_000

// maxListedImageNodes is how many nodes with images of a class are judged one by one. If there are more, a tree search
// soon meets one.
const maxListedImageNodes = 64

// imageDemand is the images that the tasks of a class use.
type imageDemand struct {
	nodes  []map[int32]struct{} // by image, the nodes that have it
	common bool                 // too many nodes have them to judge each by itself
}

// present returns the number of the images on the node.
func (d *imageDemand) present(slot int32) (n int) {
	for _, nodes := range d.nodes {
		if _, found := nodes[slot]; found {
			n++
		}
	}
	return n
}

// bonus returns what so many images on a node subtract from the rank's fill.
func (d *imageDemand) bonus(present int) uint64 {
	if len(d.nodes) == 0 {
		return 0
	}
	return uint64(imageParts*present/len(d.nodes)) << taskBits
}

// visit yields the nodes that have one of the images, some more than once.
func (d *imageDemand) visit(yield func(slot int32) bool) {
	for _, nodes := range d.nodes {
		for slot := range nodes { // order-free: the best is taken
			if !yield(slot) {
				return
			}
		}
	}
}
