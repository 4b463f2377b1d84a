package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/etcd/etcdtest"
	"github.com/berthd/berth/internal/store/remote"
	"github.com/berthd/berth/internal/store/remote/remotetest"
	"github.com/berthd/berth/internal/store/snapshotfile"
	"github.com/berthd/berth/internal/store/storetest"
	"github.com/berthd/berth/internal/store/storetest/enginetest"
	"github.com/berthd/berth/internal/testkit"
)

// constantly returns a password that stays the same.
func constantly(password string) func() (string, error) {
	return func() (string, error) { return password, nil }
}

// reaching is how the user of Berth reaches an etcd.
func reaching(s *etcdtest.Server) DialConfig {
	return DialConfig{
		Endpoints: []string{"https://" + s.Address},
		TLS:       &remote.TLSFiles{CA: s.Authority.CA(), Cert: s.Cert, Key: s.Key},
		User:      etcdtest.Berth, Password: constantly(etcdtest.Password),
	}
}

func dialAs(t *testing.T, config DialConfig) *Engine {
	t.Helper()
	engine, err := Dial(t.Context(), config)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return engine
}

// TestDialSecured runs the suite on an etcd with TLS, client certificates and users, as a user with exactly the rights
// of the guide. The tests share the etcd; each has the keys below a prefix of its own.
func TestDialSecured(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t, nil)
	s.Permit("suite-")
	root := reaching(s)
	root.User = etcdtest.Root
	keeper := dialAs(t, root)
	var count atomic.Uint64
	// The omitted cases concern the disk, which belongs to another operator, and restores of the whole etcd.
	without := []string{
		"commit/quota", "commit/space", "snapshot", "snapshot/back", "snapshot/future",
		"snapshot/damaged",
	}
	enginetest.Test(t, enginetest.Suite{
		Without: without,
		Open: func(t *testing.T) storetest.Subject {
			config := reaching(s)
			config.Prefix = fmt.Sprintf("suite-%d/", count.Add(1))
			engine := dialAs(t, config)
			return storetest.Subject{
				Engine:  engine,
				Restart: func() store.Engine { s.Restart(nil); return engine },
				Compact: func() { compact(t, keeper) },
				Other:   func() store.Engine { return dialAs(t, config) },
			}
		},
	})
}

// TestTwoStoresInOneEtcd has two stores side by side, and foreign keys: none sees another's.
func TestTwoStoresInOneEtcd(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t, nil)
	s.Permit("a/")
	var engines []*Engine
	for _, prefix := range []string{"", "a/"} {
		config := reaching(s)
		config.Prefix = prefix
		engines = append(engines, dialAs(t, config))
	}
	watch := engines[1].Watch(t.Context(), "berth/", 0)
	defer watch.Close()
	for i, e := range engines {
		if _, err := e.Commit(t.Context(),
			[]store.Group{{Ops: []store.Op{{Key: "berth/who", Value: fmt.Appendf(nil, "%d", i)}}}}); err != nil {
			t.Fatal(err)
		}
	}
	for i, e := range engines {
		listing, err := e.List(t.Context(), "berth/")
		if err != nil || len(listing.Records) != 1 || listing.Records[0].Key != "berth/who" ||
			string(listing.Records[0].Value) != fmt.Sprint(i) {
			t.Errorf("store %d lists %+v, error %v", i, listing.Records, err)
		}
	}
	var seen []store.Change
	for len(seen) == 0 {
		batch, err := watch.Next(shortly(t, 10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, batch.Changes...)
	}
	if len(seen) != 1 || seen[0].Key != "berth/who" || string(seen[0].Value) != "1" {
		t.Errorf("the watch of one store got %+v", seen)
	}
	if in, err := s.As(etcdtest.Root).Get(t.Context(), "a/berth/who"); err != nil || len(in.Kvs) != 1 {
		t.Errorf("in etcd: %v, error %v", in, err)
	}
	// Each saves its own records, without a right to the others.
	for i, e := range engines {
		var out bytes.Buffer
		if err := e.Snapshot(t.Context(), "berth/", &out); err != nil {
			t.Fatal(err)
		}
		records, _, err := snapshotfile.ReadAll(&out)
		if err != nil || len(records) != 1 || string(records[0].Value) != fmt.Sprint(i) {
			t.Errorf("store %d saves %+v, error %v", i, records, err)
		}
	}
}

