package snapshot

import "github.com/berthd/berth/internal/store"

// UUIDOf returns the UUID of an attempt, from whichever of its records exists.
func UUIDOf(row *store.AttemptRow) string {
	switch {
	case row.Desired != nil:
		return row.Desired.UUID
	case row.Outcome != nil:
		return row.Outcome.UUID
	case row.Observed != nil:
		return row.Observed.UUID
	}
	return ""
}
