package manifest

import (
	_ "embed" // the schema
)

//go:generate go run ./schemagen -source ../cluster -o manifest.schema.json

//go:embed manifest.schema.json
var schema string

// Schema returns the JSON Schema of one document of a manifest, for editors and for checks without Berth. It is
// generated from the types of package cluster.
func Schema() string { return schema }
