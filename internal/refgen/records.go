package main

import (
	"fmt"
	"reflect"
	"regexp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/schema"
	"github.com/berthd/berth/internal/store"
)

// recordSchema returns the schema of all keys and values in the store, as one object.
func recordSchema(comments map[string]string) *schema.Node {
	g := schema.New(schema.Options{Refs: "#/$defs/", Stored: true, Comments: comments})
	root := &schema.Node{
		Schema: schema.Draft,
		ID:     repository + recordsFile,
		Title:  "Berth records",
		Description: "The keys of the store without their prefix, and the values that this build writes. Other " +
			"builds may write other fields and other values of enumerations.",
		Type:     schema.Types{"object"},
		Patterns: &schema.Nodes{},
		Defs:     &g.Defs,
	}
	for _, k := range store.Kinds() {
		root.Patterns.Set(keyPattern(k.Key), valueSchema(g, k))
	}
	g.Of(reflect.TypeFor[cluster.TaskCommand]()) // what other programs write at the key of a desired record
	return root
}

// nameInKey matches a name in the form of a key.
var nameInKey = regexp.MustCompile(`<[^>]+>`)

// keyPattern returns the regular expression for the keys of a kind: "^service/[^/]+/[^/]+$".
func keyPattern(key string) string { return "^" + nameInKey.ReplaceAllString(key, "[^/]+") + "$" }

// valueSchema returns the schema of the values of a kind: the type, with the fields that encoding a record adds.
func valueSchema(g *schema.Generator, k store.Kind) *schema.Node {
	n := &schema.Node{Const: true}
	if k.Record != nil {
		n = g.Of(k.Record)
		n.Required, n.Properties = []string{"v"}, &schema.Nodes{}
		n.Properties.Set("v", &schema.Node{
			Description: "The format version: the lowest that older builds treat correctly.",
			Type:        schema.Types{"integer"},
			Minimum:     new(cluster.RecordVersion(reflect.New(k.Record).Interface())),
			Maximum:     new(store.RecordVersion),
		})
	}
	if k.Sealed {
		n.Properties.Set("seal", &schema.Node{
			Description: "A hash of the rest of the record. A record with a wrong hash was written by another " +
				"program than Berth (P3.9).",
			Type: schema.Types{"string"}, Pattern: "^[0-9a-f]{16}$",
		})
	}
	if k.PacksSteps {
		n.Properties.Set("packed", &schema.Node{
			Description: fmt.Sprintf("In a record that would take more than %d KiB, in place of its steps, inline "+
				"and retried: an object with these fields as JSON, compressed with DEFLATE (RFC 1951), in base64.",
				store.MaxPlainBytes>>10),
			Type: schema.Types{"string"},
		})
	}
	n.Description = k.Key + ", written by: " + k.Writer
	return n
}
