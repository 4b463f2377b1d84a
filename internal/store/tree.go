package store

import (
	"cmp"

	"github.com/tidwall/btree"
)

// tree is a map in the order of its keys. Copies share with it what has not changed since; a tree that did not change
// at all hands out the same copy again.
type tree[K cmp.Ordered, V any] struct {
	btree.Map[K, V]
	newest *tree[K, V] // the copy that was handed out, nil since the tree was changed
}

// fineDegree is the degree of trees of which each batch changes many places: a change copies the node that it is in,
// and small ones cost less.
const fineDegree = 16

func newFineTree[K cmp.Ordered, V any]() *tree[K, V] {
	return &tree[K, V]{Map: *btree.NewMap[K, V](fineDegree)}
}

// Set puts a value under a key.
func (t *tree[K, V]) Set(k K, v V) {
	t.newest = nil
	t.Map.Set(k, v)
}

// Delete takes a key out, and returns what stood there.
func (t *tree[K, V]) Delete(k K) (V, bool) {
	t.newest = nil
	return t.Map.Delete(k)
}

// published returns a copy that nobody may change. Only who changes the tree may call it.
func (t *tree[K, V]) published() *tree[K, V] {
	if t.newest == nil {
		t.newest = &tree[K, V]{Map: *t.Copy()}
	}
	return t.newest
}

// fork returns a copy that may be changed, of a tree that nobody changes any more. Anybody may call it at any time: a
// copy marks both as shared, and the mark that the tree itself needs no more is made on something else.
func (t *tree[K, V]) fork() *tree[K, V] {
	m := t.Map
	return &tree[K, V]{Map: *m.Copy()}
}
