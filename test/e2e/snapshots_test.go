//go:build prove

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store/consul/consultest"
	"github.com/berthd/berth/internal/store/etcd/etcdtest"
	"github.com/berthd/berth/test/harness"
)

// migration is a control plane of one server whose state moves from store to store.
type migration struct {
	*harness.Fleet
	t      *testing.T
	server *harness.Server
	host   harness.Host
	// flags are those of each kind of store; the store of the server has none.
	flags map[string][]string
	// used says which external stores have held the state before.
	used     map[string]bool
	clusters []string
	moves    int
}

// TestSnapshotsMoveBetweenAllStores moves a control plane from each kind of store to each kind, by a saved snapshot:
// the server's own store, an etcd with users, and a Consul with ACLs. The tasks run on, and all that was written before
// the snapshot is there.
func TestSnapshotsMoveBetweenAllStores(t *testing.T) {
	t.Parallel()
	etcd, consul := etcdtest.Start(t, nil), consultest.Start(t, 1, consultest.Options{ACLs: true})
	token := consul[0].Permit(strings.Replace(consultest.Rules, `"berth"`, `"e2e/berth"`, 1))
	hosts := harness.Loopback(2)
	m := &migration{
		Fleet: harness.NewFleet(t), t: t, host: hosts[0], used: map[string]bool{}, clusters: []string{"first"},
		flags: map[string][]string{"etcd": storeFlags(t, etcd, etcdtest.Password), "consul": append(
			consulFlags(t, consul, filepath.Join(t.TempDir(), "token"), token), "--store-prefix", "e2e/")},
	}
	m.server = m.Init(m.host).Start()
	m.Agent(hosts[1])
	m.Berth("run", m.Write("v1.yaml", fmt.Sprintf(hello, 1, 2))).Want(t, 0, "2/2")
	m.write("first")
	for _, step := range []struct{ from, to string }{
		{"own", "own"},
		{"own", "consul"},
		{"consul", "consul"},
		{"consul", "etcd"},
		{"etcd", "etcd"},
		{"etcd", "own"},
		{"own", "etcd"},
		{"etcd", "consul"},
		{"consul", "own"},
	} {
		t.Run(step.from+" to "+step.to, func(t *testing.T) {
			m.t = t
			m.move(step.from, step.to)
		})
		if t.Failed() {
			return // the next step begins where this one ended
		}
	}

	// All keys in the external stores are below the prefix.
	var keys []string
	found, err := etcd.As(etcdtest.Root).Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range found.Kvs {
		keys = append(keys, string(kv.Key))
	}
	inConsul, _, err := consul[0].Client().KV().Keys("e2e/", "", nil)
	if err != nil || len(inConsul) == 0 {
		t.Fatalf("Consul has the keys %v, error %v, want those of the store", inConsul, err)
	}
	all, _, err := consul[0].Client().KV().Keys("", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range append(keys, all...) {
		if !strings.HasPrefix(key, "e2e/berth") {
			t.Errorf("a key beside the prefix: %s", key)
		}
	}
}

// write writes a cluster, which each later store must have.
func (m *migration) write(name string) {
	m.t.Helper()
	if _, err := m.Client().PutCluster(m.t.Context(), api.Cluster{Name: name}, client.Condition{}); err != nil {
		m.t.Fatal(err)
	}
}

// move saves a snapshot of the present store, restores it into another one, and checks what continues.
func (m *migration) move(from, to string) {
	// 1. Change something, and save the snapshot. What is written later is lost.
	t := m.t
	m.moves++
	name := fmt.Sprintf("move%d", m.moves)
	m.write(name)
	m.clusters = append(m.clusters, name)
	count := 2 + m.moves%2
	m.Berth("scale", "--detach", "service/hello", fmt.Sprint(count)).Want(t, 0)
	before := running(t, m.Site, "hello", count)
	saved := filepath.Join(m.Dir, name)
	m.Berth("operator", "snapshot", "save", saved).Want(t, 0, "saved to")
	m.Berth("operator", "snapshot", "inspect", saved).Want(t, 0, "service 1", "sha256")
	m.write("later" + fmt.Sprint(m.moves))

	// 2. Restore it. A store that is in use, or that holds records, is not overwritten.
	flags := m.flags[to]
	if from == to && flags != nil {
		m.restore(saved, append(flags, "--replace")...).Want(t, 2, "a server works on the store", "Stop all servers")
	}
	m.server.Terminate()
	switch {
	case to == "own":
		if from != to {
			m.newDirectory()
		}
		m.restore(saved).Want(t, 0, "is restored")
	case m.used[to]:
		m.restore(saved, flags...).Want(t, 2, "already holds records", "--replace")
		m.restore(saved, append(flags, "--replace")...).Want(t, 0, "is restored", "berth server --store "+to+"://")
	default:
		m.restore(saved, flags...).Want(t, 0, "is restored", "berth server --store "+to+"://")
		m.used[to] = true
	}
	if from == "own" && to != "own" {
		if err := os.Rename(filepath.Join(m.server.Dir, "etcd"), filepath.Join(m.server.Dir, "former")); err != nil {
			t.Fatal(err)
		}
	}

	// 3. Start the server on it. The tasks run on, and the records are those of the snapshot.
	m.server.Start(flags...)
	m.NodeIs("n1", cluster.NodeReady)
	samePids(t, before, running(t, m.Site, "hello", count))
	all, _, err := client.All(t.Context(), client.ListOptions{}, m.Client().Clusters)
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, c := range all {
		there[c.Name] = true
	}
	for _, want := range m.clusters {
		if !there[want] {
			t.Errorf("the cluster %s is not there after the move from %s to %s", want, from, to)
		}
	}
	if there["later"+fmt.Sprint(m.moves)] {
		t.Errorf("a cluster that was written after the snapshot is there after the move from %s to %s", from, to)
	}
}

// restore runs the restore of a snapshot, which adopts all tasks.
func (m *migration) restore(saved string, flags ...string) harness.Result {
	m.t.Helper()
	return m.Berth(append([]string{"operator", "snapshot", "restore", saved, "--data-dir", m.server.Dir, "--adopt"},
		flags...)...)
}

// newDirectory makes a data directory with the authority and the master key of the former one, as the guide says of the
// way back to a store of the servers.
func (m *migration) newDirectory() {
	m.t.Helper()
	former := m.server.Dir
	dir := filepath.Join(m.Dir, fmt.Sprintf("again%d", m.moves), filepath.Base(former))
	for _, name := range []string{"pki/ca.crt", "pki/ca.key", "secrets.key"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			m.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(readFile(m.t, filepath.Join(former, name))), 0o600); err != nil {
			m.t.Fatal(err)
		}
	}
	m.Berth("server", "init", "--data-dir", dir, "--name", filepath.Base(dir), "--advertise",
		m.host.Address).Want(m.t, 0)
	m.server.Dir = dir
}
