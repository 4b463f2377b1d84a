// Command refgen writes the parts of the reference that follow from the code: the lifecycle of an attempt, and the
// reasons.
//
//	go run ./internal/refgen -o docs/reference
package main

import (
	"bytes"
	"errors"
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
)

//go:generate go run . -source ../cluster/plan.go -o ../../docs/reference

func main() {
	source := flag.String("source", "internal/cluster/plan.go", "the `file` that lists the reasons")
	out := flag.String("o", "docs/reference", "the `folder` to write to")
	flag.Parse()
	if err := run(*source, *out); err != nil {
		fmt.Fprintln(os.Stderr, "refgen:", err)
		os.Exit(1)
	}
}

func run(source, out string) error {
	reasons, err := reasonTable(source)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(out, "lifecycle.md"), lifecyclePage(), 0o644), //nolint:gosec // a page of the docs
		os.WriteFile(filepath.Join(out, "reasons.md"), reasons, 0o644),           //nolint:gosec // the same
	)
}

// lifecyclePage draws the table of legal moves.
func lifecyclePage() []byte {
	var b bytes.Buffer
	b.WriteString("# The life of an attempt\n\nGenerated from `internal/logic/lifecycle`; `make generate` " +
		"rewrites it.\n\n")
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
		"`internal/cluster`; `make generate` rewrites it.\n\n")
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
