// Command refgen writes the parts of the reference that follow from the code: the lifecycle of an attempt, the reasons,
// the JSON Schemas of manifests and of the store's records, and the OpenAPI document of the worker protocol.
// Descriptions are the comments of the source, so nothing is written twice.
//
//	go run ./internal/refgen
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
	"github.com/berthd/berth/internal/schema"
)

//go:generate go run . -root ../..

// repository precedes the file names in the ids of schemas.
const repository = "https://github.com/berthd/berth/"

// The written files, from the root of the repository.
const (
	lifecycleFile = "docs/reference/lifecycle.md"
	reasonsFile   = "docs/reference/reasons.md"
	manifestFile  = "internal/manifest/manifest.schema.json"
	recordsFile   = "docs/reference/records.schema.json"
	workerFile    = "docs/reference/worker.openapi.json"
	hostFile      = "docs/reference/host.openapi.json"
)

func main() {
	root := flag.String("root", ".", "the `folder` of the repository")
	flag.Parse()
	if err := run(*root); err != nil {
		fmt.Fprintln(os.Stderr, "refgen:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	files, err := references(root)
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(root, name), text, 0o644); err != nil { //nolint:gosec // a public file
			return fmt.Errorf("write the reference: %w", err)
		}
	}
	return nil
}

// references returns the content of each written file.
func references(root string) (map[string][]byte, error) {
	reasons, err := reasonTable(filepath.Join(root, "internal/cluster/plan.go"))
	if err != nil {
		return nil, err
	}
	comments, err := readComments(filepath.Join(root, "internal/cluster"), filepath.Join(root, "internal/store"))
	if err != nil {
		return nil, err
	}
	messages, err := readComments(filepath.Join(root, "internal/cluster"), filepath.Join(root, "internal/transport"))
	if err != nil {
		return nil, err
	}
	worker, err := workerAPI(messages)
	if err != nil {
		return nil, err
	}
	views, err := readComments(filepath.Join(root, "internal/cluster"), filepath.Join(root, "api"))
	if err != nil {
		return nil, err
	}
	host, err := hostAPI(views)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{workerFile: worker, hostFile: host, lifecycleFile: lifecyclePage(), reasonsFile: reasons}
	for name, n := range map[string]*schema.Node{
		manifestFile: manifestSchema(comments), recordsFile: recordSchema(comments),
	} {
		if files[name], err = indented(n); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// indented returns a schema as a file.
func indented(n *schema.Node) ([]byte, error) {
	raw, err := schema.Marshal(n)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		return nil, fmt.Errorf("indent the schema: %w", err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// lifecyclePage draws the table of legal moves.
func lifecyclePage() []byte {
	var b bytes.Buffer
	b.WriteString("# The life of an attempt\n\nGenerated from `internal/logic/lifecycle` by " +
		"`make generate`.\n\n")
	b.WriteString("| from | to | when |\n|---|---|---|\n")
	for _, m := range lifecycle.Moves() {
		to := string(m.To)
		if m.To.Terminal() {
			to = "**" + to + "**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", m.From, to, m.Cause)
	}
	b.WriteString("\nStates in bold are the end of an attempt. A running attempt also has a health: `" +
		string(cluster.HealthUnknown) +
		"` until the first result, then `" + string(cluster.HealthHealthy) + "`, `" + string(cluster.HealthWarning) +
		"` or `" + string(cluster.HealthFailing) + "`.\n")
	return b.Bytes()
}

// reasonTable lists the constants of type ReasonCode with their comments.
func reasonTable(source string) ([]byte, error) {
	f, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("read the reasons: %w", err)
	}
	var b bytes.Buffer
	b.WriteString("# Reasons\n\nThe causes that records, events and answers name. Generated from " +
		"`internal/cluster` by `make generate`.\n\n")
	b.WriteString("| reason | meaning |\n|---|---|\n")
	rows := 0
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || !isReason(v.Type) || len(v.Values) != 1 {
			return true
		}
		code, ok := v.Values[0].(*ast.BasicLit)
		if !ok {
			return true
		}
		text, err := strconv.Unquote(code.Value)
		if err == nil {
			rows++
			fmt.Fprintf(&b, "| `%s` | %s |\n", text, meaning(v, text))
		}
		return true
	})
	if rows == 0 {
		return nil, fmt.Errorf("%s holds no reasons", source)
	}
	return b.Bytes(), nil
}

func isReason(t ast.Expr) bool {
	id, ok := t.(*ast.Ident)
	return ok && id.Name == "ReasonCode"
}

// meaning returns the constant's comment, or the code itself if there is no comment.
func meaning(v *ast.ValueSpec, code string) string {
	if text := strings.TrimSpace(v.Comment.Text()); text != "" {
		return strings.Join(strings.Fields(text), " ")
	}
	return strings.ReplaceAll(code, "-", " ")
}
