package query

import (
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/spelling"
)

// reasons returns the codes of reasons in the order of docs/reference/reasons.md.
func reasons() []string {
	return strings.Fields(`
		rollout scale-down deleted cancelled ended replaced node-down exit oom unknown-exit time-limit
		restart-limit prepare start-failed program-not-found port-taken no-executor unhealthy barrier
		unkillable reboot restart no-nodes node-not-ready cordoned constraint cpu memory disk port ports-spent anti-affinity
		old-attempt hold no-definition wait-for-health drain recovery foreign-write permit pressure
		rebalance reschedule deadline gate paused promotion scaling schedule missed unmatched pool taint
		distinct skew relation device volume secret gang preempted reserved addresses network needs
		parallelism quota concurrency backfill turn permission scheduler stale`)
}

// checkReasons returns the message for the first value of --reason that is no reason, or "".
func checkReasons(given []string) string {
	known := reasons()
	for _, text := range given {
		switch {
		case slices.Contains(known, text):
		case spelling.Nearest(text, slices.Values(known)) != "":
			return session.UnknownWord("--reason", text, known)
		default:
			return "--reason " + text + ": no event has this reason; want one such as exit, oom, unhealthy or node-down"
		}
	}
	return ""
}
