package domains_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/berthd/berth/internal/serve/domains"
)

// spreadOf returns the view of one server of three on a domain, with all others reachable for an hour.
func spreadOf(domain, server string, unreached ...string) *domains.Spread {
	return &domains.Spread{Domain: domain, Server: server, Peers: func() (all []domains.Peer) {
		for _, id := range []string{"s1", "s2", "s3"} {
			if id != server {
				all = append(all, domains.Peer{ID: id, Reached: !slices.Contains(unreached, id), For: time.Hour})
			}
		}
		return all
	}}
}

// TestSpread checks that of three servers exactly one takes a domain at once and keeps it, and that many domains are
// about even on the servers. If that server is gone, another one takes its domains, and no other domain moves.
func TestSpread(t *testing.T) {
	leads := map[string]int{}
	for n := range 300 {
		domain := fmt.Sprintf("d%d", n)
		preferred := func(without ...string) (best string) {
			for _, server := range []string{"s1", "s2", "s3"} {
				if slices.Contains(without, server) {
					continue
				}
				s := spreadOf(domain, server, without...)
				if at, yields := s.Defer() == 0, s.Yields(); at == yields {
					t.Fatalf("%s takes %s after %v and yields it: %v", server, domain, s.Defer(), yields)
				}
				if s.Defer() == 0 {
					if best != "" {
						t.Fatalf("%s and %s both take %s at once", best, server, domain)
					}
					best = server
				}
			}
			return best
		}
		first := preferred()
		leads[first]++
		if next := preferred(first); next == "" || next == first {
			t.Fatalf("without %s, %q takes %s", first, next, domain)
		}
		for _, gone := range []string{"s1", "s2", "s3"} {
			if gone != first && preferred(gone) != first {
				t.Fatalf("%s moves although %s is gone and %s led it", domain, gone, first)
			}
		}
	}
	for _, server := range []string{"s1", "s2", "s3"} {
		if leads[server] < 60 {
			t.Errorf("%s leads %d of 300 domains: %v", server, leads[server], leads)
		}
	}
}

// TestNewcomerWaits checks that a domain is handed over only to a server that has been reachable for a minute.
func TestNewcomerWaits(t *testing.T) {
	domain := ""
	for n := 0; domain == ""; n++ {
		if name := fmt.Sprintf("d%d", n); spreadOf(name, "s1").Defer() == 0 {
			domain = name
		}
	}
	for reachable, want := range map[time.Duration]bool{0: false, 59 * time.Second: false, time.Minute: true} {
		s := &domains.Spread{Domain: domain, Server: "s2", Peers: func() []domains.Peer {
			return []domains.Peer{{ID: "s1", Reached: true, For: reachable}}
		}}
		if s.Yields() != want {
			t.Errorf("after %v the domain is handed over: %v, want %v", reachable, !want, want)
		}
	}
}