// TestTokenRunsOut drops the tokens of logged-in clients, like a restarting etcd. It also changes the password, the
// certificate and the authority. Calls and watches continue.
func TestTokenRunsOut(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t, nil)
	var password atomic.Value
	password.Store(etcdtest.Password)
	config := reaching(s)
	config.Password = func() (string, error) { return password.Load().(string), nil }
	config.Remedy = func(fault remote.Fault) string { return "advice: " + string(fault) }
	e := dialAs(t, config)
	watch := e.Watch(t.Context(), "berth/", 0)
	defer watch.Close()
	if err := write(t.Context(), e, "berth/1"); err != nil {
		t.Fatal(err)
	}
	// The user's password is changed, and all certificates are signed by another authority; then etcd restarts.
	if _, err := s.As(etcdtest.Root).UserChangePassword(t.Context(), etcdtest.Berth, etcdtest.NextOne); err != nil {
		t.Fatal(err)
	}
	other := remotetest.NewAuthority(t)
	other.Sign("client", 12*time.Hour)
	other.Sign("server", 12*time.Hour)
	s.Restart(func(*embed.Config) {
		for _, name := range []string{"ca.crt", "server.crt", "server.key", "client.crt", "client.key"} {
			content, err := os.ReadFile(filepath.Join(other.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(s.Authority.Dir, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	})
	err := write(shortly(t, 5*time.Second), e, "berth/2")
	if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnknown) ||
		!strings.Contains(err.Error(), `password of user "berth"`) {
		t.Errorf("with the password of before: got error %v, want that it is refused and nothing was written", err)
	}
	if denied, ok := errors.AsType[*store.DeniedError](err); !ok || denied.Remedy != "advice: password" ||
		strings.Contains(err.Error(), "quorum") {
		t.Errorf("with the password of before: got error %v, want that etcd denies it, with advice", err)
	}
	if h, err := e.Health(t.Context()); err != nil || h.Quorum || !strings.Contains(h.Reason, "advice: password") {
		t.Errorf("with the password of before: got the health %+v, error %v, want the advice", h, err)
	}
	password.Store(etcdtest.NextOne)
	testkit.Eventually(t, 20*time.Second, func() error { return write(t.Context(), e, "berth/3") })
	for want := map[string]bool{"berth/1": true, "berth/3": true}; len(want) > 0; {
		batch, err := watch.Next(shortly(t, 20*time.Second))
		if err != nil {
			t.Fatalf("the watch waits for %v: %v", want, err)
		}
		for _, c := range batch.Changes {
			delete(want, c.Key)
		}
	}
}

// TestTokenOfAWatch begins a watch with a token that etcd does not know any more, and makes no call: it is served
// nevertheless.
func TestTokenOfAWatch(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t, func(c *embed.Config) { c.ClientTLSInfo.ClientCertAuth = false })
	config := reaching(s)
	config.User = ""
	if _, err := Dial(t.Context(), config); err == nil {
		t.Error("nothing was admitted")
	} else if fault, ok := errors.AsType[*remote.DialError](err); !ok || fault.Fault != remote.FaultUser {
		t.Errorf("without a user: got error %v (%+v)", err, fault)
	}
	e := dialAs(t, reaching(s))
	if err := write(t.Context(), e, "berth/1"); err != nil {
		t.Fatal(err)
	}
	present, err := e.List(t.Context(), "berth/")
	if err != nil {
		t.Fatal(err)
	}
	s.Restart(nil)
	watch := e.Watch(t.Context(), "berth/", present.Revision)
	defer watch.Close()
	if _, err := s.As(etcdtest.Root).Put(t.Context(), "berth/2", ""); err != nil {
		t.Fatal(err)
	}
	for {
		batch, err := watch.Next(shortly(t, 20*time.Second))
		if err != nil {
			t.Fatalf("a watch with a token that ran out: %v", err)
		}
		if len(batch.Changes) > 0 && batch.Changes[0].Key == "berth/2" {
			return
		}
	}
}

// TestDialFaults covers the faults of a connection to etcd. Each is named correctly and soon, and no text contains the
// password.
func TestDialFaults(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t, nil)
	plain := newElsewhere(t)
	stranger := remotetest.NewAuthority(t)
	strangerCert, strangerKey := stranger.Sign("client", time.Hour*2)
	oldCert, oldKey := s.Authority.Sign("old", time.Minute)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	none := filepath.Join(t.TempDir(), "none")
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
		"another authority": {remote.FaultAuthority, "unknown authority", func(c *DialConfig) {
			c.TLS.CA = stranger.CA()
		}},
		"no such authority": {remote.FaultCA, none, func(c *DialConfig) { c.TLS.CA = none }},
		"an authority that is none": {remote.FaultCA, "no certificate in PEM", func(c *DialConfig) {
			c.TLS.CA = s.Key
		}},
		"the machine's authorities": {remote.FaultAuthority, "", func(c *DialConfig) { c.TLS.CA = remote.SystemCA }},
		"another name": {remote.FaultServerName, "localhost", func(c *DialConfig) {
			c.Endpoints = []string{"https://" + strings.Replace(s.Address, "127.0.0.1", "localhost", 1)}
		}},
		"a stranger's certificate": {remote.FaultRefused, "remote error", func(c *DialConfig) {
			c.TLS.Cert, c.TLS.Key = strangerCert, strangerKey
		}},
		"no certificate": {remote.FaultRefused, "remote error", func(c *DialConfig) {
			c.TLS.Cert, c.TLS.Key = "", ""
		}},
		"a certificate that ended": {remote.FaultCertificate, oldCert, func(c *DialConfig) {
			c.TLS.Cert, c.TLS.Key = oldCert, oldKey
		}},
		"another's key": {remote.FaultCertificate, "does not match", func(c *DialConfig) {
			c.TLS.Key = oldKey
		}},
		"no TLS": {remote.FaultSecured, "wants https", func(c *DialConfig) {
			c.Endpoints, c.TLS = []string{"http://" + s.Address}, nil
		}},
		"TLS to one without": {remote.FaultPlain, "", func(c *DialConfig) {
			c.Endpoints = []string{strings.Replace(plain.address, "http:", "https:", 1)}
		}},
		"a wrong password": {remote.FaultPassword, `user "berth"`, func(c *DialConfig) {
			c.Password = constantly("secret-" + etcdtest.Password)
		}},
		"no such user": {remote.FaultPassword, `user "stranger"`, func(c *DialConfig) {
			c.User = "stranger"
		}},
		"no password": {remote.FaultPassword, "no file", func(c *DialConfig) {
			c.Password = func() (string, error) { return "", errors.New("no file") }
		}},
		"no user but the certificate's": {remote.FaultPermission, "that the certificate names", func(c *DialConfig) {
			c.User = ""
		}},
		"a user without a role": {remote.FaultPermission, `"berth"`, func(c *DialConfig) { c.User = etcdtest.Nobody }},
		"keys that are not his": {remote.FaultPermission, `"elsewhere/berth"`, func(c *DialConfig) {
			c.Prefix = "elsewhere/"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := reaching(s)
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
			if strings.Contains(err.Error(), etcdtest.Password) {
				t.Errorf("the error contains the password: %v", err)
			}
			if took := watch.Elapsed(); took > 20*time.Second {
				t.Errorf("it took %v to say so", took)
			}
		})
	}
	t.Run("one endpoint of two", func(t *testing.T) {
		t.Parallel()
		config := reaching(s)
		config.Endpoints = []string{"https://" + testkit.FreeAddress(t), config.Endpoints[0]}
		if err := write(t.Context(), dialAs(t, config), "berth/x"); err != nil {
			t.Error(err)
		}
	})
	t.Run("users that etcd does not require", func(t *testing.T) {
		t.Parallel()
		if err := write(t.Context(),
			dialAs(t, DialConfig{Endpoints: []string{plain.address}, User: "berth", Password: constantly("x")}),
			"berth/x"); err != nil {
			t.Error(err)
		}
	})
}

