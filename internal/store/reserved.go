package store

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Reserved returns what keeps the nodes of a domain, by node: the reservations that are not over, by when they begin.
// They are the tables' own, to be read only.
func (s *Snapshot) Reserved(domain string, now time.Time) map[string][]*cluster.Reservation {
	at := map[string][]*cluster.Reservation{}
	for e := range s.Reservations() {
		r := e.Value
		if r.Domain != domain || r.Over(now) {
			continue
		}
		for _, name := range r.Nodes {
			at[name] = append(at[name], r)
		}
	}
	for _, list := range at { // order-free: each by itself
		slices.SortFunc(list, func(a, b *cluster.Reservation) int {
			return cmp.Or(a.From.Compare(b.From), strings.Compare(a.Name, b.Name))
		})
	}
	return at
}
