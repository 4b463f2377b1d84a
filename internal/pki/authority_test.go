package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

var noon = time.Date(2030, 5, 1, 12, 0, 0, 0, time.UTC)

// authority makes an authority in a folder of the test.
func authority(t *testing.T, now time.Time) (*Authority, string) {
	t.Helper()
	dir := t.TempDir()
	if err := CreateAuthority(dir, now); err != nil {
		t.Fatal(err)
	}
	a, err := OpenAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	return a, dir
}

// member makes the identity of a machine in a folder of the test.
func member(t *testing.T, a *Authority, s Subject, now time.Time, hosts ...string) string {
	t.Helper()
	dir := t.TempDir()
	issue(t, a, dir, s, now, hosts...)
	return dir
}

func issue(t *testing.T, a *Authority, dir string, s Subject, now time.Time, hosts ...string) {
	t.Helper()
	csr, key, err := NewRequest(s, hosts)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := a.Sign(csr, s, hosts, now)
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteIdentity(dir, a.CertificatePEM(), cert, key); err != nil {
		t.Fatal(err)
	}
}

func leafOf(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	certs, err := certificates(text)
	if err != nil {
		t.Fatal(err)
	}
	return certs[0]
}

func TestAuthorityIsKept(t *testing.T) {
	a, dir := authority(t, noon)
	if err := CreateAuthority(dir, noon.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	again, err := OpenAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.CertificatePEM(), again.CertificatePEM()) || !bytes.Equal(a.KeyPEM(), again.KeyPEM()) {
		t.Error("a second creation made another authority")
	}
	info, err := os.Stat(filepath.Join(dir, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o600 {
		t.Errorf("ca.key has the mode %o, want 600", got)
	}
	ca := leafOf(t, a.CertificatePEM())
	if got := ca.NotAfter.Sub(noon); got != AuthorityLife {
		t.Errorf("the authority lives %v, want %v", got, AuthorityLife)
	}
	if key, ok := ca.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() || !ca.IsCA ||
		!ca.MaxPathLenZero {
		t.Errorf("the authority's certificate: %T, CA %v, path length zero %v", ca.PublicKey, ca.IsCA,
			ca.MaxPathLenZero)
	}
	sum, err := Fingerprint(a.CertificatePEM())
	if err != nil || sum != fingerprint(ca) || len(sum) != 64 {
		t.Errorf("fingerprint %q, %v", sum, err)
	}
}

func TestAuthorityWithoutKey(t *testing.T) {
	_, dir := authority(t, noon)
	key := filepath.Join(dir, "ca.key")
	if err := os.Chmod(key, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenAuthority(dir); err == nil || errors.Is(err, fs.ErrNotExist) ||
		!strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that others may read: %v", err)
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenAuthority(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open without a key: %v, want fs.ErrNotExist", err)
	}
	if err := CreateAuthority(dir, noon); err == nil {
		t.Error("an authority was made over the certificate of another")
	}
}

// TestAuthorityAfterACrash finds the key written and the certificate not.
func TestAuthorityAfterACrash(t *testing.T) {
	a, dir := authority(t, noon)
	if err := os.Remove(filepath.Join(dir, "ca.crt")); err != nil {
		t.Fatal(err)
	}
	if err := CreateAuthority(dir, noon); err != nil {
		t.Fatal(err)
	}
	again, err := OpenAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.KeyPEM(), again.KeyPEM()) {
		t.Error("the key was made again")
	}
}

func TestAuthorityIsHandedOver(t *testing.T) {
	a, _ := authority(t, noon)
	dir := filepath.Join(t.TempDir(), "pki")
	for range 2 { // a join may be tried again
		if err := WriteAuthority(dir, a.CertificatePEM(), a.KeyPEM()); err != nil {
			t.Fatal(err)
		}
	}
	b, err := OpenAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.KeyPEM(), b.KeyPEM()) {
		t.Error("another key was written")
	}
	other, _ := authority(t, noon)
	if err := WriteAuthority(dir, other.CertificatePEM(), other.KeyPEM()); err == nil {
		t.Error("another authority was written over this one")
	}
	if err := WriteAuthority(t.TempDir(), other.CertificatePEM(), a.KeyPEM()); err == nil {
		t.Error("a key was written with the certificate of another")
	}
	issue(t, b, dir, Subject{cluster.RoleServer, "s2"}, noon)
	csr, key, err := NewRequest(Subject{cluster.RoleServer, "s2"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := other.Sign(csr, Subject{cluster.RoleServer, "s2"}, nil, noon)
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteIdentity(dir, other.CertificatePEM(), cert, key); err == nil {
		t.Error("an identity of another authority was written beside this one's key")
	}
}

func TestCertificateOfAServer(t *testing.T) {
	a, _ := authority(t, noon)
	s := Subject{cluster.RoleServer, "5f0c1f4e-6f6e-4f7a-9d38-1f60a9a1d0aa"}
	csr, _, err := NewRequest(s, []string{"10.0.0.1", "a.example", "10.0.0.1", "[::1]"})
	if err != nil {
		t.Fatal(err)
	}
	got, hosts, err := ReadRequest(csr)
	if err != nil || got != s || !slices.Equal(hosts, []string{"a.example", "10.0.0.1", "::1"}) {
		t.Fatalf("the request contains %v at %v: %v", got, hosts, err)
	}
	text, err := a.Sign(csr, s, hosts, noon)
	if err != nil {
		t.Fatal(err)
	}
	c := leafOf(t, text)
	if c.Subject.CommonName != s.Name || !slices.Equal(c.Subject.OrganizationalUnit, []string{"server"}) {
		t.Errorf("the subject is %v", c.Subject)
	}
	for _, host := range []string{"10.0.0.1", "a.example", "::1", ServerHost} {
		if err := c.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	if got := c.NotAfter.Sub(noon); got != LeafLife {
		t.Errorf("it lives %v, want %v", got, LeafLife)
	}
	if c.IsCA || c.NotBefore.After(noon.Add(-time.Minute)) {
		t.Errorf("CA %v, not before %v", c.IsCA, c.NotBefore)
	}
}

// TestCertificateOfANode requests more than a node may have.
func TestCertificateOfANode(t *testing.T) {
	a, _ := authority(t, noon)
	s := Subject{cluster.RoleNode, "n1"}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: name(s), DNSNames: []string{ServerHost, "10.0.0.1"},
		// CA: true
		ExtraExtensions: []pkix.Extension{
			{Id: []int{2, 5, 29, 19}, Critical: true, Value: []byte{0x30, 3, 1, 1, 0xff}},
		},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := a.Sign(encode("CERTIFICATE REQUEST", der), s, []string{ServerHost}, noon)
	if err != nil {
		t.Fatal(err)
	}
	c := leafOf(t, text)
	if c.IsCA || len(c.DNSNames) != 0 || len(c.IPAddresses) != 0 ||
		slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth) {
		t.Errorf("a node got CA %v, names %v, uses %v", c.IsCA, c.DNSNames, c.ExtKeyUsage)
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	a, _ := authority(t, noon)
	node := Subject{cluster.RoleNode, "n1"}
	good, _, err := NewRequest(node, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw := func(n pkix.Name) []byte {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: n}, key)
		if err != nil {
			t.Fatal(err)
		}
		return encode("CERTIFICATE REQUEST", der)
	}
	weak, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ofRSA, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: name(node)}, weak)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(good)
	forged := bytes.Clone(block.Bytes)
	forged[len(forged)-1] ^= 1
	tests := []struct {
		name string
		csr  []byte
		s    Subject
	}{
		{"another name", good, Subject{cluster.RoleNode, "n2"}},
		{"another role", good, Subject{cluster.RoleServer, "n1"}},
		{"a role of people in the request", raw(name(Subject{cluster.RoleAdmin, "n1"})), node},
		{"a role of people", raw(name(Subject{cluster.RoleAdmin, "n1"})), Subject{cluster.RoleAdmin, "n1"}},
		{"two roles", raw(pkix.Name{CommonName: "n1", OrganizationalUnit: []string{"node", "server"}}), node},
		{"no role", raw(pkix.Name{CommonName: "n1"}), node},
		{"a name that is none", raw(name(Subject{cluster.RoleNode, "../n1"})), Subject{cluster.RoleNode, "../n1"}},
		{"an RSA key", encode("CERTIFICATE REQUEST", ofRSA), node},
		{"a signature that does not hold", encode("CERTIFICATE REQUEST", forged), node},
		{"a certificate", a.CertificatePEM(), node},
		{"two requests", append(bytes.Clone(good), good...), node},
		{"nothing", nil, node},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if cert, err := a.Sign(test.csr, test.s, nil, noon); !errors.Is(err, ErrRequest) || cert != nil {
				t.Errorf("signed %d bytes, error %v; want ErrRequest", len(cert), err)
			}
		})
	}
}

func TestAuthorityAtItsEnd(t *testing.T) {
	a, _ := authority(t, noon)
	s := Subject{cluster.RoleNode, "n1"}
	csr, _, err := NewRequest(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	end := noon.Add(AuthorityLife)
	text, err := a.Sign(csr, s, nil, end.Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if c := leafOf(t, text); c.NotAfter.After(end) {
		t.Errorf("a certificate ends at %v, after its authority at %v", c.NotAfter, end)
	}
	if _, err := a.Sign(csr, s, nil, end); err == nil {
		t.Error("an authority signed after its end")
	}
}
