package etcd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/testkit"
)

// fleet is some members in this process, on loopback.
type fleet struct {
	t       *testing.T
	configs []Config
	engines []*Engine // nil while a member is down
	lax     bool      // etcd makes a change of the members immediately, not after they have been in touch for 5 s
}

// newFleet starts n members with votes. tune, unless nil, changes each configuration last.
func newFleet(t *testing.T, n int, tune func(i int, c *Config)) *fleet {
	t.Helper()
	f := &fleet{t: t, lax: true}
	for i := range n {
		f.add(i, tune)
		f.start(i)
		if i > 0 {
			f.promote(i)
		}
	}
	return f
}

// add makes the configuration of the next member.
func (f *fleet) add(i int, tune func(i int, c *Config)) {
	f.t.Helper()
	c := Config{
		Dir: filepath.Join(f.t.TempDir(), "store"), Name: fmt.Sprintf("server-%d", i), PeerURL: "http://" +
			testkit.FreeAddress(f.t),
		Ballast: -1, NoSync: true, Log: slog.New(slog.NewTextHandler(f.t.Output(), nil)).With("server", i),
	}
	if tune != nil {
		tune(i, &c)
	}
	f.configs = append(f.configs, c)
	f.engines = append(f.engines, nil)
	f.t.Cleanup(func() { f.stop(i) })
}

// start starts a member, as a learner if it is not the first and never was started.
func (f *fleet) start(i int) *Engine {
	f.t.Helper()
	c := f.configs[i]
	if _, err := os.Stat(filepath.Join(c.Dir, "member")); err != nil && i > 0 {
		members, err := f.any().AddLearner(f.t.Context(), c.Name, c.PeerURL)
		if err != nil {
			f.t.Fatalf("add member %d: %v", i, err)
		}
		c.Join = members
	}
	engine, err := start(f.t.Context(), c.withDefaults(), func(c *embed.Config) { c.StrictReconfigCheck = !f.lax })
	if err != nil {
		f.t.Fatalf("start member %d: %v", i, err)
	}
	f.engines[i] = engine
	return engine
}

func (f *fleet) promote(i int) {
	f.t.Helper()
	testkit.Eventually(f.t, 20*time.Second, func() error {
		err := f.any().Promote(f.t.Context(), f.engines[i].MemberID())
		switch {
		case errors.Is(err, store.ErrUnavailable): // an election takes longer on a slow machine
			f.t.Logf("promote member %d: %v; trying again", i, err)
		case err != nil && !errors.Is(err, store.ErrNotInSync):
			f.t.Fatalf("promote member %d: %v", i, err)
		}
		return err
	})
}

// any returns a member that is up.
func (f *fleet) any() *Engine {
	for _, e := range f.engines {
		if e != nil {
			return e
		}
	}
	f.t.Fatal("no member is up")
	return nil
}

func (f *fleet) stop(i int) {
	if f.engines[i] == nil {
		return
	}
	if err := f.engines[i].Close(); err != nil {
		f.t.Errorf("close member %d: %v", i, err)
	}
	f.engines[i] = nil
}

// leader returns which member leads the engine.
func (f *fleet) leader() int {
	f.t.Helper()
	found := -1
	testkit.Eventually(f.t, 10*time.Second, func() error {
		for i, e := range f.engines {
			if e == nil {
				continue
			}
			if leader, self, _ := e.EngineLeader(); leader == self {
				found = i
				return nil
			}
		}
		return errors.New("no server leads the engine")
	})
	return found
}

// authority signs certificates for tests.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true,
		BasicConstraintsValid: true,
		NotBefore:             time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageCertSign,
	}
	a.key = a.sign("ca", template, nil)
	return a
}

// issue writes a certificate with a unit and its key, and returns the files.
func (a *authority) issue(name, unit string) *TLSFiles {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<60))
	if err != nil {
		a.t.Fatal(err)
	}
	a.sign(name, &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name, OrganizationalUnit: []string{unit}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.key)
	path := func(end string) string { return filepath.Join(a.dir, name+end) }
	return &TLSFiles{Cert: path(".crt"), Key: path(".key"), CA: filepath.Join(a.dir, "ca.crt")}
}

func (a *authority) sign(name string, template *x509.Certificate, by *ecdsa.PrivateKey) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	parent := a.cert
	if by == nil {
		by, parent = key, template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		a.t.Fatal(err)
	}
	if a.cert == nil {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			a.t.Fatal(err)
		}
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for end, block := range map[string]*pem.Block{
		".crt": {Type: "CERTIFICATE", Bytes: der},
		".key": {Type: "EC PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(filepath.Join(a.dir, name+end), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	return key
}

// seesEventually waits until a member has a record.
func seesEventually(t *testing.T, e *Engine, key string) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() error {
		_, err := e.Read(t.Context(), key)
		return err
	})
}

// shortly is a context for a call that must fail within a time.
func shortly(t *testing.T, limit time.Duration) context.Context {
	ctx, cancel := testkit.WithLimit(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

func urls(address string) []url.URL {
	u, err := url.Parse(address)
	if err != nil {
		panic(err)
	}
	return []url.URL{*u}
}
