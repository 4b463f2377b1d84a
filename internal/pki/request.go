package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// maxHosts bounds the addresses in one certificate.
const maxHosts = 64

// NewRequest makes a key and a request for a certificate of s. Hosts are the IP addresses and names at which a server
// answers.
func NewRequest(s Subject, hosts []string) (csrPEM, keyPEM []byte, err error) {
	if err := s.valid(); err != nil {
		return nil, nil, fmt.Errorf("request a certificate: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	template := &x509.CertificateRequest{Subject: name(s)}
	template.DNSNames, template.IPAddresses = splitHosts(hosts)
	csr, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return nil, nil, fmt.Errorf("request a certificate: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("write a key: %w", err)
	}
	return encode("CERTIFICATE REQUEST", csr), encode("PRIVATE KEY", der), nil
}

// ReadRequest returns the subject of a request and the hosts that it names, once it has proved to hold its key. An
// error wraps ErrRequest.
func ReadRequest(csrPEM []byte) (Subject, []string, error) {
	req, err := parseRequest(csrPEM)
	if err != nil {
		return Subject{}, nil, err
	}
	s, err := subjectOf(req.Subject)
	if err == nil {
		err = s.valid()
	}
	if err != nil {
		return Subject{}, nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	hosts := hostsOf(req.DNSNames, req.IPAddresses)
	if len(hosts) > maxHosts {
		return Subject{}, nil, fmt.Errorf("%w: it names %d hosts, at most %d are allowed", ErrRequest, len(hosts),
			maxHosts)
	}
	return s, hosts, nil
}

// RequestKey returns the public key of a request, in a comparable form. An error wraps ErrRequest.
func RequestKey(csrPEM []byte) (string, error) {
	req, err := parseRequest(csrPEM)
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(req.RawSubjectPublicKeyInfo), nil
}

// parseRequest reads a request and checks that it was signed with its own key, of a kind that Berth makes.
func parseRequest(csrPEM []byte) (*x509.CertificateRequest, error) {
	block, rest := pem.Decode(csrPEM)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(strings.TrimSpace(string(rest))) > 0 {
		return nil, fmt.Errorf("%w: it is not one request in PEM", ErrRequest)
	}
	req, err := x509.ParseCertificateRequest(block.Bytes)
	if err == nil {
		err = req.CheckSignature()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if key, ok := req.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("%w: its key is not an ECDSA key on P-256", ErrRequest)
	}
	return req, nil
}

// name writes a subject as the name in a certificate: CN is its name, OU its role.
func name(s Subject) pkix.Name {
	return pkix.Name{CommonName: s.Name, OrganizationalUnit: []string{string(s.Role)}}
}

// subjectOf reads what name wrote.
func subjectOf(n pkix.Name) (Subject, error) {
	if len(n.OrganizationalUnit) != 1 {
		return Subject{}, fmt.Errorf("its name has %d units (OU), want one: the role", len(n.OrganizationalUnit))
	}
	return Subject{Role: cluster.Role(n.OrganizationalUnit[0]), Name: n.CommonName}, nil
}

// splitHosts sorts hosts into names and IP addresses, each once.
func splitHosts(hosts []string) (names []string, ips []net.IP) {
	for i, h := range hosts {
		if h == "" || slices.Contains(hosts[:i], h) {
			continue
		}
		if ip := net.ParseIP(strings.Trim(h, "[]")); ip != nil {
			ips = append(ips, ip)
		} else {
			names = append(names, h)
		}
	}
	return names, ips
}

// hostsOf is the reverse of splitHosts, without ServerHost, which no request names.
func hostsOf(names []string, ips []net.IP) []string {
	var hosts []string
	for _, n := range names {
		if n != ServerHost {
			hosts = append(hosts, n)
		}
	}
	for _, ip := range ips {
		hosts = append(hosts, ip.String())
	}
	return hosts
}

// certificates reads one or more certificates.
func certificates(text []byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for rest := text; ; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read a certificate: %w", err)
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, errors.New("read a certificate: there is none in the text")
	}
	return all, nil
}
