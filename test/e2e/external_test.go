package e2e_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store/etcd/etcdtest"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// startEtcd starts an etcd of one member with a listener for clients, and returns that as --store wants it.
func startEtcd(t *testing.T) string {
	t.Helper()
	free := func() url.URL { return url.URL{Scheme: "http", Host: testkit.FreeAddress(t)} }
	peers, clients := free(), free()
	c := embed.NewConfig()
	c.Dir = filepath.Join(t.TempDir(), "etcd")
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peers}, []url.URL{peers}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{clients}, []url.URL{clients}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.LogLevel = "panic"
	c.UnsafeNoFsync = true
	server, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatalf("start etcd: %v", err)
	}
	t.Cleanup(server.Close)
	select {
	case <-server.Server.ReadyNotify():
	case <-testkit.Context(t, soon).Done():
		t.Fatal("etcd does not serve")
	}
	return "etcd://" + clients.Host
}

// storeFlags are the flags that reach an etcd as its user for Berth, below a prefix.
func storeFlags(t *testing.T, s *etcdtest.Server, password string) []string {
	t.Helper()
	file := filepath.Join(s.Authority.Dir, "password")
	if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Permit("e2e/")
	return []string{
		"--store", "etcd://" + s.Address, "--store-ca", s.Authority.CA(), "--store-cert", s.Cert, "--store-key", s.Key,
		"--store-user", etcdtest.Berth, "--store-password-file", file, "--store-prefix", "e2e/",
	}
}

// TestExternalStore runs two servers on an external etcd with TLS, client certificates and users, as a user with the
// guide's role. A server that restarts without --store continues with that etcd. A new server without its address
// refuses to start. Neither begins a store of its own.
func TestExternalStore(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, nil)
	store := storeFlags(t, etcd, "wrong")
	f := harness.NewFleet(t)
	hosts := harness.Loopback(4)
	s1 := f.Init(hosts[0])

	// With a wrong password the server ends with an error that contains no password.
	wrong := s1.Begin(store...)
	if code := wrong.Exit(soon); code == 0 || !strings.Contains(wrong.Output(), "--store-password-file") ||
		strings.Contains(wrong.Output(), "wrong\n") {
		t.Errorf("with a wrong password it ended with exit code %d:\n%s", code, wrong.Output())
	}
	store = storeFlags(t, etcd, etcdtest.Password)
	s1.Start(store...)

	// The join prints the whole command. A start without --store is refused.
	second := f.Join(hosts[1])
	second.Rejoin(second.Token).Want(t, 0, "berth server --data-dir "+second.Dir+" --store etcd://HOST")
	refused := second.Begin()
	if code := refused.Exit(soon); code != 2 || !strings.Contains(refused.Output(), "external store") {
		t.Errorf("a start without --store ended with exit code %d:\n%s", code, refused.Output())
	}
	if _, err := os.Stat(filepath.Join(second.Dir, "etcd")); err == nil {
		t.Error("a server of a store that runs elsewhere began one of its own")
	}
	second.Start(store...)
	f.Eventually(soon, func() error {
		members, err := f.Members()
		if err == nil && len(members) != 2 {
			err = fmt.Errorf("want two servers: %+v", members)
		}
		return err
	})
	f.Agent(hosts[2])
	f.Agent(hosts[3])
	f.Berth("run", f.Write("v1.yaml", fmt.Sprintf(hello, 1, 3))).Want(t, 0, "3/3")
	running(t, f.Site, "hello", 3)
	second.Berth("server", "remove", "s1").Want(t, 2, "s1 is up", "--force")

	// etcd restarts with a new password and certificate for Berth's user. The servers continue without a restart.
	if _, err := etcd.As(etcdtest.Root).UserChangePassword(t.Context(), etcdtest.Berth, etcdtest.NextOne); err != nil {
		t.Fatal(err)
	}
	storeFlags(t, etcd, etcdtest.NextOne)
	etcd.Authority.Sign("client", time.Hour*2)
	etcd.Restart(nil)
	f.Eventually(soon, func() error {
		if r := f.Berth("scale", "--detach", "service/hello", "2"); r.Code != 0 {
			return fmt.Errorf("after a restart of etcd: %v", r)
		}
		return nil
	})
	f.Berth("scale", "--detach", "service/hello", "3").Want(t, 0)
	before := running(t, f.Site, "hello", 3)

	// The leader dies, the other one leads; started without --store, the first one comes back to the same store.
	first := f.Leader()
	first.Kill()
	if now := f.Leader(); now == first {
		t.Errorf("%s leads, which was killed", first.Host.Name)
	}
	f.Berth("scale", "--detach", "service/hello", "4").Want(t, 0)
	first.Start()
	for _, s := range f.Servers {
		f.Eventually(soon, func() error {
			if r := s.Berth("status"); !strings.Contains(r.Stdout, "4/4") ||
				!strings.Contains(r.Stdout, "2 servers: 2 up") {
				return fmt.Errorf("want 4/4 and two servers up:\n%v", r)
			}
			return nil
		})
		if _, err := os.Stat(filepath.Join(s.Dir, "etcd")); err == nil {
			t.Errorf("%s began a store of its own", s.Host.Name)
		}
	}
	for _, n := range []string{"n1", "n2"} {
		f.NodeIs(n, cluster.NodeReady)
	}
	samePids(t, before, running(t, f.Site, "hello", 4))

	// All keys are below the prefix, and no log contains a password.
	keys, err := etcd.As(etcdtest.Root).Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil || len(keys.Kvs) == 0 {
		t.Fatalf("keys in etcd: %v, error %v", keys, err)
	}
	for _, kv := range keys.Kvs {
		if !strings.HasPrefix(string(kv.Key), "e2e/berth") {
			t.Errorf("a key beside the prefix: %s", kv.Key)
		}
	}
	for _, s := range f.Servers {
		for _, password := range []string{etcdtest.Password, etcdtest.NextOne} {
			if strings.Contains(s.Output(), password) {
				t.Errorf("the log of %s contains a password", s.Host.Name)
			}
		}
	}
}

// TestDevOnExternalStore runs `berth dev`, as the demo does, on an etcd that runs elsewhere, which the next start
// remembers.
func TestDevOnExternalStore(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, nil)
	b := harness.New(t, harness.Process)
	d := b.Dev(storeFlags(t, etcd, etcdtest.Password)...)
	b.Berth("run", b.Write("v1.yaml", fmt.Sprintf(hello, 1, 2))).Want(t, 0, "2/2")
	before := running(t, b, "hello", 2)
	d.Kill()
	etcd.Restart(nil)
	again := b.Dev() // without --store: it continues with the store of the last start
	if want := "the store is etcd://" + etcd.Address +
		", as at the last start"; !strings.Contains(again.Output(), want) {
		t.Errorf("it did not say %q:\n%s", want, again.Output())
	}
	samePids(t, before, running(t, b, "hello", 2))
	if _, err := os.Stat(filepath.Join(b.ServerDir, "etcd")); err == nil {
		t.Error("it began a store of its own")
	}
}
