package store

import (
	"iter"

	"github.com/berthd/berth/internal/cluster"
)

// serverTables hold the members of the control plane, the access to it, and the state of domains.
type serverTables struct {
	leaders    table[cluster.Leader]
	servers    table[cluster.Server]
	tokens     table[cluster.AccessToken]
	domains    table[cluster.DomainSettings]
	recoveries table[cluster.Recovery]
}

// Leader returns the record of a domain's leader.
func (s *serverTables) Leader(domain string) (Entry[cluster.Leader], bool) {
	return s.leaders.Get(domain)
}

// Server returns a member of the control plane.
func (s *serverTables) Server(id string) (Entry[cluster.Server], bool) { return s.servers.Get(id) }

// Servers returns all members of the control plane.
func (s *serverTables) Servers() iter.Seq[Entry[cluster.Server]] { return scan(s.servers, "") }

// Token returns the record of a token.
func (s *serverTables) Token(id string) (Entry[cluster.AccessToken], bool) { return s.tokens.Get(id) }

// Tokens returns the records of all tokens.
func (s *serverTables) Tokens() iter.Seq[Entry[cluster.AccessToken]] { return scan(s.tokens, "") }

// Domain returns the operator's settings of a domain.
func (s *serverTables) Domain(name string) (Entry[cluster.DomainSettings], bool) {
	return s.domains.Get(name)
}

// Recovery returns a domain's recovery.
func (s *serverTables) Recovery(domain string) (Entry[cluster.Recovery], bool) {
	return s.recoveries.Get(domain)
}
