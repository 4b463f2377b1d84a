package cluster

import (
	"cmp"
	"math"
	"slices"
)

// Notable reports whether the statistics of an attempt differ enough from the reported ones to send them again: by more
// than a tenth, and by more than a negligible amount.
func (t TaskStats) Notable(reported TaskStats) bool {
	const (
		cpu      = 20
		memory   = MiB
		requests = 1
	)
	return notable(float64(t.CPU), float64(reported.CPU), cpu) ||
		notable(float64(t.Memory), float64(reported.Memory), float64(memory)) ||
		notable(float64(t.Growth), float64(reported.Growth), float64(memory)) ||
		notable(t.Requests, reported.Requests, requests) ||
		(t.Requests < 0) != (reported.Requests < 0) ||
		t.Detail.notable(reported.Detail) ||
		t.Storage.notable(reported.Storage)
}

// notable does the same for the rates of a whole task. A shift between its containers alone is reported with the next
// notable change.
func (d *UseDetail) notable(reported *UseDetail) bool {
	if d == nil || reported == nil {
		return d != reported
	}
	return d != reported && (len(d.Containers) != len(reported.Containers) || d.Rates.Notable(reported.Rates))
}

func notable(now, reported, least float64) bool {
	change := math.Abs(now - reported)
	return change > least && change > math.Abs(reported)/10
}

// Merge returns the statistics completed by earlier ones for attempts that these do not name, if lives says that the
// attempt still exists. The result is ordered by UUID. It changes neither argument; earlier may be nil.
func (s *NodeStats) Merge(earlier *NodeStats, lives func(uuid string) bool) *NodeStats {
	if earlier == nil {
		earlier = &NodeStats{}
	}
	merged := *s
	if len(s.Each)+len(earlier.Each) == 0 {
		return &merged
	}
	named := make(map[string]bool, len(s.Each))
	for i := range s.Each {
		named[s.Each[i].UUID] = true
	}
	merged.Each = slices.Clone(s.Each)
	for _, t := range earlier.Each {
		if !named[t.UUID] && lives(t.UUID) {
			merged.Each = append(merged.Each, t)
		}
	}
	slices.SortFunc(merged.Each, func(a, b TaskStats) int { return cmp.Compare(a.UUID, b.UUID) })
	return &merged
}

// Changed returns the statistics with only the parts that differ notably from earlier ones, which may be nil. It
// changes neither.
func (s *NodeStats) Changed(earlier *NodeStats) *NodeStats {
	if earlier == nil || len(s.Each) == 0 {
		return s
	}
	reported := make(map[string]TaskStats, len(earlier.Each))
	for _, t := range earlier.Each {
		reported[t.UUID] = t
	}
	changed := *s
	changed.Each = nil
	for _, t := range s.Each {
		if before, known := reported[t.UUID]; !known || t != before {
			changed.Each = append(changed.Each, t)
		}
	}
	return &changed
}
