package sim

import (
	"fmt"
	"hash"
	"time"
)

// journal keeps the breaches, the history and the chronicle of a fleet. The lock of the observation guards it.
type journal struct {
	began        time.Time
	breaches     []Violation
	chronicle    []string
	digest       hash.Hash // hash of all writes, starts and ends
	keepsHistory bool      // keep the lines of the history
	historyLines []string  // the history
	verbose      bool
}

// breach reports a breach. The lock is held.
func (v *journal) breach(invariant, format string, args ...any) {
	if _, known := Invariants[invariant]; !known {
		panic("no invariant " + invariant)
	}
	if len(v.breaches) < 20 {
		v.breaches = append(v.breaches, Violation{invariant, v.clock(), fmt.Sprintf(format, args...)})
	}
	v.addToChronicle("BREACH %s: %s", invariant, fmt.Sprintf(format, args...))
}

// addToHistory adds a line to the history. The lock is held.
func (v *journal) addToHistory(format string, args ...any) {
	_, _ = fmt.Fprintf(v.digest, format+"\n", args...)
	if v.keepsHistory {
		v.historyLines = append(v.historyLines, fmt.Sprintf(format, args...))
	}
}

func (v *journal) clock() string { return time.Since(v.began).Round(time.Microsecond).String() }

// addToChronicle adds a line to the chronicle. The lock is held.
func (v *journal) addToChronicle(format string, args ...any) {
	if v.verbose {
		v.chronicle = append(v.chronicle, v.clock()+" "+fmt.Sprintf(format, args...))
	}
}
