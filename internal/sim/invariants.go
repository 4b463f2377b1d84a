package sim

import (
	"slices"
	"strings"
)

// Invariants are what must hold in every world, by name, with what a breach means. Each has a test that shows it fire.
var Invariants = map[string]string{
	// Records, at every revision.
	"capacity":      "more is reserved on a node than it has",
	"ports":         "two attempts hold one port of a node",
	"one-attempt":   "two attempts of a task have no outcome",
	"placed-twice":  "one attempt was placed under two identities",
	"unclean-node":  "an attempt was placed where a record of an earlier one stands",
	"no-prior":      "an attempt was placed before the one before it had an outcome",
	"plan-vanished": "a plan record went before its tasks were projected or ended",
	"events":        "an end is not told of once, or what was told changed",
	"revived":       "a record that asks for a task came back after the attempt's end",
	"late-barrier":  "a start barrier passed after the attempt's stop or outcome",
	"outcome-fixed": "an outcome was changed or deleted while its owner stands",
	"spec-lost":     "a user's acknowledged write is not there, or nobody asked for what is",
	"report-lost":   "an acknowledged end of an attempt is not in the store, or the outcome says otherwise",
	"fenced":        "a leader that had been replaced wrote",
	"usurped":       "a report of a node was taken for an attempt of another",
	"session-back":  "a registration did not follow the newest one",
	"owner-changed": "a node changed hands while tasks of its owner stand on it",
	"epoch-back":    "a leader's token is not above all before it",
	"below-minimum": "a stop that could wait was permitted although it left a service with fewer healthy " +
		"tasks than it may have",
	"moment-twice": "a moment of a cron made two jobs, or one that had passed was not dealt with in order",
	"scaled-out":   "scaling gave a service a count outside of its bounds",
	"daemon-twice": "two tasks of a daemon are wanted on one node",
	"ring":         "servers take the leadership from each other without end",
	"down-late":    "a node that nobody hears is not down in time",
	"down-unjust":  "a node is called down that has just registered",
	"lost-unjust":  "an attempt was given up although its node was heard all the time",

	// Programs, at every start and end.
	"two-live":       "two programs of a task run where only one may",
	"started-twice":  "an attempt of a job ran its program twice",
	"start-after":    "a program was started after its attempt's outcome",
	"start-unasked":  "a program was started that the store does not ask for",
	"stop-unasked":   "a program was stopped without a stop for it ever having been written",
	"gone-but-runs":  "an attempt is said to be gone while its program runs",
	"machine-packed": "programs run that need more than the machine has",

	// Once faults have ended.
	"converges": "all does not come to be as users asked once faults have ended",
	"reason":    "a task waits without a reason",
	"leaked":    "a program runs that nobody asks for",
}

// Violation is a breach of an invariant.
type Violation struct {
	Invariant string
	At        string // since the world's begin
	Text      string
}

// same reports whether another breach is one of the same kind: of the same invariant, told in the same words, whatever
// the names and numbers in them are.
func (v Violation) same(other Violation) bool {
	return v.Invariant == other.Invariant && kindOf(v.Text) == kindOf(other.Text)
}

// kindOf returns the words of a text that name nothing: those without a digit, and up to the list of what it is about.
func kindOf(text string) string {
	text, _, _ = strings.Cut(text, "[")
	words := strings.Fields(text)
	return strings.Join(slices.DeleteFunc(words, func(word string) bool {
		return strings.ContainsAny(word, "0123456789")
	}), " ")
}

// String returns it as a line.
func (v Violation) String() string { return v.Invariant + " at " + v.At + ": " + v.Text }
