package store

import (
	"iter"
	"strings"
)

// Entry is a record of the tables with its revisions. Value is shared by all
// snapshots: nobody may change it.
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
