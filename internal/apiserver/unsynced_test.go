package apiserver

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// TestRequestsWaitForTheTables checks that a server answers only after its tables have read the store. Earlier answers
// would show an empty store, and a returning reader of events would get 410.
func TestRequestsWaitForTheTables(t *testing.T) {
	engine := memory.New(memory.Options{})
	w := newWorldOn(t, engine)
	w.web()
	tables := store.NewTables(store.TablesConfig{Engine: engine, Logger: slog.New(slog.DiscardHandler)})
	s := New(Config{Engine: engine, Tables: tables, Trust: Trust{Token: token}})
	s.reads.SyncWait = 20 * time.Millisecond
	list := func() *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/v1/services", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		got := httptest.NewRecorder()
		s.ServeHTTP(got, r)
		return got
	}
	if got := list(); got.Code != http.StatusServiceUnavailable {
		t.Fatalf("before the tables have read the store: status %d, want 503: %s", got.Code, got.Body)
	}

	s.reads.SyncWait = time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- tables.Run(ctx) }()
	got := list()
	page := read[api.Page[api.ServiceView]](t, reply{got.Code, got.Header(), got.Body.Bytes()})
	if got.Code != http.StatusOK || len(page.Items) != 1 {
		t.Errorf("once they have: status %d, want the service: %s", got.Code, got.Body)
	}
	cancel()
	<-ended
}
