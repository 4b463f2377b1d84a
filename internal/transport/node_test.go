package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A node with a certificate may send only its own messages. A caller without a certificate is trusted: the listener
// admitted it.
func TestNodeSendsOnlyItsOwnMessages(t *testing.T) {
	calls := 0
	h := Handler(&script{
		register: func(Registration) (Welcome, error) { calls++; return Welcome{}, nil },
		report:   func(Report) (ReportReply, error) { calls++; return ReportReply{}, nil },
		assign:   func(context.Context, AssignmentsRequest, func([]Message) error) error { calls++; return nil },
	})
	for path, message := range map[string]any{
		PathRegister: Registration{Node: "n1"}, PathReport: Report{Node: "n1"},
		PathAssignments: AssignmentsRequest{Node: "n1"},
	} {
		body, err := json.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		for caller, want := range map[string]int{"n1": http.StatusOK, "n2": http.StatusForbidden, "": http.StatusOK} {
			r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
			if caller != "" {
				r = r.WithContext(WithNode(r.Context(), caller))
			}
			w := httptest.NewRecorder()
			calls = 0
			h.ServeHTTP(w, r)
			if w.Code != want || (calls == 1) != (want == http.StatusOK) {
				t.Errorf("%s for n1 by %q: got %d after %d calls, want %d", path, caller, w.Code, calls, want)
			}
		}
	}
}
