package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berthd/berth/internal/privatefile"
)

// intentFile holds a whole identity while its files are replaced one after the other. So a crash between two of them
// leaves no key without its certificate.
const intentFile = "self.next"

// intent is the content of intentFile.
type intent struct {
	CA   []byte `json:"ca"`
	Cert []byte `json:"cert"`
	Key  []byte `json:"key"`
}

// WriteIdentity makes a certificate with its key the identity of a machine: ca.crt, self.crt and self.key in a folder
// of mode 0700, the key 0600. Each file is replaced atomically, and the next OpenKeeper completes an interrupted
// replacement. Parts that do not match are refused; so is another authority if this folder holds an authority's key. A
// keeper that runs on the folder takes the new identity within minutes.
func WriteIdentity(dir string, caPEM, certPEM, keyPEM []byte) error {
	if _, err := newIdentity(caPEM, certPEM, keyPEM); err != nil {
		return fmt.Errorf("write the identity: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the identity's folder: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a folder is entered
		return fmt.Errorf("make the identity's folder private: %w", err)
	}
	if _, err := os.Stat(filepath.Join(dir, caKeyFile)); err == nil {
		if old, err := os.ReadFile(filepath.Join(dir, caFile)); err != nil || !bytes.Equal(old, caPEM) {
			return fmt.Errorf("write the identity: %s holds the key of another authority", dir)
		}
	}
	text, err := json.Marshal(intent{caPEM, certPEM, keyPEM})
	if err != nil {
		return fmt.Errorf("write the identity: %w", err)
	}
	if err := replace(filepath.Join(dir, intentFile), text, 0o600); err != nil {
		return fmt.Errorf("write the identity: %w", err)
	}
	return finish(dir)
}

// finish does what an intent says, if there is one.
func finish(dir string) error {
	path := filepath.Join(dir, intentFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the next identity: %w", err)
	}
	var next intent
	if err := json.Unmarshal(text, &next); err != nil {
		return fmt.Errorf("read the next identity: %w", err)
	}
	err = replace(filepath.Join(dir, caFile), next.CA, 0o644)
	if err == nil {
		err = replace(filepath.Join(dir, keyFile), next.Key, 0o600)
	}
	if err == nil {
		err = replace(filepath.Join(dir, certFile), next.Cert, 0o644)
	}
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil {
		return fmt.Errorf("write the identity: %w", err)
	}
	return syncFolder(dir)
}

// identity is a machine's certificate with its key and the authority's certificates.
type identity struct {
	subject Subject
	leaf    *x509.Certificate
	key     *ecdsa.PrivateKey
	issuer  *x509.Certificate
	roots   *x509.CertPool
	files   [3][]byte // ca, cert and key, as they were read
}

// newIdentity checks that the three belong together. Whether they are valid now is not asked.
func newIdentity(caPEM, certPEM, keyPEM []byte) (*identity, error) {
	cas, err := certificates(caPEM)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", caFile, err)
	}
	certs, err := certificates(certPEM)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", certFile, err)
	}
	key, err := parseKey(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keyFile, err)
	}
	id := &identity{leaf: certs[0], key: key, roots: x509.NewCertPool(), files: [3][]byte{caPEM, certPEM, keyPEM}}
	if !key.PublicKey.Equal(id.leaf.PublicKey) {
		return nil, fmt.Errorf("%s is not the key of %s", keyFile, certFile)
	}
	id.subject, err = subjectOf(id.leaf.Subject)
	if err == nil {
		err = id.subject.valid()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", certFile, err)
	}
	for _, c := range cas {
		id.roots.AddCert(c)
		if id.leaf.CheckSignatureFrom(c) == nil {
			id.issuer = c
		}
	}
	if id.issuer == nil {
		return nil, fmt.Errorf("%s was not signed by the authority of %s", certFile, caFile)
	}
	return id, nil
}

// readIdentity reads the identity of a folder.
func readIdentity(dir string) (*identity, error) {
	var files [3][]byte
	for i, name := range []string{caFile, certFile, keyFile} {
		path := filepath.Join(dir, name)
		read := os.ReadFile
		if name == keyFile {
			read = privatefile.Read
		}
		text, err := read(path)
		if err != nil {
			return nil, err
		}
		files[i] = text
	}
	return newIdentity(files[0], files[1], files[2])
}

func readKey(path string) (*ecdsa.PrivateKey, error) {
	text, err := privatefile.Read(path)
	if err != nil {
		return nil, err
	}
	return parseKey(text)
}

// parseKey reads a key; its errors hold nothing of it.
func parseKey(text []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, errors.New("read a key: there is none in PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("read a key: it is damaged")
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("read a key: it is not an ECDSA key")
	}
	return key, nil
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return replace(path, encode("PRIVATE KEY", der), 0o600)
}

// replace replaces a file atomically and durably: readers find the old content or the new one.
func replace(path string, content []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncFolder(filepath.Dir(path))
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
