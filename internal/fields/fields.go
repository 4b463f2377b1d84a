// Package fields explains the fields of manifests: type, default, bounds, values and meaning. It reads the JSON Schema
// of manifests, so the explanation of a field is that which editors show and by which manifests are checked.
package fields

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/spelling"
)

// Field is a field of a manifest, or a kind of objects as a whole.
type Field struct {
	// Path is the kind and the names of the fields that lead to the field: "Service.update.parallelism".
	Path string
	// Name is the last part of Path.
	Name string
	// Type is the form of the value in words: "text", "duration", "list of objects".
	Type string
	// Required says that a manifest must hold the field.
	Required bool
	// Default is the value of a field that is left out. Bounds are its lowest and highest value: "1ms to 1h".
	// Either is "" where there is none, or where it depends on other fields; the description says so then.
	Default, Bounds string
	// Values are all values of an enumeration.
	Values []string
	// Description is one or several sentences.
	Description string
	// Children are the fields of an object, or of the objects of a list, in the order of the schema. They have no
	// children of their own.
	Children []Field
}

// Document is a schema of manifests. It does not change, and may be used concurrently.
type Document struct{ root node }

// Parse reads a schema of manifests, as package manifest has it.
func Parse(schema string) (*Document, error) {
	var d Document
	if err := json.Unmarshal([]byte(schema), &d.root); err != nil {
		return nil, fmt.Errorf("read the schema of manifests: %w", err)
	}
	return &d, nil
}

// Kinds returns the kinds of objects, in the order of the schema.
func (d *Document) Kinds() []string { return d.root.Properties.nodes["kind"].Enum }

// Explain returns the field of a path: a kind, then the names of fields with dots between them, such as
// "service.update.parallelism". Lists are passed without an index, and "containers[0]" means the same as "containers".
// The case of the kind does not count. The error of an unknown part names the nearest known word, or all words.
func (d *Document) Explain(path string) (Field, error) {
	parts := strings.Split(path, ".")
	kind, err := d.kind(parts[0])
	if err != nil {
		return Field{}, err
	}
	n, at := d.root.Defs[kind], kind
	f := d.field(kind, kind, &node{Ref: definitions + kind}, false)
	for _, part := range parts[1:] {
		name, _, _ := strings.Cut(part, "[")
		object := d.object(n)
		child := object.Properties.nodes[name]
		if child == nil {
			return Field{}, unknown(fmt.Sprintf("%s has no field %q", at, name), name, object.Properties.names)
		}
		at += "." + name
		f = d.field(at, name, child, slices.Contains(object.Required, name))
		n = child
	}
	object := d.object(n)
	for _, name := range object.Properties.names {
		required := slices.Contains(object.Required, name)
		f.Children = append(f.Children, d.field(at+"."+name, name, object.Properties.nodes[name], required))
	}
	return f, nil
}

// kind returns the kind that a word means.
func (d *Document) kind(word string) (string, error) {
	for _, kind := range d.Kinds() {
		if strings.EqualFold(kind, word) || kind == "TaskDefinition" && strings.EqualFold(word, "definition") {
			return kind, nil
		}
	}
	return "", unknown(fmt.Sprintf("there is no kind %q", word), word, d.Kinds())
}

// unknown adds to a message the known word that was probably meant, or all of them.
func unknown(message, word string, known []string) error {
	if near := spelling.Nearest(word, slices.Values(known)); near != "" {
		return fmt.Errorf("%s: did you mean %q?", message, near)
	}
	if len(known) == 0 {
		return fmt.Errorf("%s: it is no object", message)
	}
	return fmt.Errorf("%s: want one of %s", message, strings.Join(known, ", "))
}

// definitions precedes the names of definitions in references.
const definitions = "#/$defs/"

// resolved returns the definition that a schema refers to, or the schema itself.
func (d *Document) resolved(n *node) *node {
	if name, ok := strings.CutPrefix(n.Ref, definitions); ok {
		return d.root.Defs[name]
	}
	return n
}

// object returns the schema of the objects that a value is, or that a list holds.
func (d *Document) object(n *node) *node {
	n = d.resolved(n)
	for n.Items != nil {
		n = d.resolved(n.Items)
	}
	return n
}

// field returns a field without its children.
func (d *Document) field(path, name string, n *node, required bool) Field {
	of := d.resolved(n)
	f := Field{
		Path: path, Name: name, Type: d.typeWords(n), Required: required, Default: unquoted(n.Default),
		Bounds: n.Bounds, Values: of.Enum, Description: n.Description,
	}
	if of != n && of.Description != "" && !strings.Contains(f.Description, of.Description) {
		f.Description = strings.TrimSpace(f.Description + " " + of.Description)
	}
	if items := d.object(n); f.Values == nil && items != of {
		f.Values = items.Enum
	}
	return f
}

// unquoted returns a JSON value as a manifest shows it.
func unquoted(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

// typeWords returns the form of a value in words.
func (d *Document) typeWords(n *node) string {
	name := strings.TrimPrefix(n.Ref, definitions)
	switch name {
	case "Duration":
		return "duration"
	case "Bytes":
		return "size"
	case "MilliCPU":
		return "CPU time"
	case "Portion":
		return "number or percentage"
	case "Priority":
		return "number or name"
	case "StatusRange":
		return "status or range"
	case "Ref":
		return "reference, as name@version"
	}
	n = d.resolved(n)
	if n.Const != "" {
		return "text"
	}
	if n.Items != nil {
		return "list of " + plural(d.typeWords(n.Items))
	}
	switch strings.Trim(string(n.Type), `"`) {
	case "string":
		return "text"
	case "boolean":
		return "true or false"
	case "integer":
		return "whole number"
	case "number":
		return "number"
	case "object":
		if len(n.Properties.names) == 0 {
			return "object of keys and values"
		}
		return "object"
	}
	return "value"
}

// plural returns the plural of the words for a type.
func plural(words string) string {
	if words == "text" {
		return "texts"
	}
	return words + "s"
}

// node is what the package reads of a schema.
type node struct {
	Ref         string `json:"$ref"`
	Description string
	Type        json.RawMessage // one word, or several for a quantity
	Const       string
	Enum        []string
	Default     json.RawMessage
	Bounds      string `json:"x-bounds"`
	Items       *node
	Properties  properties
	Required    []string
	Defs        map[string]*node `json:"$defs"`
}

// properties are the fields of an object in the order of the schema.
type properties struct {
	names []string
	nodes map[string]*node
}

// UnmarshalJSON reads the fields and their order.
func (p *properties) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, &p.nodes); err != nil {
		return err
	}
	dec := json.NewDecoder(strings.NewReader(string(text)))
	if _, err := dec.Token(); err != nil { // the brace
		return err
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return err
		}
		name, _ := key.(string) // keys are texts
		p.names = append(p.names, name)
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return err
		}
	}
	return nil
}
