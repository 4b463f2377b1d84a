package views

import (
	"fmt"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// misplaced says in a sentence that an attempt stands where it should not, and what becomes of it; empty where it fits.
func (l *Builder) misplaced(row *store.AttemptRow) string {
	if !row.Live() || row.Desired == nil || row.Desired.Stop != nil {
		return ""
	}
	why, leaves := l.Records.Violation(row)
	switch {
	case why == nil:
		return ""
	case why.From.After(l.Domain.Now):
		return fmt.Sprintf("%s: it may stay for %s more", why.Message, cluster.Duration(why.From.Sub(l.Domain.Now).Round(1e9)))
	case leaves && why.Now:
		return why.Message + ": it ends there and is tried again elsewhere"
	case leaves:
		return why.Message + ": it moves" + l.nowhere(row)
	case row.Desired.Batch():
		return why.Message + ": it runs to its end there"
	}
	return why.Message + ": it stays, as on_violation is keep"
}

// nowhere says why an attempt that is to move has no other place, empty where that is not known.
func (l *Builder) nowhere(row *store.AttemptRow) string {
	if l.source.Leader.Reasons == nil {
		return ""
	}
	w, ok := l.source.Leader.Reasons.Waiting(row.Task)
	if !ok {
		return ""
	}
	return " once there is a place for it, and there is none: " + w.Sentence
}
