package apiserver

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// TestAuditAssembles: the lines of requests that are answered at the same moment go to the disk together.
func TestAuditAssembles(t *testing.T) {
	l, err := OpenAudit(AuditConfig{Path: filepath.Join(t.TempDir(), "audit.log")})
	if err != nil {
		t.Fatal(err)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // else others may be late by themselves
	const n = 32
	answered := make(chan struct{})
	for range n {
		go func() {
			<-answered
			l.Put(AuditLine{Method: http.MethodPost})
		}()
	}
	runtime.Gosched() // all wait
	l.Put(AuditLine{Method: http.MethodPost})
	close(answered)
	l.assemble()
	if b := l.take(); len(b.entries) != n+1 {
		t.Errorf("the first line went with %d others, want %d", len(b.entries)-1, n)
	}
	l.assemble() // nobody is waited for
}

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
