// Package archtest states which package may import which and what a decision may
// do, and fails the build where the code disagrees.
//
// The policy is the tables of policy.go; each checker is a function from source to
// findings, so that it can be shown to fail on a planted fault (testdata) as well
// as to pass on the tree. A change of a table is a change of the architecture: it
// belongs in the same commit as the decision record under docs/adr that argues it.
//
// These rules are kept here:
//   - layers: a package imports only what its row allows; every package has a row
//     and every row a package; a driver is named only by those who wire it; only
//     tests and packages for tests import package testing;
//   - modules: each third-party module is used only in the folders of its row;
//   - purity: internal/cluster and internal/logic read no clock, print nothing,
//     start and share nothing, and do not depend on the order of a map;
//   - waiting: no test sleeps on the real clock but through internal/testkit;
//   - clauses: only tests and the simulator switch a clause of the protocol off;
//   - enumerations: a type of text with constants lists all of them in a method Values;
//   - citations: each clause and trace of the protocol that a file cites is in docs/reference/protocol.md, and
//     each decision record that it cites (ADR 0002) is in docs/adr;
//   - width: no line of Go or Markdown is wider than 120 columns;
//   - nameable: what the packages api and api/client show has names that other modules can write.
package archtest

import (
	"cmp"
	"fmt"
	"go/token"
	"slices"
)

// Finding is one place where the code breaks a rule.
type Finding struct {
	Pos  token.Position // where; the file name alone for a rule about packages
	Rule string         // layers, modules, purity, waiting, clauses, enumerations, citations, width or nameable
	Text string         // the fault and its correction
}

// String renders the finding as compilers do, so that editors can jump to it.
func (f Finding) String() string {
	return fmt.Sprintf("%s: %s: %s", f.Pos, f.Rule, f.Text)
}

// sorted orders findings by place, so that a report is the same on every run.
func sorted(found []Finding) []Finding {
	slices.SortFunc(found, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(a.Pos.Filename, b.Pos.Filename),
			cmp.Compare(a.Pos.Line, b.Pos.Line),
			cmp.Compare(a.Text, b.Text),
		)
	})
	return found
}
