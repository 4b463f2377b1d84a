package controlplane

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// meterOf returns where the tasks of an owner count their requests: what the first target of its scaling says that
// looks at them, nil for none.
func meterOf(snap *store.Snapshot, o cluster.OwnerRef) *cluster.Meter {
	if o.Kind != cluster.KindService {
		return nil
	}
	e, ok := snap.Service(o.Cluster, o.Name)
	if !ok || e.Value.Scaling == nil {
		return nil
	}
	for i := range e.Value.Scaling.Targets {
		if t := &e.Value.Scaling.Targets[i]; t.Metric == cluster.ScaleRequests {
			return &cluster.Meter{Port: t.Port, Path: t.Path, Series: t.Series}
		}
	}
	return nil
}

// mostTold bounds the records that are written anew at once because a meter changed.
const mostTold = 500

// tellMeter writes the meter into the desired records of a service's tasks that were placed before it was what it is.
func (l *loop) tellMeter(snap *store.Snapshot, o cluster.OwnerRef, units *[]store.Unit) {
	meter := meterOf(snap, o)
	w := &write{loop: l, snap: snap, owner: o}
	told := 0
	for row := range snap.Attempts(o) {
		d := row.Desired
		if d == nil || row.DesiredRev == 0 && row.PlanRev == 0 || row.Unreadable || !row.Live() || d.Stop != nil ||
			sameMeter(d.Meter, meter) {
			continue
		}
		var u store.Unit
		u.Compare(w.prefix().Outcome(row.Task, row.Number), 0)
		anew := *d
		anew.Meter = meter
		if err := w.desired(&u, &anew, row.DesiredRev, row); err != nil {
			l.config.Logger.Error("a meter cannot be written", "task", row.Task, "error", err)
			return
		}
		*units = append(*units, u)
		if told++; told == mostTold {
			return
		}
	}
}

func sameMeter(a, b *cluster.Meter) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
