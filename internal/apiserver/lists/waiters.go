package lists

import (
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/respond"
)

// Limits on requests that wait for changes: streams of lists and events, and lists with ?wait.
const (
	// MaxWaiters is how many such requests a server accepts by default. MaxClientWaiters is the default for one token,
	// or for one user at the unix socket.
	MaxWaiters       = 1024
	MaxClientWaiters = 256
	// retryWaiter is the Retry-After of a refused request, in seconds.
	retryWaiter = "5"
)

// Kinds of waiting requests in metrics.
const (
	kindList   = "list"
	KindEvents = "events"
	KindWait   = "wait"
)

// Waiters limits the requests that wait for changes, in all and for each client. Safe for concurrent use.
type Waiters struct {
	most, maxEach int
	open          *prometheus.GaugeVec // by kind

	mu   sync.Mutex
	all  int
	each map[string]int
}

// NewWaiters returns limits: most in all, and maxEach for one client. Open counts the waiting requests by kind.
func NewWaiters(most, maxEach int, open *prometheus.GaugeVec) *Waiters {
	return &Waiters{most: most, maxEach: maxEach, open: open}
}

// Count returns how many requests wait now.
func (s *Waiters) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

// Enter admits a request that is going to wait. The caller calls leave once. Above a limit Enter returns a problem of
// status 429, sets Retry-After and admits nothing.
func (s *Waiters) Enter(w http.ResponseWriter, r *http.Request, kind string) (leave func(), err error) {
	who := access.CallerOf(r.Context()).Who
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.each[who] >= s.maxEach:
		w.Header().Set("Retry-After", retryWaiter)
		return nil, respond.Problemf(http.StatusTooManyRequests,
			"%s has %s of this server open that wait for changes, the most for one client "+
				"(--max-client-waiters): close some, or retry later", who, respond.Plural(s.each[who], "request"))
	case s.all >= s.most:
		w.Header().Set("Retry-After", retryWaiter)
		return nil, respond.Problemf(http.StatusTooManyRequests,
			"%s wait for changes at this server, the most that it serves (--max-waiters): retry "+
				"later, or use another server",
			respond.Plural(s.all, "request"))
	}
	if s.each == nil {
		s.each = map[string]int{}
	}
	s.all++
	s.each[who]++
	gauge := s.open.WithLabelValues(kind)
	gauge.Inc()
	return func() {
		gauge.Dec()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
		if s.each[who]--; s.each[who] == 0 {
			delete(s.each, who)
		}
	}, nil
}
