package e2e_test

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/test/harness"
)

// startEtcd starts an etcd of one member with a listener for clients, and returns that as --store wants it.
func startEtcd(t *testing.T) string {
	t.Helper()
	free := func() url.URL {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return url.URL{Scheme: "http", Host: l.Addr().String()}
	}
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
	case <-time.After(soon):
		t.Fatal("etcd does not serve")
	}
	return "etcd://" + clients.Host
}

// TestExternalStore runs two servers on an etcd that runs elsewhere. One of them that is started without --store goes on
// with that etcd, and one that was never told where it is refuses to start: neither ever begins a store of its own.
func TestExternalStore(t *testing.T) {
	t.Parallel()
	store := startEtcd(t)
	f := harness.NewFleet(t)
	hosts := harness.Loopback(4)
	f.Init(hosts[0]).Start("--store", store)

	// The join says the whole command, and a start without --store is none.
	second := f.Join(hosts[1])
	second.Rejoin(second.Token).Want(t, 0, "berth server --data-dir "+second.Dir+" --store etcd://HOST")
	refused := second.Begin()
	if code := refused.Exit(soon); code != 2 || !strings.Contains(refused.Output(), "--store is missing") {
		t.Errorf("a start without --store ended with exit code %d:\n%s", code, refused.Output())
	}
	if _, err := os.Stat(filepath.Join(second.Dir, "etcd")); err == nil {
		t.Error("a server of a store that runs elsewhere began one of its own")
	}
	second.Start("--store", store)
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
	before := running(t, f.Site, "hello", 3)
	second.Berth("server", "remove", "s1").Want(t, 2, "s1 is up", "--force")

	// The leader dies, the other one leads; started without --store, the first one comes back to the same store.
	first := f.Leader()
	first.Kill()
	if now := f.Leader(); now == first {
		t.Errorf("%s leads, which was killed", first.Host.Name)
	}
	f.Berth("scale", "service/hello", "4").Want(t, 0)
	first.Start()
	for _, s := range f.Servers {
		f.Eventually(soon, func() error {
			if r := s.Berth("status"); !strings.Contains(r.Stdout, "4/4") || !strings.Contains(r.Stdout, "2 servers: 2 up") {
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
}
