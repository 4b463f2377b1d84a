package store

import (
	"iter"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// serverTables hold the members of the control plane, the access to it, and the state of domains.
type serverTables struct {
	leaders    table[cluster.Leader]
	servers    table[cluster.Server]
	tokens     table[cluster.AccessToken]
	domains    table[cluster.Domain]
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

// Leaders returns the records of the leaders of all domains, by domain.
func (s *serverTables) Leaders() iter.Seq2[string, Entry[cluster.Leader]] {
	return func(yield func(string, Entry[cluster.Leader]) bool) { s.leaders.Ascend("", yield) }
}

// Domain returns the record of a domain. The default domain may have none.
func (s *serverTables) Domain(name string) (Entry[cluster.Domain], bool) { return s.domains.Get(name) }

// Domains returns the names of all domains, sorted: those with a record, and the default domain.
func (s *serverTables) Domains() []string {
	names := []string{cluster.DefaultDomain}
	for e := range scan(s.domains, "") {
		if e.Value.Name != cluster.DefaultDomain {
			names = append(names, e.Value.Name)
		}
	}
	slices.Sort(names)
	return names
}

// DomainNumber returns the number of a domain (see cluster.Domain). It returns false if the domain does not exist.
func (s *serverTables) DomainNumber(name string) (uint64, bool) {
	if name == cluster.DefaultDomain {
		return 0, true
	}
	e, ok := s.domains.Get(name)
	if !ok || e.Value.Number == 0 { // a record without a number is of another program
		return 0, false
	}
	return e.Value.Number, true
}

// PoolDomain returns the domain that owns a pool, "" if none does.
func (s *serverTables) PoolDomain(pool string) string {
	if pool == "" {
		return ""
	}
	for e := range scan(s.domains, "") {
		if slices.Contains(e.Value.Pools, pool) {
			return e.Value.Name
		}
	}
	return ""
}

// Recovery returns a domain's recovery.
func (s *serverTables) Recovery(domain string) (Entry[cluster.Recovery], bool) {
	return s.recoveries.Get(domain)
}
