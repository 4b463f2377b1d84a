package cluster

import (
	"cmp"
	"math"
	"slices"
)

// Notable reports whether the statistics of an attempt differ enough from the reported ones to send them again: by more
// than a tenth, and by more than a negligible amount.
func (t TaskStats) Notable(told TaskStats) bool {
	const (
		cpu      = 20
		memory   = MiB
		requests = 1
	)
	return notable(float64(t.CPU), float64(told.CPU), cpu) ||
		notable(float64(t.Memory), float64(told.Memory), float64(memory)) ||
		notable(float64(t.Growth), float64(told.Growth), float64(memory)) ||
		notable(t.Requests, told.Requests, requests) ||
		(t.Requests < 0) != (told.Requests < 0) ||
		t.Detail.notable(told.Detail) ||
		t.Storage.notable(told.Storage)
}

// notable does the same for the rates of a whole task. A shift between its containers alone is reported with the next
// notable change.
func (d *UseDetail) notable(told *UseDetail) bool {
	if d == nil || told == nil {
		return d != told
	}
	return d != told && (len(d.Containers) != len(told.Containers) || d.Rates.Notable(told.Rates))
}

func notable(now, told, least float64) bool {
	change := math.Abs(now - told)
	return change > least && change > math.Abs(told)/10
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
	told := make(map[string]TaskStats, len(earlier.Each))
	for _, t := range earlier.Each {
		told[t.UUID] = t
	}
	changed := *s
	changed.Each = nil
	for _, t := range s.Each {
		if before, known := told[t.UUID]; !known || t != before {
			changed.Each = append(changed.Each, t)
		}
	}
	return &changed
}
