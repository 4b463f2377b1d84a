package telemetry

// Keys of attributes, the same in the log of every part and in spans, so that a search for a task finds all its lines.
// The cause of a line is under KeyReason if it is a cluster.ReasonCode or a sentence, and under KeyError if it is an
// error.
const (
	KeyTask    = "task"    // a cluster.TaskID
	KeyAttempt = "attempt" // the number of a task's attempt
	KeyNode    = "node"
	KeyOwner   = "owner" // "<cluster>/<kind>/<name>"
	KeyServer  = "server"
	KeyReason  = "reason"
	KeyError   = "error"
)
