package credentials

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/berthd/berth/internal/apiserver/access"
)

// Bounds of failed requests to join.
const (
	MaxJoinTries   = 20              // failures of one address before its requests are refused
	JoinTryDecay   = 6 * time.Second // until one failure is forgotten
	maxJoinSources = 1024            // addresses that are counted separately
)

// JoinLimiter slows down addresses whose requests to join fail. The zero value is ready. Safe for concurrent use.
type JoinLimiter struct {
	// oneUse admits one use of a token at a time. All uses change one record, so concurrent ones would conflict.
	oneUse sync.Mutex

	mu    sync.Mutex
	tries map[string]*joinTry
}

// joinTry counts the failures of an address.
type joinTry struct {
	count int
	since time.Time // from here the count decays
}

// retryAfter returns how long an address must wait before its next request, 0 for not at all.
func (j *JoinLimiter) retryAfter(address string, now time.Time) time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	t := j.tries[address]
	if t == nil {
		return 0
	}
	t.decay(now)
	if t.count < MaxJoinTries {
		return 0
	}
	return JoinTryDecay
}

func (t *joinTry) decay(now time.Time) {
	for t.count > 0 && now.Sub(t.since) >= JoinTryDecay {
		t.count--
		t.since = t.since.Add(JoinTryDecay)
	}
	if t.count == 0 || now.Before(t.since) { // or the clock was set back
		t.since = now
	}
}

// addFailure counts a failed request.
func (j *JoinLimiter) addFailure(address string, now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.tries == nil {
		j.tries = map[string]*joinTry{}
	}
	t := j.tries[address]
	if t == nil {
		if len(j.tries) >= maxJoinSources {
			j.forget(now)
		}
		t = &joinTry{since: now}
		j.tries[address] = t
	}
	t.decay(now)
	t.count++
}

// forget makes room: it removes the addresses without failures or, if there are none, any one. Counting cannot stop a
// client with so many addresses, and that client must not block others.
func (j *JoinLimiter) forget(now time.Time) {
	some := ""
	for address, t := range j.tries {
		if t.decay(now); t.count == 0 {
			delete(j.tries, address)
		}
		some = address
	}
	if len(j.tries) >= maxJoinSources {
		delete(j.tries, some)
	}
}

// sourceOf returns the address whose failures are counted. An IPv6 address counts for its /64 network, which mostly
// belongs to one machine.
func sourceOf(r *http.Request) string {
	host := access.HostOf(access.RemoteAddress(r))
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.Unmap().Is4() {
		return host
	}
	network, _ := ip.WithZone("").Prefix(64) // 64 is right for all
	return network.String()
}
