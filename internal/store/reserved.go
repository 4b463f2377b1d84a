package store

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Reserved returns the reservations of a domain that are not over, by node, ordered by their beginning. The
// reservations are shared with the tables: nobody may change them.
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
	for _, list := range at { // order-free: lists are independent
		slices.SortFunc(list, func(a, b *cluster.Reservation) int {
			return cmp.Or(a.From.Compare(b.From), strings.Compare(a.Name, b.Name))
		})
	}
	return at
}
