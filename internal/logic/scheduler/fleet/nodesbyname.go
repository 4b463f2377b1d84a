package fleet

import (
	"maps"
)

// nodesByName are the nodes that have an image or a volume, by its reference or key.
type nodesByName map[string]map[int32]struct{}

func (m nodesByName) add(slot int32, list []string) {
	for _, image := range list {
		if m[image] == nil {
			m[image] = map[int32]struct{}{}
		}
		m[image][slot] = struct{}{}
	}
}

func (m nodesByName) remove(slot int32, list []string) {
	for _, image := range list {
		delete(m[image], slot)
		if len(m[image]) == 0 {
			delete(m, image)
		}
	}
}

func (m nodesByName) clone() nodesByName {
	own := make(nodesByName, len(m))
	for name, nodes := range m { // order-free: a copy
		own[name] = maps.Clone(nodes)
	}
	return own
}
