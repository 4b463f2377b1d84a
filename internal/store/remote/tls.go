package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

// SystemCA, in place of a file with authorities, means the authorities that the machine trusts.
const SystemCA = "system"

// TLSFiles names the files of a client's certificate and its key, and of the authority that signs the certificates of
// the store, in PEM. Cert and Key may both be empty. CA may be SystemCA.
type TLSFiles struct{ Cert, Key, CA string }

// ReloadingTLS secures connections to a store that runs elsewhere. It reads the files for each connection, so that they
// can be replaced while the program runs. If the files cannot be read, the last good ones stay in use: for a moment one
// file of a pair may be newer than the other. It is safe for concurrent use.
type ReloadingTLS struct {
	files TLSFiles
	log   *slog.Logger

	mu   sync.Mutex
	last *tls.Config // nil before the first success
}

// NewReloadingTLS returns a ReloadingTLS with the files. It reads none yet.
func NewReloadingTLS(files TLSFiles, log *slog.Logger) *ReloadingTLS {
	return &ReloadingTLS{files: files, log: log}
}

// Config returns the configuration for the next connection. A first error is a *DialError.
func (s *ReloadingTLS) Config() (*tls.Config, error) {
	c, err := s.files.config()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.last = c
	case s.last == nil:
		return nil, err
	default:
		s.log.Warn("the files for a secured connection cannot be read; those of before are used", "error", err)
	}
	return s.last, nil
}

// config reads the files.
func (f *TLSFiles) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != SystemCA {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, &DialError{Fault: FaultCA, Err: err}
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, &DialError{Fault: FaultCA, Err: fmt.Errorf("%s holds no certificate in PEM", f.CA)}
		}
	}
	if f.Cert == "" {
		return c, nil
	}
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, &DialError{Fault: FaultCertificate, Err: err}
	}
	if now := time.Now(); now.After(pair.Leaf.NotAfter) || now.Before(pair.Leaf.NotBefore) {
		return nil, &DialError{Fault: FaultCertificate, Err: fmt.Errorf("%s is valid from %s to %s",
			f.Cert, pair.Leaf.NotBefore.UTC().Format(time.RFC3339), pair.Leaf.NotAfter.UTC().Format(time.RFC3339))}
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}

// Handshake secures a connection to an address. It closes the connection if that fails.
func Handshake(ctx context.Context, conn net.Conn, c *tls.Config, address string) (net.Conn, error) {
	c = c.Clone()
	c.ServerName, _, _ = net.SplitHostPort(address)
	secured := tls.Client(conn, c)
	if err := secured.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secured, nil
}
