package apiserver

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// deadlineWriter counts changes of the write deadline.
type deadlineWriter struct {
	*httptest.ResponseRecorder
	said int
}

func (w *deadlineWriter) SetWriteDeadline(time.Time) error {
	w.said++
	return nil
}

// TestDeadlineOfTheLastAnswer checks that the deadline is cleared for HTTP/1 connections, which carry requests one
// after the other, and not for HTTP/2.
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
