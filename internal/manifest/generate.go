package manifest

//go:generate go run ./schemagen -source ../cluster -o ../../docs/reference/manifest.schema.json
