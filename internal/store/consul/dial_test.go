package consul

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/consul/consultest"
	"github.com/berthd/berth/internal/store/remote"
	"github.com/berthd/berth/internal/store/remote/remotetest"
	"github.com/berthd/berth/internal/testkit"
)

// secured is how Berth reaches a Consul with TLS.
func secured(s *consultest.Server, token string) DialConfig {
	return DialConfig{
		Endpoints: []string{s.URL()}, TLS: &remote.TLSFiles{CA: s.Authority.CA(), Cert: s.Cert, Key: s.Key},
		Token: func() (string, error) { return token, nil },
	}
}

// TestDialFaults covers the faults of a connection to Consul. Each is named correctly and soon, and no text contains
// the token.
func TestDialFaults(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, 1, consultest.Options{ACLs: true, TLS: true})[0]
	plain := consultest.Start(t, 1, consultest.Options{})[0]
	token := s.Permit(consultest.Rules)
	stranger := remotetest.NewAuthority(t)
	strangerCert, strangerKey := stranger.Sign("client", 2*time.Hour)
	oldCert, oldKey := s.Authority.Sign("old", time.Minute)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	old := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/status/leader" {
			fmt.Fprint(w, `"127.0.0.1:8300"`)
		} else {
			fmt.Fprint(w, `{"Config": {"Version": "1.14.11"}}`)
		}
	}))
	t.Cleanup(old.Close)
	none := filepath.Join(t.TempDir(), "none")
	use := func(token string) func() (string, error) { return func() (string, error) { return token, nil } }
	for name, c := range map[string]struct {
		fault  remote.Fault
		says   string
		change func(*DialConfig)
	}{
		"no listener": {remote.FaultUnreachable, "connection refused", func(c *DialConfig) {
			c.Endpoints = []string{"https://" + testkit.FreeAddress(t)}
		}},
		"one that says nothing": {remote.FaultSilent, "says nothing", func(c *DialConfig) {
			c.Endpoints, c.TLS = []string{"http://" + silent.Addr().String()}, nil
		}},
		"another program": {remote.FaultOther, "not as consul", func(c *DialConfig) {
			c.Endpoints, c.TLS = []string{other.URL}, nil
		}},
		"an old version": {remote.FaultVersion, "1.14.11", func(c *DialConfig) {
			c.Endpoints, c.TLS = []string{old.URL}, nil
		}},
		"another authority": {remote.FaultAuthority, "unknown authority", func(c *DialConfig) {
			c.TLS.CA = stranger.CA()
		}},
		"no such authority": {remote.FaultCA, none, func(c *DialConfig) { c.TLS.CA = none }},
		"another name": {remote.FaultServerName, "localhost", func(c *DialConfig) {
			c.Endpoints = []string{strings.Replace(s.URL(), "127.0.0.1", "localhost", 1)}
		}},
		"a stranger's certificate": {remote.FaultRefused, "remote error", func(c *DialConfig) {
			c.TLS.Cert, c.TLS.Key = strangerCert, strangerKey
		}},
		"no certificate": {remote.FaultRefused, "remote error", func(c *DialConfig) { c.TLS.Cert, c.TLS.Key = "", "" }},
		"a certificate that ended": {remote.FaultCertificate, oldCert, func(c *DialConfig) {
			c.TLS.Cert, c.TLS.Key = oldCert, oldKey
		}},
		"no TLS": {remote.FaultSecured, "wants https", func(c *DialConfig) {
			c.Endpoints, c.TLS = []string{"http://" + s.Address}, nil
		}},
		"TLS to one without": {remote.FaultPlain, "", func(c *DialConfig) {
			c.Endpoints = []string{"https://" + plain.Address}
		}},
		"no token":         {remote.FaultPermission, "", func(c *DialConfig) { c.Token = nil }},
		"an unknown token": {remote.FaultPassword, "", func(c *DialConfig) { c.Token = use(strings.ToUpper(token)) }},
		"no file with a token": {remote.FaultPassword, "no file", func(c *DialConfig) {
			c.Token = func() (string, error) { return "", errors.New("no file") }
		}},
		"a token that reads only": {remote.FaultPermission, `"berth"`, func(c *DialConfig) {
			c.Token = use(s.Permit(`key_prefix "berth" { policy = "read" }`))
		}},
		"a token that writes only the log": {remote.FaultPermission, `"berth"`, func(c *DialConfig) {
			c.Token = use(s.Permit(`key_prefix "berth.log/" { policy = "write" }`))
		}},
		"keys that are not its": {remote.FaultPermission, `"elsewhere/berth"`, func(c *DialConfig) {
			c.Prefix = "elsewhere/"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := secured(s, token)
			c.change(&config)
			watch := testkit.NewStopwatch()
			engine, err := Dial(t.Context(), config)
			if err == nil {
				engine.Close()
				t.Fatal("got none")
			}
			fault, ok := errors.AsType[*remote.DialError](err)
			if !ok || fault.Fault != c.fault || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got error %v (%+v), want %s that says %q", err, fault, c.fault, c.says)
			}
			if strings.Contains(strings.ToLower(err.Error()), token) {
				t.Errorf("the error contains the token: %v", err)
			}
			if took := watch.Elapsed(); took > 20*time.Second {
				t.Errorf("it took %v to say so", took)
			}
		})
	}
	t.Run("one endpoint of two", func(t *testing.T) {
		t.Parallel()
		config := secured(s, token)
		config.Endpoints = []string{"https://" + testkit.FreeAddress(t), config.Endpoints[0]}
		if err := write(t.Context(), dialAs(t, config), "berth/x", "1"); err != nil {
			t.Error(err)
		}
	})
	t.Run("a token that consul does not require", func(t *testing.T) {
		t.Parallel()
		config := reaching(plain)
		config.Token = use("something")
		if err := write(t.Context(), dialAs(t, config), "berth/x", "1"); err != nil {
			t.Error(err)
		}
	})
}

