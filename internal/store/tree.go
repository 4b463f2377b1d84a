package store

import (
	"cmp"

	"github.com/tidwall/btree"
)

// tree is a map in the order of its keys with copy-on-write copies. A tree that did not change since its last copy
// returns the same copy again.
type tree[K cmp.Ordered, V any] struct {
	btree.Map[K, V]
	copied *tree[K, V] // the last published copy; nil once the tree changed after it
}

// smallNodeDegree is the B-tree degree for tables in which one batch changes many places. A change copies its tree
// node, and small nodes are cheaper to copy.
const smallNodeDegree = 16

func newSmallNodeTree[K cmp.Ordered, V any]() *tree[K, V] {
	return &tree[K, V]{Map: *btree.NewMap[K, V](smallNodeDegree)}
}

// Set puts a value under a key.
func (t *tree[K, V]) Set(k K, v V) {
	t.copied = nil
	t.Map.Set(k, v)
}

// Delete removes a key and returns its value.
func (t *tree[K, V]) Delete(k K) (V, bool) {
	t.copied = nil
	return t.Map.Delete(k)
}

// published returns an immutable copy. Only the goroutine that changes the tree may call it.
func (t *tree[K, V]) published() *tree[K, V] {
	if t.copied == nil {
		t.copied = &tree[K, V]{Map: *t.Copy()}
	}
	return t.copied
}

// fork returns a mutable copy of a published tree. Any goroutine may call it at any time. Copying marks both sides as
// shared; fork copies a local value of the map, so that it writes nothing to the published tree.
func (t *tree[K, V]) fork() *tree[K, V] {
	m := t.Map
	return &tree[K, V]{Map: *m.Copy()}
}
