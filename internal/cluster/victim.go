package cluster

import (
	"slices"
	"strings"
	"time"
)

// WaitingReport is a leader's report to other servers about its last decision.
type WaitingReport struct {
	// Version changes with the content. It counts from the start of the server.
	Version uint64         `json:"version"`
	Groups  []WaitingGroup `json:"groups,omitempty"`
	Victims []Victim       `json:"victims,omitempty"` // ordered by UUID
}

// Victim is an attempt that the leader wants to end so that a more urgent task gets its place, or one
// that stays within the quota of its cluster. It is no record: the
// stop of the attempt, once written, names the task.
type Victim struct {
	UUID string `json:"uuid"`
	// For and ForAttempt name the attempt that gets the place, and Priority is its priority.
	For        TaskID    `json:"for"`
	ForAttempt int       `json:"for_attempt"`
	Priority   int       `json:"priority"`
	Node       string    `json:"node"`
	Since      time.Time `json:"since"`
	// Reclaims says that the victim ends because its cluster holds more than its quota. The priorities do not count.
	Reclaims bool `json:"reclaims,omitempty"`
}

// FindVictim finds a victim by its UUID in a list that is ordered by UUID.
func FindVictim(ordered []Victim, uuid string) (Victim, bool) {
	i, ok := slices.BinarySearchFunc(ordered, uuid, func(v Victim, uuid string) int {
		return strings.Compare(v.UUID, uuid)
	})
	if !ok {
		return Victim{}, false
	}
	return ordered[i], true
}
