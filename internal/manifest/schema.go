package manifest

import (
	_ "embed" // the schema
)

//go:embed manifest.schema.json
var schemaText string

// Schema returns the JSON Schema of one document of a manifest, for editors and for checks without Berth. It is
// generated from the types of package cluster, by the command internal/refgen.
func Schema() string { return schemaText }
