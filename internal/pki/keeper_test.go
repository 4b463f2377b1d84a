package pki

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

var (
	nodeOne   = Subject{cluster.RoleNode, "n1"}
	serverOne = Subject{cluster.RoleServer, "s1"}
)

// wall is a wall clock that can be set, in a bubble.
type wall struct{ off atomic.Int64 }

func (w *wall) now() time.Time       { return time.Now().Add(time.Duration(w.off.Load())) }
func (w *wall) jump(d time.Duration) { w.off.Add(int64(d)) }

// run runs a keeper until the test ends.
func run(t *testing.T, k *Keeper) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
}

func open(t *testing.T, cfg KeeperConfig) *Keeper {
	t.Helper()
	k, err := OpenKeeper(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// after lets time pass in a bubble, and due actions happen.
func after(d time.Duration) {
	time.Sleep(d) // in-bubble: virtual time
	synctest.Wait()
}

func TestRenewedAtTwoThirds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		a, _ := authority(t, now)
		server := open(t, KeeperConfig{Dir: member(t, a, serverOne, now, "10.0.0.1")})
		var calls atomic.Int64
		dir := member(t, a, nodeOne, now)
		node := open(t, KeeperConfig{Dir: dir, Renew: func(_ context.Context, csr []byte) ([]byte, error) {
			calls.Add(1)
			return a.Sign(csr, nodeOne, nil, time.Now())
		}})
		first, firstKey := node.current.Load().leaf.SerialNumber, node.current.Load().files[2]
		client := node.ClientTLS() // made before the renewal
		run(t, node)
		life := LeafLife + backdate
		after(life*2/3 - backdate - time.Minute)
		if calls.Load() != 0 {
			t.Fatalf("renewed %d times before two thirds of its life", calls.Load())
		}
		after(life/10 + 2*time.Minute)
		if calls.Load() != 1 || time.Until(node.Expires()) < LeafLife*9/10-time.Hour {
			t.Fatalf("renewed %d times, now valid until %v", calls.Load(), node.Expires())
		}
		// The server's has a month left; both are used by connections from now on.
		m := connect(client, server.ServerTLS())
		if m.client != nil || m.server != nil {
			t.Fatal(m.client, m.server)
		}
		if got := m.seen.PeerCertificates[0].SerialNumber; got.Cmp(first) == 0 {
			t.Error("a new connection shows the old certificate")
		}
		if bytes.Equal(node.current.Load().files[2], firstKey) {
			t.Error("the key is the old one")
		}
		cert, key, ca := node.Files()
		if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
			t.Errorf("the files do not belong together: %v", err)
		}
		if text, err := os.ReadFile(ca); err != nil || !bytes.Equal(text, a.CertificatePEM()) {
			t.Errorf("the authority's certificate changed: %v", err)
		}
		for name, want := range map[string]os.FileMode{
			"self.key": 0o600, "self.crt": 0o644, "ca.crt": 0o644,
			".": 0o700,
		} {
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil || info.Mode().Perm() != want {
				t.Errorf("%s: mode %v, want %v, %v", name, info.Mode().Perm(), want, err)
			}
		}
		if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) != 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
		// A year later it has been renewed automatically, about every 62 days.
		after(365 * 24 * time.Hour)
		if n := calls.Load(); n < 5 || n > 8 || node.Health() != nil {
			t.Errorf("renewed %d times in a year, health %v", n, node.Health())
		}
	})
}

// TestRenewalsAreSpread counts on which days machines renew that joined together.
func TestRenewalsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		a, _ := authority(t, now)
		var mu sync.Mutex
		days := map[int]int{}
		for i := range 15 {
			s := Subject{cluster.RoleNode, fmt.Sprintf("n%d", i)}
			run(t, open(t, KeeperConfig{
				Dir: member(t, a, s, now),
				Renew: func(_ context.Context, csr []byte) ([]byte, error) {
					mu.Lock()
					defer mu.Unlock()
					days[int(time.Since(now).Hours()/24)]++
					return a.Sign(csr, s, nil, time.Now())
				},
			}))
		}
		after(70 * 24 * time.Hour)
		mu.Lock()
		defer mu.Unlock()
		all, most := 0, 0
		for _, n := range days {
			all, most = all+n, max(most, n)
		}
		if all != 15 || most > 9 || len(days) < 3 {
			t.Errorf("%d renewals on %d days, at most %d a day", all, len(days), most)
		}
	})
}

func TestRenewalIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		a, _ := authority(t, now)
		var mu sync.Mutex
		var tries []time.Time
		var works atomic.Bool
		k := open(t, KeeperConfig{
			Dir: member(t, a, nodeOne, now),
			Renew: func(_ context.Context, csr []byte) ([]byte, error) {
				mu.Lock()
				defer mu.Unlock()
				tries = append(tries, time.Now())
				if !works.Load() {
					return nil, errors.New("no server answers")
				}
				return a.Sign(csr, nodeOne, nil, time.Now())
			},
		})
		run(t, k)
		after(70 * 24 * time.Hour)
		mu.Lock()
		// The renewal is due at a random moment of nine days. Its tries are at most retryMost+lookEvery apart, and at
		// least half of retryMost after the first twelve.
		since := time.Since(tries[0])
		if n := len(tries); n < int(since/(retryMost+checkInterval)) || n > 13+int(since/(retryMost/2)) {
			t.Errorf("%d tries in the %v after it was due", n, since)
		}
		if gap := tries[1].Sub(tries[0]); gap > time.Minute {
			t.Errorf("the second try came after %v", gap)
		}
		last := len(tries) - 1
		if gap := tries[last].Sub(tries[last-1]); gap < 20*time.Minute || gap > retryMost+checkInterval {
			t.Errorf("the last two tries are %v apart", gap)
		}
		if err := k.Health(); err == nil || errors.Is(err, ErrExpired) {
			t.Errorf("health %v, want why it is not renewed", err)
		}
		mu.Unlock()
		works.Store(true)
		after(retryMost + retryInterval)
		mu.Lock()
		defer mu.Unlock()
		if err := k.Health(); err != nil || len(tries) != last+2 {
			t.Errorf("health %v after %d tries more", err, len(tries)-last-1)
		}
	})
}

func TestRenewalIsChecked(t *testing.T) {
	now := time.Now()
	ours, _ := authority(t, now)
	theirs, _ := authority(t, now)
	other := Subject{cluster.RoleNode, "n2"}
	tests := map[string]func(csr []byte) ([]byte, error){
		"of another authority": func(csr []byte) ([]byte, error) { return theirs.Sign(csr, nodeOne, nil, now) },
		"expired": func(csr []byte) ([]byte, error) {
			return ours.Sign(csr, nodeOne, nil, now.Add(-LeafLife-time.Hour))
		},
		"with another key": func([]byte) ([]byte, error) {
			csr, _, err := NewRequest(nodeOne, nil)
			return errOr(csr, err, func(csr []byte) ([]byte, error) { return ours.Sign(csr, nodeOne, nil, now) })
		},
		"of another machine": func(csr []byte) ([]byte, error) {
			req, err := parseRequest(csr)
			if err != nil {
				return nil, err
			}
			template := &x509.Certificate{
				SerialNumber: serial(), Subject: name(other), NotBefore: now,
				NotAfter: now.Add(LeafLife),
			}
			der, err := x509.CreateCertificate(rand.Reader, template, ours.cert, req.PublicKey, ours.key)
			return encode("CERTIFICATE", der), err
		},
		"nothing": func([]byte) ([]byte, error) { return nil, nil },
	}
	for title, renew := range tests {
		t.Run(title, func(t *testing.T) {
			dir := member(t, ours, nodeOne, now)
			k := open(t, KeeperConfig{Dir: dir, Renew: func(_ context.Context, csr []byte) ([]byte, error) {
				return renew(csr)
			}})
			before := k.current.Load()
			if err := k.renew(t.Context(), before); err == nil {
				t.Error("it was taken")
			}
			id, err := readIdentity(dir)
			if err != nil || !bytes.Equal(id.files[1], before.files[1]) || k.current.Load() != before {
				t.Errorf("what stood before is gone: %v", err)
			}
		})
	}
}

func errOr(csr []byte, err error, sign func([]byte) ([]byte, error)) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return sign(csr)
}

// TestClockJumps sets the clock past the end of the certificate and back, and before its beginning.
func TestClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		a, _ := authority(t, now)
		clock := new(wall)
		var tries atomic.Int64
		k := open(t, KeeperConfig{
			Dir: member(t, a, nodeOne, now), Now: clock.now,
			Renew: func(_ context.Context, csr []byte) ([]byte, error) {
				tries.Add(1)
				return a.Sign(csr, nodeOne, nil, time.Now()) // the server's clock is right
			},
		})
		run(t, k)
		clock.jump(-24 * time.Hour)
		after(checkInterval)
		if err := k.Health(); err == nil || errors.Is(err, ErrExpired) || tries.Load() != 0 {
			t.Errorf("clock a day back: health %v, %d tries", err, tries.Load())
		}
		clock.jump(24 * time.Hour)
		after(checkInterval)
		if err := k.Health(); err != nil || tries.Load() != 0 {
			t.Errorf("clock right again: health %v, %d tries", err, tries.Load())
		}
		// A year ahead the certificate is over by this clock, and so is each new one.
		clock.jump(365 * 24 * time.Hour)
		after(checkInterval)
		if err := k.Health(); !errors.Is(err, ErrExpired) || tries.Load() == 0 {
			t.Errorf("clock a year ahead: health %v, %d tries", err, tries.Load())
		}
		after(24 * time.Hour)
		if n := tries.Load(); n > 60 {
			t.Errorf("%d tries in a day", n)
		}
		clock.jump(-365 * 24 * time.Hour)
		after(checkInterval)
		if err := k.Health(); err != nil {
			t.Errorf("clock right again: %v", err)
		}
		// Once it is due by the correct clock it is renewed, in spite of attempts at the wrong time.
		before := k.Expires()
		after(70 * 24 * time.Hour)
		if !k.Expires().After(before) || k.Health() != nil {
			t.Errorf("not renewed: expires %v, health %v", k.Expires(), k.Health())
		}
	})
}

