package watcher

// Absence says what the silence of a node means for one of its tasks.
type Absence int

// Absences, in growing order.
const (
	// Present is a node that can be asked, or one that this watcher knows nothing of yet (P6.5).
	Present Absence = iota
	// Suspected is a silent node before the task's limit: the task counts as unhealthy and is left alone.
	Suspected
	// Silent is a node whose silence exceeds the limit of the task's class (P6.2).
	Silent
	// Gone is a node that will not come back. It passes every barrier.
	Gone
)

// String returns the absence in a word.
func (a Absence) String() string {
	switch a {
	case Present:
		return "present"
	case Suspected:
		return "suspected"
	case Silent:
		return "silent"
	case Gone:
		return "gone"
	}
	return "unknown"
}
