package sim

import (
	"fmt"
	"hash"
	"time"
)

// journal keeps the breaches, the history and the chronicle of a world. The lock of the observation guards it.
type journal struct {
	began   time.Time
	faults  []Violation
	log     []string
	digest  hash.Hash // hash of all writes, starts and ends
	history bool      // keep the lines of the history
	lines   []string  // the history
	verbose bool
}

// breach reports a breach. The lock is held.
func (v *journal) breach(invariant, format string, args ...any) {
	if _, known := Invariants[invariant]; !known {
		panic("no invariant " + invariant)
	}
	if len(v.faults) < 20 {
		v.faults = append(v.faults, Violation{invariant, v.clock(), fmt.Sprintf(format, args...)})
	}
	v.addToChronicle("BREACH %s: %s", invariant, fmt.Sprintf(format, args...))
}

// addToHistory adds a line to the history. The lock is held.
func (v *journal) addToHistory(format string, args ...any) {
	_, _ = fmt.Fprintf(v.digest, format+"\n", args...)
	if v.history {
		v.lines = append(v.lines, fmt.Sprintf(format, args...))
	}
}

func (v *journal) clock() string { return time.Since(v.began).Round(time.Microsecond).String() }

// addToChronicle adds a line to the chronicle. The lock is held.
func (v *journal) addToChronicle(format string, args ...any) {
	if v.verbose {
		v.log = append(v.log, v.clock()+" "+fmt.Sprintf(format, args...))
	}
}