// TestFullDisk fills the disk of Consul's servers. No acknowledged write is lost, and after the disk has room again
// writes work without help.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	testkit.NeedRoot(t)
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=48m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s := consultest.Start(t, 1, consultest.Options{Dir: func() string { return filepath.Join(disk, "consul") }})[0]
	e := dialAs(t, reaching(s))
	acknowledged := 0
	value := strings.Repeat("x", 300_000)
	var failed error
	filler := filepath.Join(disk, "filler")
	for n := 0; failed == nil; n++ {
		if n == 5 {
			if err := fill(filler); err != nil {
				t.Fatal(err)
			}
		}
		if n == 200 {
			t.Fatal("200 writes succeeded on a full disk")
		}
		short, cancel := testkit.WithLimit(t.Context(), 60*time.Second)
		_, failed = e.Commit(short, []store.Group{{Ops: []store.Op{{
			Key: fmt.Sprintf("berth/%03d", n), Value: []byte(value),
		}}}})
		cancel()
		if failed == nil {
			acknowledged++
		}
	}
	t.Logf("%d writes were acknowledged; then: %v", acknowledged, failed)
	if !errors.Is(failed, store.ErrNoSpace) {
		t.Errorf("got error %v, want ErrNoSpace", failed)
	}
	if h, err := e.Health(t.Context()); err != nil || h.Writes {
		t.Errorf("the health is %+v, error %v, want that no write is accepted", h, err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 60*time.Second, func() error { return write(t.Context(), e, "berth/after", "1") })
	listing, err := e.List(t.Context(), "berth/")
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]bool{}
	for _, r := range listing.Records {
		held[r.Key] = true
	}
	for n := range acknowledged {
		if key := fmt.Sprintf("berth/%03d", n); !held[key] {
			t.Errorf("%s was acknowledged and is lost", key)
		}
	}
}

// fill writes a file until the disk is full.
func fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 64<<10)
	for {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// TestGuideGrantsEnough compares the rules of the guide with those of the token that the tests use.
func TestGuideGrantsEnough(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "guide", "consul.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```\n"+consultest.Rules+"```\n") {
		t.Errorf("docs/guide/consul.md does not give these rules, as they are:\n%s", consultest.Rules)
	}
}
