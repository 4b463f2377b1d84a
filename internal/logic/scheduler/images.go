package scheduler

// imageParts is what it is worth that all images of a task are on a node, in parts of a resource: as if that much less,
// or more to who fills nodes, were used there. So little only decides among nodes that are about as full.
const imageParts = 50_000

// images says which nodes have an image.
type images map[string]map[int32]struct{}

func (m images) add(slot int32, list []string) {
	for _, image := range list {
		if m[image] == nil {
			m[image] = map[int32]struct{}{}
		}
		m[image][slot] = struct{}{}
	}
}

func (m images) remove(slot int32, list []string) {
	for _, image := range list {
		delete(m[image], slot)
		if len(m[image]) == 0 {
			delete(m, image)
		}
	}
}

// fewImages is up to how many nodes with an image are looked at one by one; of more there is soon one in the order of a
// tree.
const fewImages = 64

// settleImages finds the nodes that have images of the class.
func (y *cycle) settleImages(c *class) {
	nodes := 0
	for _, image := range c.Images {
		c.images = append(c.images, y.fleet.images[image])
		nodes += len(y.fleet.images[image])
	}
	c.commonImages = nodes > fewImages
}

// present returns how many of the class's images are on the node.
func (c *class) present(slot int32) (n int) {
	for _, nodes := range c.images {
		if _, found := nodes[slot]; found {
			n++
		}
	}
	return n
}

// imageWorth is what so many images on a node take off the rank's fill.
func (c *class) imageWorth(present int) uint64 {
	if len(c.images) == 0 {
		return 0
	}
	return uint64(imageParts*present/len(c.images)) << taskBits
}

// withImages yields the nodes that have images of the class, some more than once.
func (c *class) withImages(yield func(slot int32) bool) {
	for _, nodes := range c.images {
		for slot := range nodes { // order-free: the best is taken
			if !yield(slot) {
				return
			}
		}
	}
}
