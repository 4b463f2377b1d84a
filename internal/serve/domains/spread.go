package domains

import (
	"hash/fnv"
	"io"
	"time"
)

const (
	// deferStep is how long a server leaves a domain to each server that should rather lead it.
	deferStep = 300 * time.Millisecond
	// settleTime is how long a server has to be reachable before another one hands a domain over to it. It keeps a
	// server that comes and goes from causing a change of the leader each time.
	settleTime = time.Minute
)

// Peer is another server.
type Peer struct {
	ID string
	// Reached says that this server reaches it. For is how long that has been so.
	Reached bool
	For     time.Duration
}

// Spread spreads the leaders of domains over the servers. Each domain ranks the servers by a hash, so each server finds
// the same order without asking another one, and a server that leaves moves only the domains that it led. It implements
// controlplane.Spread.
type Spread struct {
	Domain string
	// Server is the id of this server.
	Server string
	// Peers returns the other servers. It returns immediately.
	Peers func() []Peer
}

// Defer implements controlplane.Spread: a step for each reachable server that ranks higher.
func (s *Spread) Defer() time.Duration {
	higher := 0
	for _, p := range s.Peers() {
		if p.Reached && s.ranks(p.ID) > s.ranks(s.Server) {
			higher++
		}
	}
	return time.Duration(higher) * deferStep
}

// Yields implements controlplane.Spread: a server that ranks higher has been reachable for a while.
func (s *Spread) Yields() bool {
	for _, p := range s.Peers() {
		if p.Reached && p.For >= settleTime && s.ranks(p.ID) > s.ranks(s.Server) {
			return true
		}
	}
	return false
}

// ranks returns the weight of a server for the domain; the highest should lead (rendezvous hashing).
func (s *Spread) ranks(server string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, s.Domain+"\x00"+server) // a hash takes all
	return mix(h.Sum64())
}

// mix spreads the last bytes of a hash over all of its bits: the finalizer of SplitMix64 (Steele, Lea, Flood, 2014).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
