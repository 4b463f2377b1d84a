// Command schemagen writes the JSON Schema of manifests, for editors and for checks without Berth.
//
// Its structure comes from the types of package cluster; the descriptions and the values of enumerated fields come from
// the package's source, so nothing is written twice:
//
//	go run ./internal/manifest/schemagen -source internal/cluster -o internal/manifest/manifest.schema.json
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	source := flag.String("source", "internal/cluster", "the `folder` of package cluster")
	out := flag.String("o", "internal/manifest/manifest.schema.json", "the `file` to write")
	flag.Parse()
	if err := run(*source, *out); err != nil {
		fmt.Fprintln(os.Stderr, "schemagen:", err)
		os.Exit(1)
	}
}

func run(source, out string) error {
	schema, err := generate(source)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return fmt.Errorf("make the folder: %w", err)
	}
	if err := os.WriteFile(out, schema, 0o644); err != nil {
		return fmt.Errorf("write the schema: %w", err)
	}
	return nil
}
