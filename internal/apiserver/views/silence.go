package views

import (
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
	"github.com/berthd/berth/internal/store"
)

// IsMassSilence reports whether so many nodes of a domain fell silent together that their tasks are not replaced
// (P6.2). The leader decides that from reports. Each server finds the same result from the leader's verdicts, which
// hold when each node became suspect or down.
func (s *Source) IsMassSilence(snap *store.Snapshot, domain string) bool {
	var silence *cluster.Silence
	if d, ok := snap.Domain(domain); ok {
		silence = d.Value.Silence
	}
	options, now := watcher.OptionsOf(silence), s.Now()
	var verdicts []watcher.Verdict
	for e := range snap.Nodes() {
		if e.Value.Domain != domain {
			continue
		}
		v := watcher.Verdict{Node: *e.Value, Heard: true}
		if h, ok := snap.Host(e.Value.Name); ok {
			v.Gone = h.Value.Gone
		}
		switch {
		case e.Value.State == cluster.NodeSuspect && e.Value.Until.After(now):
			// The node reports; it is suspect because it returned too often.
		case e.Value.State == cluster.NodeSuspect:
			v.Heard, v.Silence = false, options.Suspect+now.Sub(e.Value.Since)
		case e.Value.State == cluster.NodeDown:
			v.Heard, v.Silence = false, options.Down+now.Sub(e.Value.Since)
		}
		verdicts = append(verdicts, v)
	}
	// The clock began long before the oldest silence.
	return watcher.IsMassSilence(verdicts, time.Duration(now.UnixNano()), options)
}
