package cluster

import (
	"slices"
	"time"
)

// Bounds of reservations.
const (
	// MaxReservedNodes is the most nodes of a reservation. Its record is one value of the store.
	MaxReservedNodes = 2000
	// MaxReservationSpan is the longest duration of a reservation, and the latest start ahead.
	MaxReservationSpan = 366 * 24 * time.Hour
	// DefaultLead is the Lead of a reservation that names none.
	DefaultLead = Duration(time.Hour)
)

// Reservation keeps nodes for some owners for a span of time: the record reservation/<name>. From From to Until only
// admitted tasks are placed on the nodes. In the lead before From, other tasks are placed only if they end in time.
// Writer: the user, through the API, which chooses Nodes if there is a Count.
type Reservation struct {
	Name string `json:"name"`
	// Domain is the domain of the nodes. The API server fills it in.
	Domain string `json:"domain,omitempty"`
	// Nodes are kept, ordered by name. A node is kept by one reservation at a time.
	Nodes []string `json:"nodes,omitempty"`
	// Count, unless 0, is the number of nodes to choose when the reservation is written: of Pool, unless it is empty,
	// and only nodes that meet the Constraints. A rewritten reservation keeps the nodes that still qualify.
	Count       int          `json:"count,omitempty"`
	Pool        string       `json:"pool,omitempty"`
	Constraints []Constraint `json:"constraints,omitempty"`
	// From is when it begins, by default when it is written, and Until when it ends.
	From  time.Time `json:"from,omitzero"`
	Until time.Time `json:"until"`
	// Clusters and Labels select the admitted services and jobs: those of one of the clusters (if any are given) that
	// have all the labels. A reservation without both admits only owners that name it (placement.reservation).
	Clusters []string `json:"clusters,omitempty"`
	Labels   Labels   `json:"labels,omitempty"`
	// Lead is the time before From in which a task is placed on the nodes only if its time limit ends it before From.
	// Tasks with a time limit are held to this rule as soon as the reservation exists. Default DefaultLead.
	Lead Duration `json:"lead,omitempty"`
	// Evict moves tasks away that run on its nodes when it begins and that it does not admit; else they run to their
	// end.
	Evict bool `json:"evict,omitempty"`
	// Created is the time of the first write, and By its user. The API server fills them in.
	Created time.Time `json:"created,omitzero"`
	By      string    `json:"by,omitempty"`
}

// Active reports whether the span holds a time.
func (r *Reservation) Active(at time.Time) bool { return !at.Before(r.From) && at.Before(r.Until) }

// Over reports whether it has ended.
func (r *Reservation) Over(at time.Time) bool { return !at.Before(r.Until) }

// Overlaps reports whether two reservations keep something at the same time, on whatever nodes.
func (r *Reservation) Overlaps(o *Reservation) bool {
	return r.From.Before(o.Until) && o.From.Before(r.Until)
}

// Admits reports whether tasks of a cluster may use it, whose owner has such labels, and whose placement names a
// reservation, or none ("").
func (r *Reservation) Admits(in string, labels Labels, named string) bool {
	if named != "" && named != r.Name || named == "" && len(r.Clusters)+len(r.Labels) == 0 {
		return false
	}
	if len(r.Clusters) > 0 && !slices.Contains(r.Clusters, in) {
		return false
	}
	for key, value := range r.Labels { // order-free: all of them
		if have, ok := labels[key]; !ok || have != value {
			return false
		}
	}
	return true
}

// Refuses reports whether the nodes refuse, at time now, tasks that the reservation does not admit. limit is their time
// limit; 0 means that they end by themselves.
func (r *Reservation) Refuses(now time.Time, limit Duration) bool {
	switch {
	case r.Over(now):
		return false
	case r.Active(now):
		return true
	case limit > 0:
		return now.Add(time.Duration(limit)).After(r.From)
	}
	return !now.Before(r.From.Add(-time.Duration(r.Lead)))
}

// Next returns the next time after now at which the reservation changes for waiting tasks: the start of its lead, of
// its span, or its end. It is zero when the reservation is over.
func (r *Reservation) Next(now time.Time) time.Time {
	for _, at := range []time.Time{r.From.Add(-time.Duration(r.Lead)), r.From, r.Until} {
		if at.After(now) {
			return at
		}
	}
	return time.Time{}
}

// SetDefaults fills in the fields that the user left out. now is the time of the write.
func (r *Reservation) SetDefaults(now time.Time) {
	if r.From.IsZero() {
		r.From = now
	}
	r.From, r.Until = r.From.UTC(), r.Until.UTC()
	if r.Lead == 0 {
		r.Lead = DefaultLead
	}
	slices.Sort(r.Nodes)
	setOps(r.Constraints)
}

// Validate returns all faults of a reservation as Faults, or nil. It checks the record only.
func (r *Reservation) Validate() error {
	k := newCheck()
	k.at("name").name(r.Name)
	nodes := k.at("nodes")
	nodes.must(len(r.Nodes) <= MaxReservedNodes, "holds %d names, at most %d are allowed", len(r.Nodes),
		MaxReservedNodes)
	for i, n := range r.Nodes {
		at := k.index("nodes", i)
		at.must(ValidNodeName(n), "%q cannot be the name of a node", clip(n))
		at.must(i == 0 || r.Nodes[i-1] != n, "%q is repeated", clip(n))
	}
	if len(r.Nodes) == 0 && r.Count == 0 {
		nodes.fault("is empty: want the names of nodes, or a count of nodes to be chosen")
	}
	k.at("count").within(r.Count, 0, MaxReservedNodes)
	if r.Count == 0 {
		k.at("pool").must(r.Pool == "", "needs count, which is missing")
		k.at("constraints").must(len(r.Constraints) == 0, "needs count, which is missing")
	}
	if r.Pool != "" {
		k.at("pool").name(r.Pool)
	}
	k.constraints("constraints", r.Constraints)
	k.at("until").must(r.Until.After(r.From), "is not after from (%s): want the time when the reservation ends",
		r.From.UTC().Format(time.RFC3339))
	k.at("until").must(r.Until.Sub(r.From) <= MaxReservationSpan, "is more than %d days after from",
		int(MaxReservationSpan.Hours()/24))
	k.at("lead").span(r.Lead, 0, Duration(MaxReservationSpan))
	k.at("clusters").must(len(r.Clusters) <= maxConstraints, "holds %d names, at most %d are allowed", len(r.Clusters),
		maxConstraints)
	for i, c := range r.Clusters {
		k.index("clusters", i).name(c)
	}
	k.at("labels").labels(r.Labels)
	return k.err()
}
