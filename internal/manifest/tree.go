package manifest

import (
	"fmt"
	"slices"

	"github.com/berthd/berth/internal/shorten"
)

// shape is the kind of a value in the text.
type shape uint8

const (
	shapeNull shape = iota
	shapeBool
	shapeInt
	shapeFloat
	shapeText
	shapeList
	shapeObject
	shapeBroken // a value that could not be read, with a fault of its own
)

// node is a value of the text. Nodes do not change once they are made: an alias
// shares the node that it names, so the tree stays as small as the text.
type node struct {
	shape shape
	at    Position
	// text of a scalar: the text itself, canonical for numbers and booleans.
	text  string
	items []*node
	// fields are in the order of the text, with unique keys.
	fields []field
	// partial says that a merge into the object could not be read, so that fields of it may be unknown.
	partial bool
}

// field is one entry of an object.
type field struct {
	key   string
	at    Position // the key's
	value *node
}

// field returns the entry of a key, or nil.
func (n *node) field(key string) *field {
	for i := range n.fields {
		if n.fields[i].key == key {
			return &n.fields[i]
		}
	}
	return nil
}

// describe describes the value for a message.
func (n *node) describe() string {
	switch n.shape {
	case shapeNull:
		return "nothing"
	case shapeBool:
		return n.text
	case shapeInt, shapeFloat:
		return "the number " + clip(n.text)
	case shapeText:
		return fmt.Sprintf("the text %q", clip(n.text))
	case shapeList:
		return "a list"
	case shapeObject:
		return "an object"
	}
	return "a value"
}

// clip shortens text that came from outside for use in a message.
func clip(s string) string { return shorten.Marked(s, 60) }

// reader is one pass over a file.
type reader struct {
	file    string
	words   int // spent of MaxFileWords
	objects []Object
	faults  Faults
	systems []map[string]foreignField // see foreignSystems
}

func (r *reader) fault(at Position, path, format string, args ...any) {
	r.faults = append(r.faults, Fault{at, path, fmt.Sprintf(format, args...)})
}

// sorted returns the faults in the order of the text, without duplicates, at most maxFaults of them.
func (r *reader) sorted() Faults {
	slices.SortStableFunc(r.faults, func(a, b Fault) int { return a.Position.compare(b.Position) })
	fs := slices.Compact(r.faults)
	if len(fs) > maxFaults {
		rest := len(fs) - maxFaults
		fs = append(fs[:maxFaults:maxFaults], Fault{Position{File: r.file}, "", fmt.Sprintf("and %d more", rest)})
	}
	return fs
}

// builder joins values into objects with unique keys.
type builder struct {
	*reader
	values int // spent of MaxValues
}

// spend counts values and reports whether the document may hold them.
func (b *builder) countValue(n int) bool {
	b.values += n
	return b.values <= MaxValues
}

// object makes a node of the fields. A repeated key is a fault, and its first value counts.
func (b *builder) object(at Position, fields []field) *node {
	n := &node{shape: shapeObject, at: at, fields: fields[:0:0]}
	seen := make(map[string]Position, len(fields))
	for _, f := range fields {
		if first, ok := seen[f.key]; ok {
			b.fault(f.at, "", "%q is repeated: the first is in line %d", clip(f.key), first.Line)
			continue
		}
		seen[f.key] = f.at
		n.fields = append(n.fields, f)
	}
	return n
}
