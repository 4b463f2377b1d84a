package sim

import (
	"github.com/berthd/berth/internal/clause"
)

// Clause is a clause of the protocol that can be disabled, with the trace that it closes.
type Clause struct {
	Trace, Name string
	Set         clause.Set
}

// Clauses are all clauses that can be disabled.
var Clauses = []Clause{
	{"T1", "barrier", clause.Barrier},
	{"T2", "projection", clause.Projection},
	{"T3", "clean-node", clause.CleanNode},
	{"T4", "next-attempt", clause.NextAttempt},
	{"T5", "epoch-seen", clause.EpochSeen},
	{"T6", "plan-settled", clause.PlanSettled},
	{"T7", "charge-held", clause.ChargeHeld},
	{"T8", "permit", clause.Permit},
	{"T9", "takeover-backoff", clause.TakeoverBackoff},
	{"T10", "fence", clause.Fence},
	{"T11", "incarnation", clause.Incarnation},
	{"T12", "absence", clause.Absence},
	{"T13", "session", clause.Session},
	{"T14", "foreign", clause.Foreign},
	{"T15", "ownership", clause.Ownership},
	{"T16", "intent", clause.Intent},
	{"T17", "released", clause.Released},
}

// ClauseNamed returns the set of the clause with the given name or trace, or 0.
func ClauseNamed(name string) clause.Set {
	for _, c := range Clauses {
		if c.Name == name || c.Trace == name {
			return c.Set
		}
	}
	return 0
}
