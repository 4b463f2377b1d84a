package apiserver

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// reservable returns a world with four nodes: n1 and n2 in the pool gpu, n4 in another domain.
func reservable(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	records := map[string]any{}
	for _, name := range []string{"n1", "n2", "n3", "n4"} {
		n := cluster.Node{Name: name, State: cluster.NodeReady, Domain: "default"}
		if name == "n4" {
			n.Domain = "other"
		}
		records["node/"+name] = n
	}
	for _, name := range []string{"n1", "n2"} {
		records["host/"+name] = cluster.Host{Name: name, Pool: "gpu"}
	}
	w.put(records)
	return w
}

func hours(from, until int) string {
	at := func(n int) string { return time.Now().UTC().Add(time.Duration(n) * time.Hour).Format(time.RFC3339) }
	return fmt.Sprintf(`"from": %q, "until": %q`, at(from), at(until))
}

func TestReservations(t *testing.T) {
	w := reservable(t)
	made := read[api.ReservationView](t,
		w.want(201, "PUT", "/v1/reservations/exam",
			`{"count": 1, "pool": "gpu", "labels": {"team": "ml"}, `+hours(1, 3)+`}`))
	if diff := cmp.Diff([]string{"n1"}, made.Nodes); diff != "" || made.State != "planned" ||
		made.Domain != "default" || made.Lead != cluster.DefaultLead {
		t.Errorf("made: %+v", made)
	}
	if last := w.lastEvent(); last.Type != "reservation.created" ||
		!strings.Contains(last.Message, "the reservation exam keeps 1 node from") {
		t.Errorf("got event %+v", last)
	}
	again := read[api.ReservationView](t, w.want(200, "PUT", "/v1/reservations/exam", made))
	if diff := cmp.Diff(made, again); diff != "" {
		t.Errorf("what was read, written again (-first +second):\n%s", diff)
	}

	// One more node is chosen besides the present one. There is no third feasible node.
	more := made.Reservation
	more.Count = 2
	grown := read[api.ReservationView](t, w.want(200, "PUT", "/v1/reservations/exam", more))
	if diff := cmp.Diff([]string{"n1", "n2"}, grown.Nodes); diff != "" {
		t.Errorf("grown (-want +got):\n%s", diff)
	}
	if last := w.lastEvent(); last.Type != "reservation.updated" {
		t.Errorf("got event %+v", last)
	}
	more.Count = 3
	if p := w.refused(422, "PUT", "/v1/reservations/exam", more); !strings.Contains(p.Detail+fmt.Sprint(p.Faults),
		"only 2 nodes would be free") {
		t.Errorf("refused with %+v", p)
	}

	// Another reservation may have the nodes before and after that time.
	now := read[api.ReservationView](t,
		w.want(201, "PUT", "/v1/reservations/now",
			`{"nodes": ["n3", "n1"], "until": "`+made.From.Format(time.RFC3339)+`"}`))
	if now.State != "active" || !slices.Equal(now.Nodes, []string{"n1", "n3"}) {
		t.Errorf("now: %+v", now)
	}
	page := read[api.Page[api.ReservationView]](t, w.want(200, "GET", "/v1/reservations", nil))
	if len(page.Items) != 2 || page.Items[0].Name != "exam" {
		t.Errorf("listed: %+v", page.Items)
	}
	w.want(204, "DELETE", "/v1/reservations/now", nil)
	if last := w.lastEvent(); last.Type != "reservation.deleted" {
		t.Errorf("got event %+v", last)
	}
	w.want(404, "GET", "/v1/reservations/now", nil)
	w.want(404, "DELETE", "/v1/reservations/now", nil)
	w.want(412, "DELETE", "/v1/reservations/exam", nil, "If-Match", `"1"`)
	w.want(404, "GET", "/v1/reservations/none", nil)
}

func TestReservationFaults(t *testing.T) {
	w := reservable(t)
	w.want(201, "PUT", "/v1/reservations/exam", `{"nodes": ["n1"], `+hours(1, 3)+`}`)
	for _, test := range []struct {
		name, body string
		want       []string // paths
	}{
		{"all together", `{"name": "b", "pool": "x", ` + hours(2, 1) + `}`, []string{"name", "nodes", "pool", "until"}},
		{"over", `{"nodes": ["n1"], ` + hours(-2, -1) + `}`, []string{"until"}},
		{
			"not there, of another domain, and kept already", `{"nodes": ["n1", "n3", "n4", "n9"], ` + hours(2, 4) +
				`}`,
			[]string{"nodes[0]", "nodes[2]", "nodes[3]"},
		},
		{"too many", `{"count": 2, "pool": "gpu", ` + hours(2, 4) + `}`, []string{"count"}},
		{"an unknown field", `{"node": "n1"}`, []string{"node"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, f := range w.refused(422, "PUT", "/v1/reservations/a", test.body).Faults {
				got = append(got, f.Path)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}