// oldEtcd says that it has an old version.
type oldEtcd struct {
	pb.UnimplementedMaintenanceServer
	version string
}

// Status is part of pb.MaintenanceServer.
func (o oldEtcd) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{Version: o.version}, nil
}

// TestOldVersion reaches an etcd of a version with faults that a store cannot bear.
func TestOldVersion(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterMaintenanceServer(server, oldEtcd{version: "3.4.23"})
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	_, err = Dial(t.Context(), DialConfig{Endpoints: []string{"http://" + l.Addr().String()}})
	if fault, ok := errors.AsType[*remote.DialError](err); !ok || fault.Fault != remote.FaultVersion ||
		!strings.Contains(err.Error(), "etcd 3.4.23") {
		t.Errorf("got error %v, want that it is too old", err)
	}
	for version, fine := range map[string]bool{
		"3.3.27": false, "3.4.30": false, "3.4.31": true, "3.5.0": false, "3.5.12": false, "3.5.13": true,
		"3.6.0": true, "3.7.3": true, "4.0.0": true,
		"2.3.8": false, "3.5.13-alpha.0": true, "made here": true,
	} {
		if err := checkVersion("x", version); (err == nil) != fine {
			t.Errorf("version %s: got error %v", version, err)
		}
	}
}

// TestGuideGrantsEnough has the page of the guide give the very commands that all other tests here make their user
// with.
func TestGuideGrantsEnough(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "guide", "servers.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```\n"+etcdtest.Commands+"```\n") {
		t.Errorf("docs/guide/servers.md does not give these commands, as they are:\n%s", etcdtest.Commands)
	}
}
