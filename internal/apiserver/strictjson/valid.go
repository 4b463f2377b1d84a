package strictjson

import (
	"encoding/json"
	"slices"
	"strings"
)

// validParser parses a text that is known to be valid JSON.
type validParser struct {
	text   []byte
	all    string // the same, for the keys to be parts of
	at     int
	values int
	spare  []tree   // the next ones
	keys   []string // of the objects that are being read, the outer ones first, and their values with those of arrays
	found  []*tree
}

// parseValid returns the tree of a valid text; ok is false beyond the bounds.
func parseValid(text []byte) (root *tree, ok bool) {
	v := validParser{text: text, all: string(text)}
	root = v.value(0)
	return root, root != nil
}

// value reads the next value; nil beyond the bounds.
func (v *validParser) value(depth int) *tree {
	if v.values++; v.values > maxValues || depth > maxDepth {
		return nil
	}
	v.space()
	t, start := v.newTree(), v.at
	switch c := v.text[start]; c {
	case '{', '[':
		t.kind = c
		if !v.members(t, depth) {
			return nil
		}
	case '"':
		t.kind = c
		v.quoted()
	case 't', 'f':
		t.kind = 't'
		v.word()
	case 'n':
		t.kind = c
		v.word()
	default:
		t.kind = '0'
		v.word()
	}
	t.text = v.text[start:v.at]
	return t
}

// newTree returns an empty tree from a block of trees.
func (v *validParser) newTree() *tree {
	if len(v.spare) == 0 {
		v.spare = make([]tree, min(8+v.values, 256))
	}
	t := &v.spare[0]
	v.spare = v.spare[1:]
	return t
}

// members reads an object or an array from its opening bracket to its closing one.
func (v *validParser) members(t *tree, depth int) bool {
	keys, found := len(v.keys), len(v.found)
	v.at++
	for {
		v.space()
		switch v.text[v.at] {
		case '}', ']':
			v.at++
			t.keys, t.values = slices.Clone(v.keys[keys:]), slices.Clone(v.found[found:])
			t.twice = repeated(t.keys)
			v.keys, v.found = v.keys[:keys], v.found[:found]
			return true
		case ',':
			v.at++
			continue
		}
		if t.kind == '{' {
			v.keys = append(v.keys, v.key())
		}
		member := v.value(depth + 1)
		if member == nil {
			return false
		}
		v.found = append(v.found, member)
	}
}

// key reads a key and its colon.
func (v *validParser) key() (key string) {
	start := v.at
	escapes := v.quoted()
	if literal := v.text[start:v.at]; escapes {
		_ = json.Unmarshal(literal, &key) // it is valid
	} else {
		key = v.all[start+1 : v.at-1]
	}
	v.space()
	v.at++
	return key
}

// quoted skips a string literal and reports whether it has escapes.
func (v *validParser) quoted() (escapes bool) {
	for v.at++; v.text[v.at] != '"'; v.at++ {
		if v.text[v.at] == '\\' {
			escapes = true
			v.at++
		}
	}
	v.at++
	return escapes
}

// word skips a number, true, false or null.
func (v *validParser) word() {
	for v.at < len(v.text) && strings.IndexByte(" \t\r\n,]}", v.text[v.at]) < 0 {
		v.at++
	}
}

func (v *validParser) space() {
	for v.text[v.at] == ' ' || v.text[v.at] == '\t' || v.text[v.at] == '\r' || v.text[v.at] == '\n' {
		v.at++
	}
}

// repeated returns the keys that occur again, each as often as it is repeated.
func repeated(keys []string) (twice []string) {
	const few = 16
	if len(keys) <= few {
		for i, key := range keys {
			if slices.Contains(keys[:i], key) {
				twice = append(twice, key)
			}
		}
		return twice
	}
	seen := make(map[string]bool, len(keys))
	for _, key := range keys {
		if seen[key] {
			twice = append(twice, key)
		}
		seen[key] = true
	}
	return twice
}
