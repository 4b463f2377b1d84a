package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// SubjectOf returns the subject of the other end's certificate. It is false for a connection without one, and for a
// chain that was not verified.
func SubjectOf(state *tls.ConnectionState) (Subject, bool) {
	if state == nil || len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) < 2 {
		return Subject{}, false
	}
	s, err := subjectOf(state.VerifiedChains[0][0].Subject)
	if err != nil || s.valid() != nil {
		return Subject{}, false
	}
	return s, true
}

// Pinned returns the configuration of a first contact: the server must show a chain to the authority with this
// fingerprint, and be a server. This machine shows no certificate.
func Pinned(caHash string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: protocols(),
		//nolint:gosec // VerifyConnection checks more than the library does
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			roots := x509.NewCertPool()
			found := false
			for _, c := range state.PeerCertificates {
				if c.IsCA && fingerprint(c) == caHash {
					roots.AddCert(c)
					found = true
				}
			}
			if !found {
				return errors.New("the server does not belong to the authority that the token names")
			}
			return checkServer(state, roots, time.Now())
		},
	}
}

// Trusting returns the configuration of a client without a certificate that knows the authority: people and their
// programs, which send a token instead.
func Trusting(caPEM []byte) (*tls.Config, error) {
	certs, err := certificates(caPEM)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	for _, c := range certs {
		roots.AddCert(c)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: protocols(),
		//nolint:gosec // VerifyConnection checks more than the library does
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			return checkServer(state, roots, time.Now())
		},
	}, nil
}

// protocols are the protocols of both ends, the preferred first.
func protocols() []string { return []string{"h2", "http/1.1"} }

// checkServer verifies that the other end is a server of the authority.
func checkServer(state tls.ConnectionState, roots *x509.CertPool, now time.Time) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the server showed no certificate")
	}
	leaf := state.PeerCertificates[0]
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots:       roots,
		CurrentTime: now,
		KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return fmt.Errorf("the server's certificate: %w", err)
	}
	s, err := subjectOf(leaf.Subject)
	if err != nil {
		return fmt.Errorf("the server's certificate: %w", err)
	}
	if s.Role != cluster.RoleServer {
		return fmt.Errorf("the other end is %s, not a server", s)
	}
	return nil
}

// checkNode verifies that the other end is a node of the authority. Certificates of nodes are for clients: a node
// serves nothing but its own API.
func checkNode(state tls.ConnectionState, roots *x509.CertPool, node string, now time.Time) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the node showed no certificate")
	}
	leaf := state.PeerCertificates[0]
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return fmt.Errorf("the node's certificate: %w", err)
	}
	s, err := subjectOf(leaf.Subject)
	if err != nil {
		return fmt.Errorf("the node's certificate: %w", err)
	}
	if s != (Subject{Role: cluster.RoleNode, Name: node}) {
		return fmt.Errorf("the other end is %s, not the node %s", s, node)
	}
	return nil
}
