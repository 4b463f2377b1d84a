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

func scan[T any](t table[T], prefix string) iter.Seq[Entry[T]] {
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

// tree is a map in the order of its keys with copy-on-write copies.
//
// It is an interface for the sake of the packages that import this one. The go command compiles the methods of a
// generic type again in each package that reaches the type. With the B-trees as fields of a Snapshot these were 60,000
// functions in each of 60 packages.
type tree[K cmp.Ordered, V any] interface {
	Len() int
	Get(K) (V, bool)
	// MaxBelow returns the last key below the given one.
	MaxBelow(K) (K, V, bool)
	// Ascend passes the values of all keys from the given one on, in the order of the keys, until the function
	// returns false.
	Ascend(from K, do func(K, V) bool)

	Set(K, V)
	Delete(K) (V, bool)

	// published returns an immutable copy. Only the goroutine that changes the tree may call it.
	published() tree[K, V]
	// fork returns a mutable copy of a published tree. Any goroutine may call it at any time.
	fork() tree[K, V]
}

// btreeMap is the tree of all tables. A map that did not change since its last copy returns the same copy again.
type btreeMap[K cmp.Ordered, V any] struct {
	entries btree.Map[K, V]
	copied  *btreeMap[K, V] // the last published copy; nil once the map changed after it
}

// smallNodeDegree is the B-tree degree for tables in which one batch changes many places. A change copies its tree
// node, and small nodes are cheaper to copy.
const smallNodeDegree = 16

func (t *btreeMap[K, V]) Len() int                          { return t.entries.Len() }
func (t *btreeMap[K, V]) Get(k K) (V, bool)                 { return t.entries.Get(k) }
func (t *btreeMap[K, V]) Ascend(from K, do func(K, V) bool) { t.entries.Ascend(from, do) }

func (t *btreeMap[K, V]) Max() (K, V, bool) { return t.entries.Max() }

func (t *btreeMap[K, V]) MaxBelow(k K) (last K, v V, ok bool) {
	t.entries.Descend(k, func(key K, value V) bool {
		if key == k {
			return true
		}
		last, v, ok = key, value, true
		return false
	})
	return last, v, ok
}

func (t *btreeMap[K, V]) Set(k K, v V) {
	t.copied = nil
	t.entries.Set(k, v)
}

func (t *btreeMap[K, V]) Delete(k K) (V, bool) {
	t.copied = nil
	return t.entries.Delete(k)
}

func (t *btreeMap[K, V]) published() tree[K, V] {
	if t.copied == nil {
		t.copied = &btreeMap[K, V]{entries: *t.entries.Copy()}
	}
	return t.copied
}

// fork copies a local value of the entries: a copy marks both sides as shared, and fork writes nothing to the
// published map.
func (t *btreeMap[K, V]) fork() tree[K, V] {
	entries := t.entries
	return &btreeMap[K, V]{entries: *entries.Copy()}
}

// derivation is how the tables of a snapshot follow from those of another snapshot.
type derivation int

const (
	asNew       derivation = iota // empty
	asPublished                   // an immutable copy: see tree
	asFork                        // a mutable copy of an immutable tree: see tree
)

// derived returns a tree that follows from another one, which is nil where the new one begins empty.
func derived[K cmp.Ordered, V any](from tree[K, V], how derivation) tree[K, V] {
	switch how {
	case asPublished:
		return from.published()
	case asFork:
		return from.fork()
	}
	return new(btreeMap[K, V])
}

// derivedSmall is derived for a tree with small nodes.
func derivedSmall[K cmp.Ordered, V any](from tree[K, V], how derivation) tree[K, V] {
	if how == asNew {
		return &btreeMap[K, V]{entries: *btree.NewMap[K, V](smallNodeDegree)}
	}
	return derived(from, how)
}
