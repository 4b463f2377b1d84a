package hostapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/unixsocket"
)

// moverFake counts the steps that it takes.
type moverFake struct{ steps int }

func (m *moverFake) State() api.HostHandover {
	return api.HostHandover{Node: "n1", Phase: api.HandoverOwn}
}

func (m *moverFake) Objects(context.Context) (api.NodeObjects, error) { return api.NodeObjects{}, nil }

func (m *moverFake) Prepare(context.Context, api.HostPrepareRequest) error {
	m.steps++
	return nil
}

func (m *moverFake) Complete(context.Context, api.HostCompleteRequest) error {
	m.steps++
	return nil
}

func (m *moverFake) Cancel(context.Context) error {
	m.steps++
	return nil
}

// Only root and the user of the agent move a node. Members of the group of the socket and callers of other connections
// do not, and a process that cannot move the node says which one can.
func TestWhoMovesANode(t *testing.T) {
	own := uint32(os.Geteuid())
	for _, test := range []struct {
		name   string
		peer   any
		fixed  bool
		status int
	}{
		{"root", uint32(0), false, http.StatusOK},
		{"the user of the agent", own, false, http.StatusOK},
		{"a member of the group", uint32(4711), false, http.StatusForbidden},
		{"no unix socket", nil, false, http.StatusForbidden},
		{"a process of berth agent", own, true, http.StatusConflict},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := &moverFake{}
			c := Config{Name: "n1", Mover: m}
			if test.fixed {
				c.Mover = nil
			}
			s := New(c)
			for _, call := range []struct{ method, path, body string }{
				{"GET", "/v1/handover", ""},
				{"GET", "/v1/handover/objects", ""},
				{"POST", "/v1/handover/prepare", `{"servers": ["https://s1:7071"], "join_token": "t"}`},
				{"POST", "/v1/handover/complete", `{}`},
				{"POST", "/v1/handover/cancel", ""},
			} {
				ctx := t.Context()
				if uid, ok := test.peer.(uint32); ok {
					ctx = unixsocket.WithUID(ctx, uid)
				}
				r := httptest.NewRequestWithContext(ctx, call.method, call.path, strings.NewReader(call.body))
				w := httptest.NewRecorder()
				s.ServeHTTP(w, r)
				if w.Code != test.status {
					t.Errorf("%s %s: status %d, want %d: %s", call.method, call.path, w.Code, test.status, w.Body)
				}
			}
			want := 0
			if test.status == http.StatusOK {
				want = 3
			}
			if m.steps != want {
				t.Errorf("%d steps were taken, want %d", m.steps, want)
			}
		})
	}
}
