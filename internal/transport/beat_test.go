package transport

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
)

// A report without changes and its answer arrive complete, over either path.
func TestHeartbeats(t *testing.T) {
	full := ReportReply{
		Refused: map[string]Refused{}, Heartbeat: cluster.Duration(1500 * time.Millisecond),
		Token: cluster.Token{Generation: 1, Incarnation: 1700000000000, Epoch: 3},
	}
	changed := full
	changed.Servers = []string{"http://s2:1"}
	for name, c := range map[string]struct {
		report Report
		reply  ReportReply
		path   string
	}{
		"nothing new":         {Report{Node: "n1", Session: 4, Seq: 9}, full, PathBeat + "n1/4/9"},
		"the server has news": {Report{Node: "n1", Session: 4, Seq: 9}, changed, PathBeat + "n1/4/9"},
		"the agent has news": {
			Report{Node: "n1", Session: 4, Seq: 9, Stats: &cluster.NodeStats{Tasks: 1}},
			full, PathReport,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var path string
				var received Report
				h := Handler(&script{
					register: func(Registration) (Welcome, error) {
						return Welcome{Session: 4, Wire: WireVersion}, nil
					},
					report: func(r Report) (ReportReply, error) {
						received = r
						return c.reply, nil
					},
				})
				f := newFabric()
				f.serveHandler(t, "http://s1:1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					path = r.URL.Path
					h.ServeHTTP(w, r)
				}))
				client := f.client(t, "http://s1:1")
				if _, err := client.Register(t.Context(), Registration{Node: "n1"}); err != nil {
					t.Fatal(err)
				}
				got, err := client.Report(t.Context(), c.report)
				if err != nil {
					t.Fatal(err)
				}
				if path != c.path {
					t.Errorf("it went to %s, want %s", path, c.path)
				}
				if diff := cmp.Diff(c.report, received); diff != "" {
					t.Errorf("report (-sent +received):\n%s", diff)
				}
				want := c.reply
				want.Refused = nil
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("reply (-sent +got):\n%s", diff)
				}
			})
		})
	}
}

// A heartbeat has the errors of a report. A node sends only its own heartbeats, and malformed ones are refused.
func TestHeartbeatErrors(t *testing.T) {
	err := error(&SessionError{Newest: 7, Detail: "older"})
	h := Handler(&script{
		register: func(Registration) (Welcome, error) { return Welcome{Session: 4, Wire: WireVersion}, nil },
		report:   func(Report) (ReportReply, error) { return ReportReply{}, err },
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		f.serveHandler(t, "http://s1:1", h)
		c := f.client(t, "http://s1:1")
		if _, err := c.Register(t.Context(), Registration{Node: "n1"}); err != nil {
			t.Fatal(err)
		}
		var over *SessionError
		if _, err := c.Report(t.Context(), Report{Node: "n1", Session: 4, Seq: 1}); !errors.As(err, &over) ||
			over.Newest != 7 {
			t.Errorf("got %v, want the newest session", err)
		}
	})
	for path, want := range map[string]int{
		"n2/4/1": http.StatusForbidden, "n1/x/1": http.StatusBadRequest, "n1/4/-1": http.StatusBadRequest,
		"n1/4": http.StatusNotFound,
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, PathBeat+path, http.NoBody)
		h.ServeHTTP(w, r.WithContext(WithNode(r.Context(), "n1")))
		if w.Code != want {
			t.Errorf("%s: got %d, want %d", path, w.Code, want)
		}
	}
	for _, h := range []http.Header{
		{},
		{headerHeartbeat: {"5"}},
		{headerHeartbeat: {"5"}, headerToken: {"1.2"}},
		{headerHeartbeat: {"5"}, headerToken: {"1.2.x"}},
	} {
		if err := new(ReportReply).read(h); err == nil {
			t.Errorf("%v was read as an answer", h)
		}
	}
}
