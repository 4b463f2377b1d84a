package planning

import (
	"cmp"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/backend"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/lists"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

// ReservationsAPI lists, reads, writes and deletes reservations of nodes.
type ReservationsAPI struct{ backend.Backend }

const (
	// keepReservations is how long an ended reservation is listed. maxRemovedReservations is how many are removed in
	// one transaction.
	keepReservations       = 7 * 24 * time.Hour
	maxRemovedReservations = 20
)

// Routes returns the operations of reservations.
func (a *ReservationsAPI) Routes() []route.Route {
	const all, one = "/v1/reservations", "/v1/reservations/{reservation}"
	view := reflect.TypeFor[api.ReservationView]()
	return []route.Route{
		{
			Method: "GET", Path: all, Name: "listReservations", Role: cluster.RoleViewer,
			Summary: "All reservations of nodes.", Query: route.ListParameters(),
			Reply: reflect.TypeFor[api.Page[api.ReservationView]](), Stream: route.MediaEventStream, Long: true,
			Serve: a.listReservations,
		},
		{
			Method: "GET", Path: one, Name: "readReservation", Role: cluster.RoleViewer, Summary: "One reservation.",
			Query: []route.Parameter{route.Consistent()}, Reply: view, Serve: a.readReservation,
		},
		{
			Method: "PUT", Path: one, Name: "writeReservation", Role: cluster.RoleOperator,
			Summary: "Makes or changes a reservation. With a count, its nodes are chosen now; present nodes stay if " +
				"they suit.", Writes: true,
			Body: reflect.TypeFor[api.Reservation](), Reply: view, Serve: a.writeReservation,
		},
		{
			Method: "DELETE", Path: one, Name: "deleteReservation", Role: cluster.RoleOperator,
			Summary: "Deletes a reservation: its nodes are open to all again. Running tasks stay.",
			Writes:  true, Status: http.StatusNoContent, Serve: a.deleteReservation,
		},
	}
}

func (a *ReservationsAPI) listReservations(w http.ResponseWriter, r *http.Request) error {
	return lists.Serve(a.Lists, w, r, lists.Source[api.ReservationView]{
		List: "reservations", Topics: store.TopicReservations,
		All: func(snap *store.Snapshot) (all []lists.Item[api.ReservationView]) {
			for e := range snap.Reservations() {
				all = append(all,
					lists.Item[api.ReservationView]{Key: e.Value.Name, Value: reservationView(e, a.Now())})
			}
			return all
		},
	})
}

func (a *ReservationsAPI) readReservation(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	return a.answerReservation(w, http.StatusOK, snap, r.PathValue("reservation"))
}

func (a *ReservationsAPI) answerReservation(w http.ResponseWriter, status int, snap *store.Snapshot,
	name string,
) error {
	e, ok := snap.Reservation(name)
	if !ok {
		return respond.NotFound("reservation", name)
	}
	respond.SetETag(w, e.Modified)
	return respond.JSON(w, status, reservationView(e, a.Now()))
}

func reservationView(e store.Entry[cluster.Reservation], now time.Time) api.ReservationView {
	v := api.ReservationView{Reservation: *e.Value, State: api.ReservationPlanned, Revision: e.Modified}
	switch {
	case e.Value.Over(now):
		v.State = api.ReservationOver
	case e.Value.Active(now):
		v.State = api.ReservationActive
	}
	return v
}

func (a *ReservationsAPI) writeReservation(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("reservation")
	var asked cluster.Reservation
	pre, err := draft.PreconditionOf(r)
	if err != nil {
		return err
	}
	if err := strictjson.ReadBody(w, r, &asked, "revision", "state"); err != nil {
		return err
	}
	faults := draft.FillName("name", &asked.Name, name)
	status := http.StatusOK
	snap, err := a.Writer.Write(r.Context(), func(d *draft.Draft) error {
		e, exists := d.Snap.Reservation(name)
		if err := pre.Check(e.Modified); err != nil {
			return err
		}
		status = http.StatusOK
		if !exists {
			status = http.StatusCreated
		}
		domain := cmp.Or(asked.Domain, cluster.DefaultDomain)
		if _, ok := d.Snap.DomainNumber(domain); !ok {
			return respond.Invalid(append(slices.Clone(faults), cluster.Fault{
				Path: "domain",
				Message: fmt.Sprintf("is %q, and there are the domains %s", domain,
					strings.Join(d.Snap.Domains(), ", ")),
			}))
		}
		next, found := newReservation(d, asked, e.Value, domain)
		if all := append(slices.Clone(faults), found...); len(all) > 0 {
			return respond.Invalid(all)
		}
		if !exists || !reflect.DeepEqual(*e.Value, *next) {
			d.Put(d.Prefix.Reservation(name), next, e.Modified)
			removeEndedReservations(d, name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return a.answerReservation(w, status, snap, name)
}

func (a *ReservationsAPI) deleteReservation(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("reservation")
	return a.Writer.ServeDelete(w, r, func(d *draft.Draft, pre draft.Precondition) error {
		e, ok := d.Snap.Reservation(name)
		if err := pre.Check(e.Modified); err != nil {
			return err
		}
		if !ok {
			return respond.NotFound("reservation", name)
		}
		d.Remove(d.Prefix.Reservation(name), e.Modified, cluster.Event{
			Type: "reservation.deleted", Reason: cluster.ReasonDeleted, Message: "the user deleted the reservation " +
				name,
		})
		return nil
	})
}

// newReservation completes a requested reservation with its nodes, and returns all of its faults. was is the present
// one, or nil.
func newReservation(d *draft.Draft, asked cluster.Reservation, was *cluster.Reservation,
	domain string) (*cluster.Reservation,
	cluster.Faults,
) {
	r := asked
	r.Domain, r.Created, r.By = domain, d.Now, d.By
	r.Nodes, r.Constraints = slices.Clone(asked.Nodes), slices.Clone(asked.Constraints)
	begins := d.Now
	if was != nil {
		r.Created, r.By, begins = was.Created, was.By, was.From
	}
	r.SetDefaults(begins)
	faults := cluster.FaultsOf(r.Validate())
	if r.Over(d.Now) && (was == nil || !was.Until.Equal(r.Until)) && r.Until.After(r.From) {
		faults = append(faults, cluster.Fault{
			Path:    "until",
			Message: "lies in the past: want the time when the reservation ends",
		})
	}
	if len(faults) > 0 {
		return nil, faults
	}
	if r.Count > 0 {
		if r.Nodes, faults = choose(d, &r, was); len(faults) > 0 {
			return nil, faults
		}
		return &r, nil
	}
	for i, name := range r.Nodes {
		at := fmt.Sprintf("nodes[%d]", i)
		if n, ok := d.Snap.Node(name); !ok || n.Value.Domain != domain {
			faults = append(faults, cluster.Fault{
				Path:    at,
				Message: fmt.Sprintf("is %s, and domain %s has no such node", name, domain),
			})
		} else if o := overlapping(d, name, &r); o != nil {
			faults = append(faults, cluster.Fault{
				Path: at,
				Message: fmt.Sprintf("is %s, which the reservation %s keeps from %s until %s",
					name, o.Name, o.From.Format(time.RFC3339), o.Until.Format(time.RFC3339)),
			})
		}
	}
	return &r, faults
}

// overlapping returns another reservation that keeps the node at a time when r would, or nil.
func overlapping(d *draft.Draft, node string, r *cluster.Reservation) *cluster.Reservation {
	for e := range d.Snap.Reservations() {
		if o := e.Value; o.Name != r.Name && o.Overlaps(r) {
			if _, kept := slices.BinarySearch(o.Nodes, node); kept {
				return o
			}
		}
	}
	return nil
}

// choose returns as many nodes as a reservation requests. Its present and named nodes come first, then ready nodes,
// then the nodes with the fewest tasks.
func choose(d *draft.Draft, r, was *cluster.Reservation) ([]string, cluster.Faults) {
	type candidate struct {
		name  string
		order [3]int
	}
	var all []candidate
	for e := range d.Snap.Nodes() {
		name := e.Value.Name
		if e.Value.Domain != r.Domain || !suits(d, r, e.Value) || overlapping(d, name, r) != nil {
			continue
		}
		c := candidate{name: name, order: [3]int{1, 1, 0}}
		if slices.Contains(r.Nodes, name) || was != nil && slices.Contains(was.Nodes, name) {
			c.order[0] = 0
		}
		if e.Value.State == cluster.NodeReady {
			c.order[1] = 0
		}
		for row := range d.Snap.NodeAttempts(name) {
			if row.Standing() {
				c.order[2]++
			}
		}
		all = append(all, c)
	}
	if len(all) < r.Count {
		return nil, cluster.Faults{
			{Path: "count", Message: fmt.Sprintf("is %d, and only %s would be free of other reservations then",
				r.Count, respond.Plural(len(all), "node"))},
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(slices.Compare(a.order[:], b.order[:]), strings.Compare(a.name, b.name))
	})
	names := make([]string, r.Count)
	for i := range names {
		names[i] = all[i].name
	}
	slices.Sort(names)
	return names, nil
}

// suits reports whether a node meets the demands of a reservation, and is to stay in the fleet.
func suits(d *draft.Draft, r *cluster.Reservation, n *cluster.Node) bool {
	host, _ := d.Snap.Host(n.Name)
	status, _ := d.Snap.NodeStatus(n.Name)
	if host.Value != nil && (host.Value.Gone || host.Value.Drain != nil) {
		return false
	}
	node := scheduler.NodeOf(host.Value, n, status.Value)
	return (r.Pool == "" || r.Pool == node.Pool) &&
		!slices.ContainsFunc(r.Constraints, func(c cluster.Constraint) bool { return !scheduler.Matches(c, &node) })
}

// removeEndedReservations removes some of the reservations that ended long ago, except the one with the name.
func removeEndedReservations(d *draft.Draft, name string) {
	n := 0
	for e := range d.Snap.Reservations() {
		if e.Value.Name != name && n < maxRemovedReservations && e.Value.Over(d.Now.Add(-keepReservations)) {
			d.Put(d.Prefix.Reservation(e.Value.Name), nil, e.Modified)
			n++
		}
	}
}
