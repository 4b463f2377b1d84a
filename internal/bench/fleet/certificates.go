package main

import (
	"crypto/tls"
	"crypto/x509"
	"time"

	"github.com/berthd/berth/internal/pki"
)

// certified returns the configuration of a client with a new certificate of the authority.
func certified(a *pki.Authority, s pki.Subject) (*tls.Config, error) {
	request, key, err := pki.NewRequest(s, []string{"127.0.0.1"})
	if err != nil {
		return nil, err
	}
	cert, err := a.Sign(request, s, []string{"127.0.0.1"}, time.Now())
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	config, err := pki.Trusting(a.CertificatePEM())
	if err != nil {
		return nil, err
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

func roots(a *pki.Authority) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(a.CertificatePEM()) // its own
	return pool
}
