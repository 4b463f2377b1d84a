package watcher

import (
	"slices"
	"time"
)

// Storm reports whether a mass silence is on: of all nodes watched, those silent now that fell silent
// within one window of each other are more than the allowed share. Nodes that are known to be gone
// do not count. It ends by itself as nodes return.
func Storm(verdicts []Verdict, now time.Duration, o Options) bool {
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
	if total < o.StormNodes {
		return false
	}
	slices.Sort(silent)
	first := 0
	for last := range silent {
		for silent[last]-silent[first] > o.StormWindow {
			first++
		}
		if float64(last-first+1) > o.StormShare*float64(total) {
			return true
		}
	}
	return false
}
