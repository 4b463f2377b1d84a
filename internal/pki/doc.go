// Package pki is what machines know each other by: one authority for a control plane and all its nodes, and the
// certificates that it signs.
//
// A certificate says who its holder is, a Subject: the role, server or node, and the name within it. It is
// asked for with a join token on the first contact, when the joining machine knows no more of the authority than the
// token's fingerprint of it, and from then on renewed over connections that the old one secures. Its life is short,
// ninety days, and renewal comes at two thirds of it, so that a machine that is off for less than a month
// needs nobody. One that was off for longer joins again.
//
// Each end of a connection checks the chain to the authority and the role of the other end, never its address: machines
// move, and the name in a certificate is not where it is reached. The addresses stand in the certificates of servers
// all the same, for programs that look for them.
//
// The key of the authority stands on every server, readable by its user alone. Whoever has it can be anybody.
package pki

import (
	"errors"
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Subject is whom a certificate speaks of.
type Subject struct {
	// Role is cluster.RoleNode or cluster.RoleServer; people hold tokens, not certificates.
	Role cluster.Role
	// Name is the node's name, or the server's id.
	Name string
}

// String returns "<role> <name>".
func (s Subject) String() string { return string(s.Role) + " " + s.Name }

// valid returns what is wrong with a subject.
func (s Subject) valid() error {
	if s.Role != cluster.RoleNode && s.Role != cluster.RoleServer {
		return fmt.Errorf("certificates are for the roles %q and %q, not %q", cluster.RoleNode, cluster.RoleServer,
			clip(string(s.Role)))
	}
	if !cluster.ValidNodeName(s.Name) {
		return fmt.Errorf("%q cannot be a name in a certificate: want a host name in lower case, or an id",
			clip(s.Name))
	}
	return nil
}

// Lives and times.
const (
	// AuthorityLife is the life of an authority, from its making.
	AuthorityLife = 10 * 365 * 24 * time.Hour
	// LeafLife is the life of a certificate that it signs.
	LeafLife = 90 * 24 * time.Hour
	// backdate lets machines use a certificate at once whose clocks are behind by this.
	backdate = time.Hour
)

// ServerHost is a name that stands in the certificates of servers, and in no other: what can only compare names, not
// roles, compares with it and so takes servers alone.
const ServerHost = "server.berth.internal"

// Errors that callers tell apart, with errors.Is.
var (
	// ErrExpired says that the certificate of this machine has ended. No other machine takes it any more, so it cannot
	// be renewed either: the machine joins again.
	ErrExpired = errors.New("the certificate of this machine has expired")
	// ErrRequest says that a request for a certificate is not one, or asks for what it may not have.
	ErrRequest = errors.New("the request for a certificate is refused")
)

// clip shortens text from outside for use in a message.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
