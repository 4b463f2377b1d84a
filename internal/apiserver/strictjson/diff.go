package strictjson

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/shorten"
)

// maxShown bounds a value in a difference, in bytes.
const maxShown = 256

// Diff returns the fields in which two JSON texts differ, ordered by path.
func Diff(a, b []byte) []api.FieldChange {
	if bytes.Equal(a, b) {
		return nil
	}
	left, right := map[string]string{}, map[string]string{}
	for text, into := range map[*[]byte]map[string]string{&a: left, &b: right} {
		if t, err := parse(*text); err == nil {
			leaves(t, "", into)
		}
	}
	var changes []api.FieldChange
	paths := maps.Clone(left)
	maps.Copy(paths, right)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if left[path] != right[path] {
			changes = append(changes, api.FieldChange{Path: path, Old: shown(left[path]), New: shown(right[path])})
		}
	}
	return changes
}

// leaves collects by path the values of a tree that hold no others.
func leaves(t *tree, path string, into map[string]string) {
	switch {
	case t.kind == '{' && len(t.keys) > 0:
		for i, key := range t.keys {
			leaves(t.values[i], join(path, SafeKey(key)), into)
		}
	case t.kind == '[' && len(t.values) > 0:
		for i, v := range t.values {
			leaves(v, fmt.Sprintf("%s[%d]", path, i), into)
		}
	default:
		into[path] = string(t.text)
	}
}

func shown(text string) string { return shorten.Marked(text, maxShown) }
