package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Draft is the address of the version of JSON Schema, for the field Schema of a whole document.
const Draft = "https://json-schema.org/draft/2020-12/schema"

// Node is a schema. Its fields are in the order in which they are written.
type Node struct {
	Schema      string   `json:"$schema,omitempty"`
	ID          string   `json:"$id,omitempty"`
	Title       string   `json:"title,omitempty"`
	Description string   `json:"description,omitempty"`
	Ref         string   `json:"$ref,omitempty"`
	Type        Types    `json:"type,omitempty"`
	Const       any      `json:"const,omitempty"`
	Enum        []string `json:"enum,omitempty"`
	Pattern     string   `json:"pattern,omitempty"` // of texts
	Format      string   `json:"format,omitempty"`
	Encoding    string   `json:"contentEncoding,omitempty"`
	Minimum     *int     `json:"minimum,omitempty"` // of numbers, as is Maximum
	Maximum     *int     `json:"maximum,omitempty"`
	MaxLength   int      `json:"maxLength,omitempty"`
	Items       *Node    `json:"items,omitempty"`
	Default     any      `json:"default,omitempty"`
	// Bounds are the lowest and the highest value of a quantity, as text such as "1ms to 1h".
	Bounds string  `json:"x-bounds,omitempty"`
	AnyOf  []*Node `json:"anyOf,omitempty"`
	OneOf  []*Node `json:"oneOf,omitempty"`
	AllOf  []*Node `json:"allOf,omitempty"`
	// If decides between Then and Else.
	If   *Node `json:"if,omitempty"`
	Then *Node `json:"then,omitempty"`
	Else *Node `json:"else,omitempty"`

	Properties *Nodes   `json:"properties,omitempty"`
	Required   []string `json:"required,omitempty"`
	Patterns   *Nodes   `json:"patternProperties,omitempty"`
	// Additional is the schema of the values of a map, or false for a struct without other fields.
	Additional any    `json:"additionalProperties,omitempty"`
	Defs       *Nodes `json:"$defs,omitempty"`
}

// Types are the types that a value may have.
type Types []string

// MarshalJSON writes one type as a text and several as a list.
func (t Types) MarshalJSON() ([]byte, error) {
	if len(t) == 1 {
		return json.Marshal(t[0])
	}
	return json.Marshal([]string(t))
}

// Nodes are schemas with names, in the order in which the names were first set. The zero value is empty.
type Nodes struct {
	Names []string
	nodes map[string]*Node
}

// Get returns the schema of a name, or nil.
func (n *Nodes) Get(name string) *Node { return n.nodes[name] }

// Set sets the schema of a name.
func (n *Nodes) Set(name string, node *Node) {
	if n.nodes == nil {
		n.nodes = map[string]*Node{}
	}
	if _, known := n.nodes[name]; !known {
		n.Names = append(n.Names, name)
	}
	n.nodes[name] = node
}

// MarshalJSON writes the schemas in the order of Names.
func (n *Nodes) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, name := range n.Names {
		if i > 0 {
			b.WriteByte(',')
		}
		value, err := Marshal(n.nodes[name])
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%q:%s", name, value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// Marshal is json.Marshal that leaves "<" as it is.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode a schema: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}
