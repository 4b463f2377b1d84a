package views

import (
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// violationText describes the violation of an attempt and its consequence; "" if there is none.
func (in *inputs) violationText(row *store.AttemptRow) string {
	if !row.Live() || row.Desired == nil || row.Desired.Stop != nil {
		return ""
	}
	why, leaves := in.Records.Violation(row)
	switch {
	case why == nil:
		return ""
	case why.From.After(in.Domain.Now):
		rest := why.From.Sub(in.Domain.Now).Round(time.Second)
		return fmt.Sprintf("%s: it may stay for %s more", why.Message, cluster.Duration(rest))
	case leaves && why.Now:
		return why.Message + ": it ends and is tried again elsewhere"
	case leaves:
		return why.Message + ": it moves" + in.noPlaceText(row)
	case row.Desired.Batch():
		return why.Message + ": it runs to its end"
	}
	return why.Message + ": it stays (on_violation: keep)"
}

// noPlaceText returns why a moving attempt has no other place yet; "" if that is not known.
func (in *inputs) noPlaceText(row *store.AttemptRow) string {
	waiting, ok := in.waitingReason(row.Task)
	if !ok {
		return ""
	}
	return " once another node takes it: " + waiting.Sentence
}
