package sim

import (
	"slices"
	"strings"
)

// Invariants maps the name of each invariant to the meaning of a breach. Each invariant has a test in which it fires.
var Invariants = map[string]string{
	// Records, at every revision.
	"capacity":       "more is reserved on a node than it has",
	"ports":          "two attempts hold one port of a node",
	"one-attempt":    "two attempts of a task have no outcome",
	"placed-twice":   "one attempt was placed under two identities",
	"unclean-node":   "an attempt was placed where a record of an earlier one exists",
	"no-prior":       "an attempt was placed before the one before it had an outcome",
	"needs":          "a task was placed before the tasks of a step that its step needs had succeeded",
	"owner-needs":    "the first task of a job's run was placed before the needs of the job were met",
	"quota":          "more jobs had tasks than the quota of the cluster allows",
	"concurrency":    "more tasks of a concurrency group were placed and had not ended than may run at a time",
	"job-group":      "a job began while as many jobs of its concurrency group had begun and not ended as may",
	"lent-twice":     "a cluster borrowed quota that its owner used",
	"over-reclaimed": "more tasks ended for a lender of quota than it needed, or than were borrowed",
	"reclaim-late":   "a lender of quota waited although nothing kept the leader from taking it back",
	"parallelism":    "more tasks of a step were placed and had not ended than may run at a time",
	"projected-late": "a domain with the immediate projection placed an attempt without the records of its own",
	"plan-vanished":  "a plan record was deleted before its tasks were projected or ended",
	"events":         "an end does not have exactly one event, or an event changed",
	"revived":        "a record that wants a task came back after the attempt's end",
	"late-barrier":   "a start barrier passed after the attempt's stop or outcome",
	"outcome-fixed":  "an outcome was changed, or deleted while its attempt has records and does not go on (P6.7)",
	"spec-lost":      "a user's acknowledged write is missing, or a spec exists that no user wrote",
	"outcome-true":   "an outcome does not say what the program of the attempt did, or uses a retry wrongly",
	"report-lost":    "an acknowledged end of an attempt is not in the store, or the outcome says otherwise",
	"fenced":         "a leader that had been replaced wrote",
	"usurped":        "a node's report was accepted for an attempt of another node",
	"session-back":   "a registration did not follow the newest one",
	"owner-changed":  "a node changed its domain while it had tasks of the old one",
	"claim-fenced":   "a proposal of an earlier claim, or of none, was carried out",
	"uncommanded":    "a task of a domain with the scheduler kv was placed without a record of another program",
	"two-drivers":    "a domain placed a task on a node of another one, or two domains own a node in one generation",
	"epoch-back":     "a leader's token is not above all before it",
	"below-minimum":  "a voluntary stop was permitted although it left a service below its minimum",
	"moment-twice":   "a moment of a cron made two jobs, or its last moment went back",
	"scaled-out":     "scaling set a count outside of the service's bounds",
	"daemon-twice":   "two tasks of a daemon are wanted on one node",
	"ring":           "servers take the leadership from each other endlessly",
	"down-late":      "a silent node is not down in time",
	"down-unjust":    "a node is down although it has just registered",
	"lost-unjust":    "an attempt was declared lost although its node was never silent",

	// Programs, at every start and end.
	"two-live":       "two programs of a task run where only one may",
	"started-twice":  "an attempt of a job ran its program twice",
	"start-after":    "a program was started after its attempt's outcome",
	"start-unasked":  "a program was started that the store does not want",
	"stop-released":  "a program was stopped on a node that was released to another owner",
	"stop-unasked":   "a program was stopped without a stop for it ever having been written",
	"run-again":      "a task ran again after its start, and neither a retry nor its user permits that",
	"gone-but-runs":  "an attempt is reported as gone while its program runs",
	"machine-packed": "running programs need more than the machine has",

	// Once faults have ended.
	"fair-share": "a user whose tasks always waited held more or less than the fair share in an hour",
	"job-late":   "a job did not end within its day",
	"job-end":    "a job ended in another way than the outcomes of its tasks say",
	"converges":  "the fleet does not reach the state that users requested, once faults have ended",
	"reason":     "a task waits without a reason",
	"leaked":     "a program runs without a record that wants it",
}

// Violation is a breach of an invariant.
type Violation struct {
	Invariant string
	At        string // since the fleet's begin
	Text      string
}

// same reports whether another breach is of the same kind: the same invariant, in the same words except for names and
// numbers.
func (v Violation) same(other Violation) bool {
	return v.Invariant == other.Invariant && kindOf(v.Text) == kindOf(other.Text)
}

// kindOf returns the words of a text without digits, up to the list of the things concerned.
func kindOf(text string) string {
	text, _, _ = strings.Cut(text, "[")
	words := strings.Fields(text)
	return strings.Join(slices.DeleteFunc(words, func(word string) bool {
		return strings.ContainsAny(word, "0123456789")
	}), " ")
}

// String returns it as a line.
func (v Violation) String() string { return v.Invariant + " at " + v.At + ": " + v.Text }
