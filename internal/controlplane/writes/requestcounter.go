package writes

import (
	"fmt"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// RequestCounterOf returns the request counter source of an owner's tasks: that of the first scaling target which uses
// requests; nil for none.
func RequestCounterOf(snap *store.Snapshot, o cluster.OwnerRef) *cluster.RequestCounter {
	if o.Kind != cluster.KindService {
		return nil
	}
	e, ok := snap.Service(o.Cluster, o.Name)
	if !ok || e.Value.Scaling == nil {
		return nil
	}
	for i := range e.Value.Scaling.Targets {
		if t := &e.Value.Scaling.Targets[i]; t.Metric == cluster.ScaleRequests {
			return &cluster.RequestCounter{Port: t.Port, Path: t.Path, Series: t.Series}
		}
	}
	return nil
}

// maxCounterUpdates bounds the records of one service that one cycle rewrites after a change of the counter source.
const maxCounterUpdates = 500

// UpdateRequestCounters writes the request counter source into those desired records of a service that hold another
// one.
func (b *Builder) UpdateRequestCounters(o cluster.OwnerRef, units *[]store.Unit) error {
	counter := RequestCounterOf(b.Snap, o)
	updated := 0
	for row := range b.Snap.Attempts(o) {
		d := row.Desired
		if d == nil || row.DesiredRev == 0 && row.PlanRev == 0 || row.IsUnreadable() || !row.Live() || d.Stop != nil ||
			equalCounters(d.RequestCounter, counter) {
			continue
		}
		var u store.Unit
		u.Compare(b.Prefix.Outcome(row.Task, row.Number), 0)
		record := *d
		record.RequestCounter = counter
		if err := b.putDesired(&u, &record, row.DesiredRev, row); err != nil {
			return fmt.Errorf("write the request counter source of %s: %w", row.Task, err)
		}
		*units = append(*units, u)
		if updated++; updated == maxCounterUpdates {
			return nil
		}
	}
	return nil
}

func equalCounters(a, b *cluster.RequestCounter) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
