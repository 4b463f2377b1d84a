package apiserver

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// deadlineWriter counts what is said about deadlines of writes.
type deadlineWriter struct {
	*httptest.ResponseRecorder
	said int
}

func (w *deadlineWriter) SetWriteDeadline(time.Time) error {
	w.said++
	return nil
}

// TestDeadlineOfTheLastAnswer: it is taken back for connections that carry one request after the other, and for no
// others.
func TestDeadlineOfTheLastAnswer(t *testing.T) {
	w := newWorld(t)
	for major, want := range map[int]int{1: 1, 2: 0} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/livez", nil)
		r.ProtoMajor = major
		seen := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}
		if w.server.ServeHTTP(seen, r); seen.Code != http.StatusOK || seen.said != want {
			t.Errorf("HTTP/%d: status %d, %d words about deadlines, want %d", major, seen.Code, seen.said, want)
		}
	}
}
