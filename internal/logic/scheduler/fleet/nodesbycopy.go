package fleet

import (
	"maps"

	"github.com/berthd/berth/internal/cluster"
)

// nodesByCopy are the nodes with a copy of a volume, by the volume's key. The copies must not be changed.
type nodesByCopy map[string]map[int32]*cluster.StickyCopy

func (c nodesByCopy) add(slot int32, f *cluster.FolderFacts) {
	if f == nil {
		return
	}
	for i := range f.Sticky {
		s := &f.Sticky[i]
		if c[s.Key] == nil {
			c[s.Key] = map[int32]*cluster.StickyCopy{}
		}
		c[s.Key][slot] = s
	}
}

func (c nodesByCopy) remove(slot int32, f *cluster.FolderFacts) {
	if f == nil {
		return
	}
	for _, s := range f.Sticky {
		if delete(c[s.Key], slot); len(c[s.Key]) == 0 {
			delete(c, s.Key)
		}
	}
}

func (c nodesByCopy) clone() nodesByCopy {
	own := make(nodesByCopy, len(c))
	for key, nodes := range c { // order-free: a copy
		own[key] = maps.Clone(nodes)
	}
	return own
}
