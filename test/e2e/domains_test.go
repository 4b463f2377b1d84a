package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/test/harness"
)

// domainOfBuilds is a domain with a cluster, and builds is a service of that cluster.
const (
	domainOfBuilds = `
kind: Domain
name: ci
pools: [runners]
silence: {jobs: 10m}
---
kind: Cluster
name: build
domain: ci
`
	builds = `
kind: Service
cluster: build
name: cache
definition: hello@1
count: %d
`
)

// TestDomains runs two domains on three servers: each has nodes, tasks and a leader of its own. The server that leads
// one of them is killed, a node goes from one to the other with a drain and by force, and the domain is deleted at the
// end. No task of the other domain restarts.
func TestDomains(t *testing.T) {
	t.Parallel()
	f := harness.NewFleet(t)
	hosts := harness.Loopback(7)
	f.Start(hosts[:3]...)
	for _, h := range hosts[3:] {
		f.Agent(h)
	}
	nodes := readyNodes(t, f)
	f.Berth("run", f.Write("domain.yaml", domainOfBuilds)).Want(t, 0)
	f.Berth("node", "domain", nodes[0], "ci").Want(t, 0, "is given to the domain ci")
	f.Berth("node", "pool", nodes[1], "runners").Want(t, 0)
	inDomain(t, f, "ci", nodes[:2])

	f.Berth("run", f.Write("hello.yaml", fmt.Sprintf(hello, 1, 3))).Want(t, 0, "3/3")
	f.Berth("run", f.Write("builds.yaml", fmt.Sprintf(builds, 3))).Want(t, 0, "3/3")
	before := healthyOn(t, f, "default/hello", 3, nodes[2:])
	healthyOn(t, f, "build/cache", 3, nodes[:2])
	r := f.Berth("domain", "ls")
	r.Want(t, 0, "ci", "default")
	if n := strings.Count(r.Stdout, " ok"); n != 2 {
		t.Errorf("%d domains are ok, want 2:\n%s", n, r.Stdout)
	}
	f.Berth("domain", "status", "ci").Want(t, 0, "runners", "of jobs after 10m", nodes[0])
	f.Berth("delete", "domain/ci").Want(t, 2, "still holds cluster build")

	// The leader of one domain dies. Both domains go on.
	leader := leaderOf(t, f, "ci")
	for _, s := range f.Servers {
		if id := serverID(t, f, s.Host.Address); id == leader {
			s.Kill()
			defer s.Start()
		}
	}
	f.Eventually(soon, func() error {
		if now := leaderOf(t, f, "ci"); now == leader || now == "" {
			return fmt.Errorf("%q leads the domain ci", now)
		}
		return nil
	})
	f.Berth("scale", "-n", "build", "service/cache", "4").Want(t, 0)
	healthyOn(t, f, "build/cache", 4, nodes[:2])

	// A node goes to the other domain with a drain, and comes back by force. The forced node keeps its tasks until the
	// former domain replaced them.
	f.Berth("node", "domain", nodes[0], "default").Want(t, 0)
	inDomain(t, f, "default", []string{nodes[0], nodes[2], nodes[3]})
	healthyOn(t, f, "build/cache", 4, nodes[1:2])
	f.Berth("node", "domain", nodes[0], "ci", "--force").Want(t, 0)
	inDomain(t, f, "ci", nodes[:2])
	if now := healthyOn(t, f, "default/hello", 3, nodes[2:]); !slices.Equal(before, now) {
		t.Errorf("tasks of the other domain were replaced: %v, before %v", now, before)
	}

	// The domain is deleted once nothing is in it.
	f.Berth("delete", "-n", "build", "service/cache").Want(t, 0)
	f.Berth("delete", "cluster/build").Want(t, 0)
	f.Berth("node", "pool", nodes[1], "--none").Want(t, 0)
	f.Berth("node", "domain", nodes[0], "default").Want(t, 0)
	inDomain(t, f, "default", nodes)
	f.Berth("delete", "domain/ci").Want(t, 0)
	if r := f.Berth("domain", "ls"); strings.Contains(r.Stdout, "ci ") {
		t.Errorf("the domain is there:\n%s", r.Stdout)
	}
}

// readyNodes returns the names of all nodes once all are ready.
func readyNodes(t *testing.T, f *harness.Fleet) (names []string) {
	t.Helper()
	f.Eventually(soon, func() error {
		all, _, err := client.All(t.Context(), client.ListOptions{}, f.Client().Nodes)
		if err != nil {
			return err
		}
		names = nil
		for _, n := range all {
			if n.State != cluster.NodeReady {
				return fmt.Errorf("%s is %s", n.Name, n.State)
			}
			names = append(names, n.Name)
		}
		if len(names) != 4 {
			return fmt.Errorf("%d nodes, want 4", len(names))
		}
		return nil
	})
	return names
}

// inDomain waits until exactly these nodes are ready in a domain.
func inDomain(t *testing.T, f *harness.Fleet, domain string, want []string) {
	t.Helper()
	f.Eventually(soon, func() error {
		all, _, err := client.All(t.Context(), client.ListOptions{}, f.Client().Nodes)
		if err != nil {
			return err
		}
		var ready []string
		for _, n := range all {
			if n.Domain == domain && n.State == cluster.NodeReady {
				ready = append(ready, n.Name)
			}
		}
		if !slices.Equal(ready, want) {
			return fmt.Errorf("the ready nodes of %s are %v, want %v", domain, ready, want)
		}
		return nil
	})
}

// healthyOn waits until a service has so many healthy tasks, all on these nodes, and returns the UUIDs of their
// attempts.
func healthyOn(t *testing.T, f *harness.Fleet, service string, count int, on []string) (uuids []string) {
	t.Helper()
	in, name, _ := strings.Cut(service, "/")
	f.Eventually(soon, func() error {
		uuids = nil
		for _, v := range f.Tasks(client.TaskFilter{Cluster: in, Service: name}) {
			switch {
			case v.State.Terminal():
			case v.Health != cluster.HealthHealthy || !slices.Contains(on, v.Node):
				return fmt.Errorf("%s is %s (%s) on %q, want it on %v: %s", v.ID, v.State, v.Health, v.Node, on,
					v.Message)
			default:
				uuids = append(uuids, v.UUID)
			}
		}
		if len(uuids) != count {
			return fmt.Errorf("%d tasks of %s are healthy, want %d", len(uuids), service, count)
		}
		return nil
	})
	slices.Sort(uuids)
	return uuids
}

// leaderOf returns the id of the server that leads a domain, "" if none does.
func leaderOf(t *testing.T, f *harness.Fleet, domain string) string {
	t.Helper()
	v, err := f.Client().Domain(t.Context(), domain)
	if err != nil || v.Status.Leader == nil {
		return ""
	}
	return v.Status.Leader.ID
}

// serverID returns the id of the server at an address.
func serverID(t *testing.T, f *harness.Fleet, address string) string {
	t.Helper()
	members, err := f.Members()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		if strings.Contains(m.API, "//"+address+":") {
			return m.ID
		}
	}
	return ""
}
