package watcher

import (
	"slices"
	"time"
)

// IsMassSilence reports a mass silence: a larger share of all watched nodes than allowed is silent now and fell silent
// within one window of each other. Nodes that are known to be gone do not count. A mass silence ends as nodes return.
func IsMassSilence(verdicts []Verdict, now time.Duration, o Options) bool {
	total := 0
	var silent []time.Duration
	for i := range verdicts {
		v := &verdicts[i]
		if v.Gone || v.Foreign {
			continue
		}
		total++
		if !v.Heard && v.Silence >= o.Suspect {
			silent = append(silent, now-v.Silence)
		}
	}
	if total < o.MassSilenceNodes {
		return false
	}
	slices.Sort(silent)
	first := 0
	for last := range silent {
		for silent[last]-silent[first] > o.MassSilenceWindow {
			first++
		}
		if float64(last-first+1) > o.MassSilenceShare*float64(total) {
			return true
		}
	}
	return false
}
