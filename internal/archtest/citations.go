package archtest

import (
	"bytes"
	"fmt"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// protocolPage is the page with the clauses and traces of the protocol.
const protocolPage = "docs/reference/protocol.md"

// recordFolder is the folder of the decision records. The name of a record begins with its number.
const recordFolder = "docs/adr"

var (
	// definition finds a clause, a part or a trace in the protocol page: "**P1.2** …", "## P1 …" or "| T1 | …".
	definition = regexp.MustCompile(`(?m)^(?:\*\*|## |\| )([PT]\d+(?:\.\d+)?)(?:\*\* | )`)
	// citation finds the name of a clause, a part or a trace in any text. Words such as T1000 or P99 are not names.
	citation = regexp.MustCompile(`\b(?:P[1-9](?:\.\d+)?|T[12]?\d)\b`)
	// recordCitation finds the number of a cited decision record: "ADR 0040", also with a line break, or
	// "docs/adr/0044".
	recordCitation = regexp.MustCompile(`(?:\bADR\s+(?://\s*)?|\badr/)(\d{4})\b`)
	// citing are the endings of files that may cite. Scripts and the Makefile may cite, too.
	citing = []string{".go", ".md", ".txt", ".txtar", ".json", ".yaml", ".csv"}
)

// citations finds clauses, parts and traces of the protocol that a file of the tree cites and the protocol page does
// not hold, and cited decision records without a file. The files under apart use such words for something else, as a
// trace of GPU requests does with the model T4.
func citations(tree fs.FS, apart ...string) ([]Finding, error) {
	page, err := fs.ReadFile(tree, protocolPage)
	if err != nil {
		return nil, fmt.Errorf("read the protocol: %w", err)
	}
	defined := map[string]bool{}
	for _, m := range definition.FindAllSubmatch(page, -1) {
		defined[string(m[1])] = true
	}
	records, err := decisionRecords(tree)
	if err != nil {
		return nil, err
	}
	var found []Finding
	err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			base := d.Name()
			hidden := strings.HasPrefix(base, ".") && name != "." && name != ciDir
			if hidden || base == "node_modules" {
				return fs.SkipDir
			}
			return nil
		}
		for _, prefix := range apart {
			if strings.HasPrefix(name, prefix) {
				return nil
			}
		}
		may := isScript(name)
		for _, ending := range citing {
			may = may || path.Ext(name) == ending
		}
		if !may {
			return nil
		}
		src, err := fs.ReadFile(tree, name)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		found = append(found, recordCitations(name, src, records)...)
		found = append(found, clauseCitations(name, src, defined)...)
		return nil
	})
	return sorted(found), err
}

// clauseCitations finds the clauses, parts and traces that a file cites and that the protocol page does not hold.
func clauseCitations(name string, src []byte, defined map[string]bool) []Finding {
	var found []Finding
	for i, line := range bytes.Split(src, []byte("\n")) {
		for _, cited := range citation.FindAll(line, -1) {
			if !defined[string(cited)] {
				found = append(found, Finding{
					Pos: token.Position{Filename: name, Line: i + 1}, Rule: "citations",
					Text: fmt.Sprintf("%s is not in %s", cited, protocolPage),
				})
			}
		}
	}
	return found
}

// decisionRecords returns the numbers of the decision records of a tree.
func decisionRecords(tree fs.FS) (map[string]bool, error) {
	names, err := fs.Glob(tree, recordFolder+"/[0-9][0-9][0-9][0-9]-*.md")
	if err != nil {
		return nil, fmt.Errorf("list the decision records: %w", err)
	}
	records := map[string]bool{}
	for _, name := range names {
		records[path.Base(name)[:4]] = true
	}
	return records, nil
}

// recordCitations finds the decision records that a file cites and that do not exist.
func recordCitations(name string, src []byte, records map[string]bool) []Finding {
	var found []Finding
	for _, m := range recordCitation.FindAllSubmatchIndex(src, -1) {
		if number := string(src[m[2]:m[3]]); !records[number] {
			found = append(found, Finding{
				Pos:  token.Position{Filename: name, Line: 1 + bytes.Count(src[:m[2]], []byte("\n"))},
				Rule: "citations", Text: fmt.Sprintf("ADR %s is not in %s", number, recordFolder),
			})
		}
	}
	return found
}
