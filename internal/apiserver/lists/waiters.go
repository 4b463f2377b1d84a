package lists

import (
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/respond"
)

// Bounds of requests that wait for changes: streams of lists and events, and lists with ?wait.
const (
	// MaxWaiters is how many a server serves at once, and maxClientWaiters how many of them one token, or one user at
	// the unix socket, may have, unless the operator says otherwise.
	MaxWaiters       = 1024
	MaxClientWaiters = 256
	// retryWaiter is after how many seconds a client that found no room tries again.
	retryWaiter = "5"
)

// Kinds of waiters, as the metrics name them.
const (
	kindList   = "list"
	KindEvents = "events"
	KindWait   = "wait"
)

// Waiters bounds how many requests wait for changes, in all and for each client. Safe for concurrent use.
type Waiters struct {
	most, mostEach int
	open           *prometheus.GaugeVec // by kind

	mu   sync.Mutex
	all  int
	each map[string]int
}

// NewWaiters returns bounds: most in all, and mostEach for one client. Open counts those that wait, by kind.
func NewWaiters(most, mostEach int, open *prometheus.GaugeVec) *Waiters {
	return &Waiters{most: most, mostEach: mostEach, open: open}
}

// Count returns how many requests wait now.
func (s *Waiters) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

// Enter takes a place for a request that is going to wait. Without a free place the answer is 429 with a Retry-After,
// in which case nothing is held. Otherwise the caller calls leave once.
func (s *Waiters) Enter(w http.ResponseWriter, r *http.Request, kind string) (leave func(), err error) {
	who := access.CallerOf(r.Context()).Who
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.each[who] >= s.mostEach:
		w.Header().Set("Retry-After", retryWaiter)
		return nil, respond.Problemf(http.StatusTooManyRequests,
			"%s has %s of this server open that wait for changes, which is all that one client may have "+
				"(--max-client-waiters): "+
				"close some, or ask again later", who, respond.Plural(s.each[who], "request"))
	case s.all >= s.most:
		w.Header().Set("Retry-After", retryWaiter)
		return nil, respond.Problemf(http.StatusTooManyRequests,
			"%s wait for changes at this server, which is all that it serves at once (--max-waiters): ask "+
				"again later, or another server",
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
