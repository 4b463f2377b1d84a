package client

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// serverUnit is the organizational unit in the certificates of servers.
const serverUnit = "server"

// TrustCA returns a TLS configuration for Config.TLS. It trusts servers whose certificate leads to one of the
// authorities in PEM form and is one of a server. Host names are not compared, because a server may be reached at any
// of its addresses.
func TrustCA(caPEM []byte) (*tls.Config, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(caPEM) {
		return nil, errors.New("read the authority: no certificate in PEM form")
	}
	return trust(func([]*x509.Certificate) *x509.CertPool { return roots }), nil
}

// PinCA is TrustCA for the one authority whose certificate has this SHA-256, in hex. A join token ends with it, and
// `berth server init` prints it.
func PinCA(hash string) (*tls.Config, error) {
	want, err := hex.DecodeString(strings.TrimSpace(hash))
	if err != nil || len(want) != sha256.Size {
		return nil, fmt.Errorf("hash %q of the authority: want %d hexadecimal digits", hash, 2*sha256.Size)
	}
	return trust(func(sent []*x509.Certificate) *x509.CertPool {
		roots := x509.NewCertPool()
		for _, c := range sent {
			if sum := sha256.Sum256(c.Raw); c.IsCA && slices.Equal(sum[:], want) {
				roots.AddCert(c)
			}
		}
		return roots
	}), nil
}

// trust verifies a server's certificate with the roots that a function makes of the server's certificates.
func trust(roots func(sent []*x509.Certificate) *x509.CertPool) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies all but the name
		VerifyConnection: func(state tls.ConnectionState) error {
			sent := state.PeerCertificates
			between := x509.NewCertPool()
			for _, c := range sent[1:] {
				between.AddCert(c)
			}
			_, err := sent[0].Verify(x509.VerifyOptions{
				Roots: roots(sent), Intermediates: between, CurrentTime: time.Now(),
				KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			})
			if err != nil {
				return fmt.Errorf("verify the server's certificate: %w", err)
			}
			if !slices.Contains(sent[0].Subject.OrganizationalUnit, serverUnit) {
				return fmt.Errorf("verify the server's certificate: it is of %q, not of a server",
					sent[0].Subject.CommonName)
			}
			return nil
		},
	}
}
