package apiserver

import (
	"cmp"
	"maps"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

// standingFleet returns the fleet of the domain with all that stands on it, as the records tell it now.
func (l *look) standingFleet() *scheduler.Fleet {
	f, domain := scheduler.NewFleet(), l.domain
	reserved := l.snap.Reserved(domain, l.now)
	for e := range l.snap.Nodes() {
		if e.Value.Domain != domain {
			continue
		}
		var host *cluster.Host
		if h, ok := l.snap.Host(e.Value.Name); ok {
			host = h.Value
		}
		status, _ := l.snap.NodeStatus(e.Value.Name)
		n := scheduler.NodeOf(host, e.Value, status.Value)
		n.Reserved = reserved[n.Name]
		f.SetNode(n)
	}
	manners := map[cluster.OwnerRef]manner{}
	for row := range l.snap.AllAttempts() {
		if !onNode(row) || row.Desired == nil {
			continue
		}
		r := l.reservation(row)
		if o, ok := row.Ref(); ok {
			m, known := manners[o]
			if !known {
				m = l.mannerOf(o)
				manners[o] = m
			}
			parts, _ := row.Task.Parts()
			r.Labels, r.Away = m.labels, m.away[parts.Step]
		}
		f.Reserve(r)
	}
	f.SetDeviceValueModel(l.worthOf(f))
	return f
}

// worthOf returns what devices are worth to the leader, or else, as to one that begins now, by what the tasks that
// stand have of them.
func (l *look) worthOf(f *scheduler.Fleet) *scheduler.ValueModel {
	if l.worth != nil {
		if w := l.worth(); w != nil {
			return w
		}
	}
	tasks := map[cluster.Ref]int{}
	for r := range f.Held { // order-free: counted
		if len(r.Devices) > 0 {
			tasks[r.Definition]++
		}
	}
	var mix scheduler.Mix
	refs := slices.SortedFunc(maps.Keys(tasks), func(a, b cluster.Ref) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	for _, ref := range refs {
		if def := l.definition(ref); def != nil {
			mix.Learn(def.Demand(), def.Devices(), tasks[ref])
		}
	}
	if !mix.Stale(nil) { // nothing is known of any
		return nil
	}
	return mix.ValueModel()
}

// reservation is what an attempt takes up, but for what others look at of its owner.
func (l *look) reservation(row *store.AttemptRow) scheduler.Reservation {
	d := row.Desired
	r := scheduler.Reservation{
		UUID: d.UUID, Task: row.Task, Node: row.Node, Definition: d.Definition,
		Priority: d.Priority, Devices: d.Devices,
	}
	if def := l.definition(d.Definition); def != nil {
		r.Demand = def.Demand()
	}
	for _, port := range d.Ports { // order-free: a set
		r.Ports = append(r.Ports, port)
	}
	return r
}

// manner is what others look at of an owner's tasks.
type manner struct {
	labels cluster.Labels
	away   map[string][]cluster.Relation // by step, "" for a service
}

func (l *look) mannerOf(o cluster.OwnerRef) manner {
	m := manner{away: map[string][]cluster.Relation{}}
	if e, ok := l.snap.Job(o.Cluster, o.Name); ok && o.Kind == cluster.KindJob {
		m.labels = e.Value.Labels
		for i := range e.Value.Steps {
			m.away[e.Value.Steps[i].Name] = e.Value.Steps[i].Placement.KeepsAway()
		}
	} else if e, ok := l.snap.Service(o.Cluster, o.Name); ok && o.Kind == cluster.KindService {
		m.labels, m.away[""] = e.Value.Labels, e.Value.Placement.KeepsAway()
	}
	return m
}
