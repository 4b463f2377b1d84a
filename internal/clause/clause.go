// Package clause names the clauses of the protocol that close a known fault. A test can run the real parts without one
// of them and show that the fault then comes back.
//
// Each part with such a clause has a field Without of type Set. It is zero in every program; only tests and the
// simulator set it.
package clause

// Set is a set of clauses that are switched off. The zero value switches nothing off.
type Set uint32

// The clauses, by the trace (T1 to T17) that each closes.
const (
	// T1: a start barrier compares that the task is wanted and has no outcome (P4.2, P4.3)
	Barrier     Set = 1 << iota
	Projection      // T2: a late projection compares its plan record and the outcome (P3.4)
	CleanNode       // T3: no attempt goes where an earlier one still is (P3.6)
	NextAttempt     // T4: an attempt is placed only after the last one's outcome (P3.7)
	EpochSeen       // T5: a new leader waits until its tables hold its epoch record (P1.5)
	PlanSettled     // T6: a plan whose result is unknown stays charged and is settled first (P3.3)
	// T7: a permit stays charged until the agent reports or the attempt ends (P5.3, P5.4)
	ChargeHeld
	Permit          // T8: a voluntary stop needs a permit (P5.1)
	TakeoverBackoff // T9: the wait of observers doubles with each takeover (P1.3)
	Fence           // T10: every transaction of a leader compares its epoch (P1.4)
	// T11: a store that went back is detected and rises above what agents have seen (P1.7)
	Incarnation
	Absence   // T12: a task that is missing in an agent's list continues running (P6.6)
	Session   // T13: a registration compares the session that it follows (P6.1)
	Foreign   // T14: a record that cannot be read pins its task to its node (P3.5, P3.9)
	Ownership // T15: only the owner's committer releases a node (P7.1, P3.1)
	Intent    // T16: an intended start without an exit status is never started again (P4.4)
	Released  // T17: no server sends anything to a node that was released (P7.2)
)

// Off reports whether the clause is switched off.
func (s Set) Off(c Set) bool { return s&c != 0 }
