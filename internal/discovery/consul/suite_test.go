package consul

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/discovery/discoverytest"
	"github.com/berthd/berth/internal/store/consul/consultest"
	"github.com/berthd/berth/internal/suite/suitetest"
)

// rules are the permissions that an agent of Berth needs, in Consul's language for policies. The guide has them as they
// are.
const rules = `service_prefix "" {
  policy = "write"
}
agent_prefix "" {
  policy = "read"
}
`

// TestGuideGrantsEnough compares the rules of the guide with those of the token that the tests use.
func TestGuideGrantsEnough(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "guide", "discovery.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```\n"+rules+"```\n") {
		t.Errorf("docs/guide/discovery.md does not give these rules, as they are:\n%s", rules)
	}
}

// open returns the driver of an owner.
func open(t *testing.T, s *consultest.Server, owner, token string) *Driver {
	t.Helper()
	d, err := Open(Config{
		Endpoint: s.URL(), Owner: owner, Token: func() (string, error) { return token, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// health returns the health that Consul shows.
func health(status string) cluster.Health {
	switch status {
	case api.HealthPassing:
		return cluster.HealthHealthy
	case api.HealthWarning:
		return cluster.HealthWarning
	}
	return cluster.HealthFailing
}

// see returns the registrations of a service by Consul's health API.
func see(ctx context.Context, client *api.Client, service string) ([]discoverytest.Seen, error) {
	found, _, err := client.Health().Service(service, "", false, new(api.QueryOptions).WithContext(ctx))
	if err != nil {
		return nil, err
	}
	var seen []discoverytest.Seen
	for _, e := range found {
		one := discoverytest.Seen{
			ID: e.Service.ID, Name: e.Service.Service, Address: e.Service.Address, Port: e.Service.Port,
			Tags: e.Service.Tags, Meta: e.Service.Meta, Health: health(e.Checks.AggregatedStatus()),
		}
		for _, c := range e.Checks {
			if c.ServiceID != "" {
				one.Text += c.Output
			}
		}
		seen = append(seen, one)
	}
	slices.SortFunc(seen, func(a, b discoverytest.Seen) int { return strings.Compare(a.ID, b.ID) })
	return seen, nil
}

// removeAll removes all services of the agent.
func removeAll(t *testing.T, client *api.Client) {
	t.Helper()
	agent := client.Agent()
	services, err := agent.Services()
	if err != nil {
		t.Fatal(err)
	}
	for id := range services {
		if err := agent.ServiceDeregister(id); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSuite runs the suite on an agent of Consul with ACLs, with a token that has exactly the rights of the guide.
func TestSuite(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, 1, consultest.Options{ACLs: true})[0]
	token, client := s.Permit(rules), s.Client()
	suitetest.Run(t, discoverytest.Cases(), func(t *testing.T) discoverytest.Subject {
		removeAll(t, client)
		return discoverytest.Subject{
			Driver: open(t, s, "one", token), Other: open(t, s, "two", token),
			See: func(ctx context.Context, service string) ([]discoverytest.Seen, error) {
				return see(ctx, client, service)
			},
			Restart: func() {
				s.Kill()
				s.Start()
				s.AwaitLeader()
			},
			Lose: func() { removeAll(t, client) },
			Tamper: func(_ context.Context, id string) error {
				agent := client.Agent()
				now, _, err := agent.Service(id, nil)
				if err != nil {
					return err
				}
				return agent.ServiceRegister(&api.AgentServiceRegistration{
					ID: id, Name: now.Service, Address: now.Address, Port: now.Port, Meta: now.Meta,
					Tags: []string{"x"},
				})
			},
			DropChecks: func(_ context.Context, id string) error {
				return client.Agent().CheckDeregister(ttlCheck(id))
			},
		}
	})
}
