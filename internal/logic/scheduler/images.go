package scheduler

// imageParts is the bonus for a node with all images of a task, in millionths of a resource. It counts like that much
// less usage for spread, else like that much more. It is small, so that it decides only between nodes of about equal
// fill.
const imageParts = 50_000

// nodesByImage are the nodes that have an image, by its reference.
type nodesByImage map[string]map[int32]struct{}

func (m nodesByImage) add(slot int32, list []string) {
	for _, image := range list {
		if m[image] == nil {
			m[image] = map[int32]struct{}{}
		}
		m[image][slot] = struct{}{}
	}
}

func (m nodesByImage) remove(slot int32, list []string) {
	for _, image := range list {
		delete(m[image], slot)
		if len(m[image]) == 0 {
			delete(m, image)
		}
	}
}

// maxListedImageNodes is how many nodes with images of a class are judged one by one. If there are more, a tree search
// soon meets one.
const maxListedImageNodes = 64

// prepareImages finds the nodes that have images of the class.
func (y *cycle) prepareImages(c *taskClass) {
	nodes := 0
	for _, image := range c.Images {
		c.images = append(c.images, y.fleet.images[image])
		nodes += len(y.fleet.images[image])
	}
	c.commonImages = nodes > maxListedImageNodes
}

// present returns the number of the class's images on the node.
func (c *taskClass) present(slot int32) (n int) {
	for _, nodes := range c.images {
		if _, found := nodes[slot]; found {
			n++
		}
	}
	return n
}

// imageBonus returns what so many images on a node subtract from the rank's fill.
func (c *taskClass) imageBonus(present int) uint64 {
	if len(c.images) == 0 {
		return 0
	}
	return uint64(imageParts*present/len(c.images)) << taskBits
}

// withImages yields the nodes that have images of the class, some more than once.
func (c *taskClass) withImages(yield func(slot int32) bool) {
	for _, nodes := range c.images {
		for slot := range nodes { // order-free: the best is taken
			if !yield(slot) {
				return
			}
		}
	}
}
