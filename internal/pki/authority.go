package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/privatefile"
)

// Names of the files in the folder of a machine's identity.
const (
	caFile    = "ca.crt"
	caKeyFile = "ca.key"
	certFile  = "self.crt"
	keyFile   = "self.key"
)

// Authority signs certificates. Its methods may be called concurrently.
type Authority struct {
	// Life, unless 0, is the lifetime of the signed certificates, instead of LeafLife. It is set before the first use.
	Life time.Duration

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte // of the certificate
}

// CreateAuthority makes an authority in a folder: ca.crt and, readable by this user only, ca.key. An existing authority
// is kept. A folder with a ca.crt and no ca.key belongs to a machine of another authority, and is refused.
func CreateAuthority(dir string, now time.Time) error {
	_, err := OpenAuthority(dir)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the authority's folder: %w", err)
	}
	key, err := readKey(filepath.Join(dir, caKeyFile))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(dir, caFile)); err == nil {
			return fmt.Errorf("%s holds %s without %s: this machine belongs to an authority whose key is elsewhere",
				dir, caFile, caKeyFile)
		}
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err == nil {
			err = writeKey(filepath.Join(dir, caKeyFile), key)
		}
	}
	// A key without its certificate is left by a crash between the two.
	if err != nil {
		return fmt.Errorf("make the authority's key: %w", err)
	}
	der, err := selfSigned(key, now)
	if err != nil {
		return fmt.Errorf("make the authority's certificate: %w", err)
	}
	if err := replace(filepath.Join(dir, caFile), encode("CERTIFICATE", der), 0o644); err != nil {
		return fmt.Errorf("write the authority's certificate: %w", err)
	}
	return nil
}

// WriteAuthority writes an authority that another server sent, with the modes of CreateAuthority. It does not replace
// another authority in the folder.
func WriteAuthority(dir string, caPEM, keyPEM []byte) error {
	if _, err := newAuthority(caPEM, keyPEM); err != nil {
		return fmt.Errorf("write the authority: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the authority's folder: %w", err)
	}
	if old, err := os.ReadFile(filepath.Join(dir, caFile)); err == nil && !bytes.Equal(old, caPEM) {
		return fmt.Errorf("%s holds another authority's certificate: remove the folder, if this machine is "+
			"to leave that authority", dir)
	}
	if err := replace(filepath.Join(dir, caKeyFile), keyPEM, 0o600); err != nil {
		return fmt.Errorf("write the authority's key: %w", err)
	}
	if err := replace(filepath.Join(dir, caFile), caPEM, 0o644); err != nil {
		return fmt.Errorf("write the authority's certificate: %w", err)
	}
	return nil
}

// OpenAuthority reads the authority of a folder. The error wraps fs.ErrNotExist where its certificate or its key is
// missing: this machine cannot sign. A key that others may read is refused.
func OpenAuthority(dir string) (*Authority, error) {
	path := filepath.Join(dir, caKeyFile)
	keyPEM, err := privatefile.Read(path)
	if err != nil {
		return nil, fmt.Errorf("open the authority: %w", err)
	}
	caPEM, err := os.ReadFile(filepath.Join(dir, caFile))
	if err != nil {
		return nil, fmt.Errorf("open the authority: %w", err)
	}
	a, err := newAuthority(caPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("open the authority: %w", err)
	}
	return a, nil
}

func newAuthority(caPEM, keyPEM []byte) (*Authority, error) {
	certs, err := certificates(caPEM)
	if err != nil {
		return nil, err
	}
	key, err := parseKey(keyPEM)
	if err != nil {
		return nil, err
	}
	if !key.PublicKey.Equal(certs[0].PublicKey) || !certs[0].IsCA {
		return nil, errors.New("the authority's key and certificate do not belong together")
	}
	return &Authority{cert: certs[0], key: key, pem: bytes.Clone(caPEM)}, nil
}

// CertificatePEM returns the authority's certificate, which everybody may know.
func (a *Authority) CertificatePEM() []byte { return bytes.Clone(a.pem) }

// KeyPEM returns the authority's key. It must be sent to joining servers only, over a secured connection.
func (a *Authority) KeyPEM() []byte {
	der, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		panic(err) // a P-256 key can always be written
	}
	return encode("PRIVATE KEY", der)
}

// Sign answers a certificate request of s. The request must be signed with its own key and contain just this subject.
// An error wraps ErrRequest if the request is at fault. hosts are the addresses and names of a server; a node's
// certificate holds none. Everything else in the request is ignored.
func (a *Authority) Sign(csrPEM []byte, s Subject, hosts []string, now time.Time) ([]byte, error) {
	req, err := parseRequest(csrPEM)
	if err != nil {
		return nil, err
	}
	asked, err := subjectOf(req.Subject)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if err := s.valid(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if asked != s {
		return nil, fmt.Errorf("%w: it requests a certificate of %s, and may have one of %s", ErrRequest, asked, s)
	}
	if !now.Before(a.cert.NotAfter) {
		return nil, fmt.Errorf("sign a certificate: the authority itself expired at %s",
			a.cert.NotAfter.Format(time.RFC3339))
	}
	life := a.Life
	if life == 0 {
		life = LeafLife
	}
	template := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      name(s),
		NotBefore:    now.Add(-min(backdate, life/10)),
		NotAfter:     earlier(now.Add(life), a.cert.NotAfter),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if s.Role == cluster.RoleServer {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		template.DNSNames, template.IPAddresses = splitHosts(append([]string{ServerHost}, hosts...))
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, req.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate: %w", err)
	}
	return encode("CERTIFICATE", der), nil
}

// Fingerprint returns the SHA-256 of an authority's certificate, in hex, as join tokens hold it.
func Fingerprint(caPEM []byte) (string, error) {
	certs, err := certificates(caPEM)
	if err != nil {
		return "", err
	}
	return fingerprint(certs[0]), nil
}

func fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

func selfSigned(key *ecdsa.PrivateKey, now time.Time) ([]byte, error) {
	number := serial()
	template := &x509.Certificate{
		SerialNumber: number,
		// The number distinguishes the authorities of two control planes for people who hold both.
		Subject:               pkix.Name{CommonName: "Berth authority " + number.Text(16)[:8]},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(AuthorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	return x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
}

// serial returns a random number of 127 bits, its first digits not 0.
func serial() *big.Int {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	b[0] = b[0]&0x7f | 0x40
	return new(big.Int).SetBytes(b)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
