package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store/consul/consultest"
	"github.com/berthd/berth/test/harness"
)

// consulFlags are the flags that reach servers of Consul with a token in a file.
func consulFlags(t *testing.T, servers []*consultest.Server, file, token string) []string {
	t.Helper()
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var hosts []string
	for _, s := range servers {
		hosts = append(hosts, s.Address)
	}
	return []string{"--store", "consul://" + strings.Join(hosts, ","), "--store-token-file", file}
}

// TestStoreInConsul runs two servers of Berth on three of Consul with ACLs, with a token that has the rights of the
// guide. Consul's leader dies, the token is revoked and replaced, and Berth's leader dies: tasks run on, and nothing
// that was acknowledged is lost.
func TestStoreInConsul(t *testing.T) {
	t.Parallel()
	consul := consultest.Start(t, 3, consultest.Options{ACLs: true})
	file := filepath.Join(t.TempDir(), "token")
	f := harness.NewFleet(t)
	hosts := harness.Loopback(4)
	s1 := f.Init(hosts[0])

	// With an unknown token the server ends with an error that names the flag and not the token.
	const unknown = "11111111-2222-3333-4444-555555555555"
	wrong := s1.Begin(consulFlags(t, consul, file, unknown)...)
	if code := wrong.Exit(soon); code == 0 || !strings.Contains(wrong.Output(), "--store-token-file") ||
		strings.Contains(wrong.Output(), unknown) {
		t.Errorf("with an unknown token it ended with exit code %d:\n%s", code, wrong.Output())
	}
	tokens := []string{consul[0].Permit(consultest.Rules), consul[0].Permit(consultest.Rules)}
	store := consulFlags(t, consul, file, tokens[0])
	s1.Start(store...)
	second := f.Join(hosts[1])
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
	before := running(t, f.Site, "hello", 3)
	scale := func(count int, after string) {
		t.Helper()
		f.Eventually(soon, func() error {
			if r := f.Berth("scale", "--detach", "service/hello", fmt.Sprint(count)); r.Code != 0 {
				return fmt.Errorf("after %s: %v", after, r)
			}
			return nil
		})
		running(t, f.Site, "hello", count)
	}

	// Consul's leader dies and comes back.
	leader, err := consul[0].Client().Status().Leader()
	if err != nil {
		t.Fatal(err)
	}
	killed := consul[0]
	for _, s := range consul {
		if s.RPC == leader {
			killed = s
		}
	}
	killed.Kill()
	scale(4, "the death of Consul's leader")
	killed.Start()
	killed.AwaitLeader()

	killed.AwaitVoters(len(consul))

	// A minority is cut off: Consul's new leader answers nothing for a while, and comes back with what it knew.
	if leader, err = killed.Client().Status().Leader(); err != nil {
		t.Fatal(err)
	}
	for _, s := range consul {
		if s.RPC != leader {
			continue
		}
		s.Stop()
		scale(3, "the cut of a minority")
		s.Continue()
		s.AwaitLeader()
	}
	scale(4, "the return of the minority")

	// The token is revoked. Writes are refused, nothing ends, and another token in the file brings the servers back.
	if _, err := consul[0].Client().ACL().TokenDelete(consul[0].Accessor(tokens[0]), nil); err != nil {
		t.Fatal(err)
	}
	f.Eventually(soon, func() error {
		if r := f.Berth("scale", "--detach", "service/hello", "3"); r.Code == 0 {
			return fmt.Errorf("a write succeeded with a revoked token: %v", r)
		}
		return nil
	})
	f.Berth("scale", "--detach", "service/hello", "3").Want(t, 2, "consul does not know the token",
		"nothing was written", "--store-token-file "+file)
	f.Eventually(soon, wantStatus(f, "Alarms:", "consul does not know the token", "--store-token-file "+file))
	consulFlags(t, consul, file, tokens[1])
	scale(5, "a new token")

	// Berth's leader dies. Started without --store it comes back to the same store.
	first := f.Leader()
	first.Kill()
	if now := f.Leader(); now == first {
		t.Errorf("%s leads, which was killed", first.Host.Name)
	}
	scale(6, "the death of Berth's leader")
	first.Start()
	for _, s := range f.Servers {
		f.Eventually(soon, func() error {
			if r := s.Berth("status"); !strings.Contains(r.Stdout, "6/6") ||
				!strings.Contains(r.Stdout, "2 servers: 2 up") {
				return fmt.Errorf("want 6/6 and two servers up:\n%v", r)
			}
			return nil
		})
		if _, err := os.Stat(filepath.Join(s.Dir, "etcd")); err == nil {
			t.Errorf("%s began a store of its own", s.Host.Name)
		}
		for _, token := range tokens {
			if strings.Contains(s.Output(), token) {
				t.Errorf("the log of %s contains a token", s.Host.Name)
			}
		}
	}
	for _, n := range []string{"n1", "n2"} {
		f.NodeIs(n, cluster.NodeReady)
	}
	samePids(t, before, running(t, f.Site, "hello", 6))
}