// TestExpiredWhileOff starts a machine again after half a year, and lets it join again while it runs.
func TestExpiredWhileOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := authority(t, time.Now())
		dir := member(t, a, nodeOne, time.Now())
		after(180 * 24 * time.Hour)
		refused := errors.New("tls: expired certificate")
		k := open(t, KeeperConfig{Dir: dir, Renew: func(context.Context, []byte) ([]byte, error) {
			return nil, refused
		}})
		if err := k.Health(); !errors.Is(err, ErrExpired) ||
			!bytes.Contains([]byte(err.Error()), []byte("berth token create --join --role node")) {
			t.Errorf("health %v, want ErrExpired and the way out", err)
		}
		run(t, k)
		after(time.Hour)
		issue(t, a, dir, nodeOne, time.Now())
		after(checkInterval)
		if err := k.Health(); err != nil || k.Expires().Before(time.Now()) {
			t.Errorf("after joining again: %v, expires %v", err, k.Expires())
		}
	})
}

// TestServerRenewsByItself has the authority at hand, so that not even an expired certificate stops it; and its
// addresses changed.
func TestServerRenewsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := authority(t, time.Now())
		dir := member(t, a, serverOne, time.Now(), "10.0.0.1")
		after(180 * 24 * time.Hour)
		k := open(t, KeeperConfig{
			Dir: dir, Hosts: []string{"10.0.0.2"},
			Renew: func(_ context.Context, csr []byte) ([]byte, error) {
				s, hosts, err := ReadRequest(csr)
				if err != nil {
					return nil, err
				}
				return a.Sign(csr, s, hosts, time.Now())
			},
		})
		run(t, k)
		after(time.Second)
		if err := k.Health(); err != nil {
			t.Error(err)
		}
		if got := k.Hosts(); len(got) != 1 || got[0] != "10.0.0.2" {
			t.Errorf("the certificate contains %v", got)
		}
		renewed := k.Expires()
		after(24 * time.Hour)
		if !k.Expires().Equal(renewed) {
			t.Error("renewed again although nothing changed")
		}
	})
}

// TestIdentityAfterACrash stops the replacing of the files after each of its steps.
func TestIdentityAfterACrash(t *testing.T) {
	now := time.Now()
	a, _ := authority(t, now)
	csr, key, err := NewRequest(nodeOne, nil)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := a.Sign(csr, nodeOne, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	next := map[string][]byte{"ca.crt": a.CertificatePEM(), "self.key": key, "self.crt": cert}
	for done := range 4 {
		dir := member(t, a, nodeOne, now)
		text, err := json.Marshal(intent{a.CertificatePEM(), cert, key})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, intentFile), text, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"ca.crt", "self.key", "self.crt"}[:done] {
			if err := os.WriteFile(filepath.Join(dir, name), next[name], 0o600); err != nil {
				t.Fatal(err)
			}
		}
		k := open(t, KeeperConfig{Dir: dir})
		if got := k.current.Load().files[1]; !bytes.Equal(got, cert) {
			t.Errorf("after %d steps: not the new certificate", done)
		}
		if _, err := os.Stat(filepath.Join(dir, intentFile)); err == nil {
			t.Errorf("after %d steps: the intent is left", done)
		}
	}
}

func TestIdentityThatIsRefused(t *testing.T) {
	now := time.Now()
	a, _ := authority(t, now)
	b, _ := authority(t, now)
	csr, key, err := NewRequest(nodeOne, nil)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := a.Sign(csr, nodeOne, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	_, otherKey, err := NewRequest(nodeOne, nil)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string][3][]byte{
		"another authority": {b.CertificatePEM(), cert, key},
		"another key":       {a.CertificatePEM(), cert, otherKey},
		"no certificate":    {a.CertificatePEM(), nil, key},
		"no key":            {a.CertificatePEM(), cert, nil},
		"a key as PEM text": {
			a.CertificatePEM(), cert,
			[]byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
		},
	}
	for name, files := range tests {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "pki")
			err := WriteIdentity(dir, files[0], files[1], files[2])
			if err == nil || bytes.Contains([]byte(err.Error()), []byte("AAAA")) {
				t.Errorf("error %v", err)
			}
			if _, err := os.Stat(filepath.Join(dir, "self.key")); err == nil {
				t.Error("it was written")
			}
		})
	}
	dir := member(t, a, nodeOne, now)
	if err := os.Chmod(filepath.Join(dir, "self.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenKeeper(KeeperConfig{Dir: dir}); err == nil {
		t.Error("a key that others may read was taken")
	}
	if _, err := OpenKeeper(KeeperConfig{Dir: t.TempDir()}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an empty folder: %v, want fs.ErrNotExist", err)
	}
}
