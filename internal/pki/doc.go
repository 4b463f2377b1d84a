// Package pki holds the identities of machines: one authority for a control plane and all its nodes, and the
// certificates that it signs.
//
// A certificate names its holder, a Subject: the role, server or node, and the name within it. The first request needs
// a join token; the joining machine then knows only the authority's fingerprint in the token. Later renewals use
// connections that the old certificate secures. A certificate lives ninety days and is renewed at two thirds of that,
// so a machine that is off for less than a month needs no help. A machine that was off for longer joins again.
//
// Each end of a connection checks the chain to the authority and the role of the other end, never its address: machines
// move, and the name in a certificate is not an address. The certificates of servers hold their addresses all the same,
// for programs that check them.
//
// The key of the authority is on every server, readable by its user alone. A holder of the key can impersonate any
// machine.
package pki

import (
	"errors"
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/shorten"
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

// valid returns the fault of a subject.
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
	// backdate lets machines whose clocks are behind by this use a new certificate.
	backdate = time.Hour
)

// ServerHost is a name in the certificates of servers only. Programs that can compare names but not roles compare with
// it, and so accept servers only.
const ServerHost = "server.berth.internal"

// Errors for errors.Is.
var (
	// ErrExpired says that the certificate of this machine has expired. No other machine accepts it any more, so it
	// cannot be renewed either: the machine must join again.
	ErrExpired = errors.New("the certificate of this machine has expired")
	// ErrRequest says that a certificate request is invalid, or requests something that its sender may not have.
	ErrRequest = errors.New("the request for a certificate is refused")
)

// clip shortens text from outside for use in a message.
func clip(s string) string { return shorten.Marked(s, 64) }
