package store

import (
	"cmp"
	"iter"
	"strings"

	"github.com/tidwall/btree"
)

// Entry is a record of the tables with its revisions. Value is shared by all snapshots: callers must not change it.
type Entry[T any] struct {
	Value             *T
	Key               string
	Created, Modified uint64
}

type table[T any] = tree[string, Entry[T]]

func scan[T any](t *table[T], prefix string) iter.Seq[Entry[T]] {
	return func(yield func(Entry[T]) bool) {
		t.Ascend(prefix, func(k string, e Entry[T]) bool {
			return strings.HasPrefix(k, prefix) && yield(e)
		})
	}
}

func folder(name string) string {
	if name == "" {
		return ""
	}
	return name + "/"
}

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

// derivation is how the tables of a snapshot follow from those of another snapshot.
type derivation int

const (
	asNew       derivation = iota // empty
	asPublished                   // an immutable copy: see tree.published
	asFork                        // a mutable copy of an immutable tree: see tree.fork
)

// derived returns a tree that follows from another one, which is nil where the new one begins empty.
func derived[K cmp.Ordered, V any](from *tree[K, V], how derivation) *tree[K, V] {
	switch how {
	case asPublished:
		return from.published()
	case asFork:
		return from.fork()
	}
	return new(tree[K, V])
}

// derivedSmall is derived for a tree with small nodes.
func derivedSmall[K cmp.Ordered, V any](from *tree[K, V], how derivation) *tree[K, V] {
	if how == asNew {
		return newSmallNodeTree[K, V]()
	}
	return derived(from, how)
}
