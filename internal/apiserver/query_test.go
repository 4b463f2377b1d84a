package apiserver

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/berthd/berth/internal/apiserver/agentapi"
	"github.com/berthd/berth/internal/apiserver/lists"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
)

// FuzzQuery checks that any query is refused with 400 or read within its bounds.
func FuzzQuery(f *testing.F) {
	for _, raw := range []string{
		"", "limit=10&cursor=YQ", "index=7&wait=5m", "limit=-1", "limit=9223372036854775808", "cursor=%%%", "cursor=!",
		"wait=-1s", "wait=1e9h",
		"tail=99999999999999999999", "tail=0&since=1h&follow", "stream=stdin", "state=running&limt=3", "limit=1;2",
		"a=%zz", "\xff=\x00", "wait=NaN",
	} {
		f.Add(raw)
	}
	s := New(Config{})
	at := slices.IndexFunc(s.routes, func(rt route.Route) bool { return rt.Name == "listTasks" })
	f.Fuzz(func(t *testing.T, raw string) {
		r := &http.Request{URL: &url.URL{RawQuery: raw}}
		refused := func(err error) bool {
			if err == nil {
				return false
			}
			if p := respond.ProblemOf(err); p.Status != http.StatusBadRequest || len(p.Faults) == 0 {
				t.Errorf("%q: status %d with %d faults: %v", raw, p.Status, len(p.Faults), err)
			}
			return true
		}
		if err := route.Check(&s.routes[at], r); refused(err) {
			if _, ok := errors.AsType[*respond.Problem](err); !ok {
				t.Errorf("%q: %v is no problem", raw, err)
			}
		}
		if w, err := lists.WindowOf(r); !refused(err) && (w.Limit < 0 || w.Limit > lists.MaxLimit) {
			t.Errorf("%q: limit %d", raw, w.Limit)
		}
		if d, err := route.Duration(r, "wait"); !refused(err) && d < 0 {
			t.Errorf("%q: wait %s", raw, d)
		}
		if ask, err := agentapi.LogsRequest(r); !refused(err) && (ask.Tail < -1 || ask.Since < 0) {
			t.Errorf("%q: %+v", raw, ask)
		}
	})
}
