package consul

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"google.golang.org/grpc"
	grpchealth "google.golang.org/grpc/health"
	serving "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/discovery"
	"github.com/berthd/berth/internal/store/consul/consultest"
	"github.com/berthd/berth/internal/store/remote"
	"github.com/berthd/berth/internal/testkit"
)

var healthy = discovery.State{Health: cluster.HealthHealthy, Text: "healthy"}

func web(id string, port int) *discovery.Registration {
	return &discovery.Registration{ID: id, Name: "web", Address: "127.0.0.1", Port: port, Tags: []string{"v1"}}
}

// awaitHealth waits until Consul shows a health of the only registration of a service; "" means that there is none.
func awaitHealth(t *testing.T, client *api.Client, service string, want cluster.Health) {
	t.Helper()
	testkit.Eventually(t, 15*time.Second, func() error {
		seen, err := see(t.Context(), client, service)
		if err != nil {
			return err
		}
		got := cluster.Health("")
		if len(seen) > 0 {
			got = seen[0].Health
		}
		if got != want || len(seen) > 1 {
			return fmt.Errorf("consul shows %+v, want one that is %q", seen, want)
		}
		return nil
	})
}

// TestFaults covers the faults of a connection and of a token. No text contains the token.
func TestFaults(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, 1, consultest.Options{ACLs: true, TLS: true})[0]
	token := s.Permit(rules)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	files := remote.TLSFiles{CA: s.Authority.CA(), Cert: s.Cert, Key: s.Key}
	use := func(token string) func() (string, error) { return func() (string, error) { return token, nil } }
	for name, c := range map[string]struct {
		fault  remote.Fault
		says   string
		change func(*Config)
	}{
		"no listener": {remote.FaultUnreachable, "connection refused", func(c *Config) {
			c.Endpoint = "https://" + testkit.FreeAddress(t)
		}},
		"one that says nothing": {remote.FaultSilent, "says nothing", func(c *Config) {
			c.Endpoint, c.TLS = "http://"+silent.Addr().String(), nil
		}},
		"no TLS": {remote.FaultSecured, "wants https", func(c *Config) {
			c.Endpoint, c.TLS = "http://"+s.Address, nil
		}},
		"no certificate":    {remote.FaultRefused, "remote error", func(c *Config) { c.TLS.Cert, c.TLS.Key = "", "" }},
		"no such authority": {remote.FaultCA, "none", func(c *Config) { c.TLS.CA = "none" }},
		"an unknown token": {remote.FaultPassword, "does not know", func(c *Config) {
			c.Token = use(strings.ToUpper(token))
		}},
		"no file with a token": {remote.FaultPassword, "no file", func(c *Config) {
			c.Token = func() (string, error) { return "", errors.New("no file") }
		}},
		"no token": {remote.FaultPermission, "Permission denied", func(c *Config) { c.Token = nil }},
		"a token for another service": {remote.FaultPermission, `"web"`, func(c *Config) {
			c.Token = use(s.Permit(`service "other" { policy = "write" }`))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secured := files
			config := Config{Endpoint: s.URL(), TLS: &secured, Owner: "one", Token: use(token)}
			c.change(&config)
			d, err := Open(config)
			if err != nil {
				t.Fatal(err)
			}
			bounded := testkit.Context(t, 2*time.Second)
			_, err = d.Probe(bounded)
			if err == nil {
				err = d.Register(bounded, web("berth-1", 80), healthy)
			}
			fault, ok := errors.AsType[*remote.DialError](err)
			if !ok || fault.Fault != c.fault || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got error %v (%+v), want %s that says %q", err, fault, c.fault, c.says)
			}
			if err != nil && strings.Contains(strings.ToLower(err.Error()), token) {
				t.Errorf("the error contains the token: %v", err)
			}
		})
	}
	t.Run("no fault", func(t *testing.T) {
		t.Parallel()
		d, err := Open(Config{Endpoint: s.URL(), TLS: &files, Owner: "one", Token: use(token)})
		if err != nil {
			t.Fatal(err)
		}
		if version, err := d.Probe(t.Context()); err != nil || !strings.HasPrefix(version, "1.") {
			t.Errorf("got version %q and error %v", version, err)
		}
	})
}

// TestDNS resolves a service by Consul's DNS. A failing task is not among the answers, and its port is that of its own.
func TestDNS(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, 1, consultest.Options{ACLs: true, DNS: true})[0]
	reader := s.Permit(`service_prefix "" { policy = "read" } node_prefix "" { policy = "read" }`)
	if _, err := s.Client().Agent().UpdateDefaultACLToken(reader, nil); err != nil {
		t.Fatal(err)
	}
	d := open(t, s, "one", s.Permit(rules))
	for i, port := range []int{30001, 30002, 30003} {
		if err := d.Register(t.Context(), web(fmt.Sprintf("berth-%d", i), port), healthy); err != nil {
			t.Fatal(err)
		}
	}
	down := discovery.State{Health: cluster.HealthFailing, Text: "x"}
	if err := d.Report(t.Context(), "berth-1", down); err != nil {
		t.Fatal(err)
	}
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", s.DNS)
	}}
	for _, name := range []string{"web.service.consul", "v1.web.service.consul"} {
		testkit.Eventually(t, 10*time.Second, func() error {
			_, records, err := resolver.LookupSRV(t.Context(), "", "", name)
			if err != nil {
				return err
			}
			ports := map[uint16]bool{}
			for _, r := range records {
				ports[r.Port] = true
			}
			if len(records) != 2 || !ports[30001] || !ports[30003] {
				return fmt.Errorf("%s has the ports %v, want 30001 and 30003", name, ports)
			}
			return nil
		})
	}
	if hosts, err := resolver.LookupHost(t.Context(), "web.service.consul"); err != nil || hosts[0] != "127.0.0.1" {
		t.Errorf("the name has the addresses %v, error %v, want 127.0.0.1", hosts, err)
	}
}

// TestNativeChecks registers tasks that Consul tests itself. Consul shows the result of its own tests, and a
// registration that is made again keeps it.
func TestNativeChecks(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, 1, consultest.Options{ACLs: true})[0]
	d, client := open(t, s, "one", s.Permit(rules)), s.Client()
	var broken, tested atomic.Bool
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tested.Store(true)
		if broken.Load() || r.URL.Path != "/ready" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(page.Close)
	register := func(name string, c discovery.Check) *discovery.Registration {
		c.Name, c.Interval, c.Timeout = "ready", time.Second, time.Second
		r := &discovery.Registration{
			ID: "berth-" + name, Name: name, Address: "127.0.0.1", Checks: []discovery.Check{c},
		}
		if err := d.Register(t.Context(), r, healthy); err != nil {
			t.Fatal(err)
		}
		return r
	}
	t.Run("http", func(t *testing.T) {
		t.Parallel()
		check := discovery.Check{
			Type: cluster.CheckHTTP, Address: page.Listener.Addr().String(), Path: "/ready", FailAfter: 100,
		}
		register("http", check)
		awaitHealth(t, client, "http", cluster.HealthHealthy)
		testkit.Eventually(t, 15*time.Second, func() error {
			if !tested.Load() { // a first failure would be critical at once
				return errors.New("consul has not tested it")
			}
			return nil
		})
		broken.Store(true)
		awaitHealth(t, client, "http", cluster.HealthWarning)
		check.FailAfter = 2
		r := register("http", check)
		awaitHealth(t, client, "http", cluster.HealthFailing)
		if err := d.Register(t.Context(), r, healthy); err != nil {
			t.Fatal(err)
		}
		awaitHealth(t, client, "http", cluster.HealthFailing)
		list, err := d.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range list {
			if h.ID == r.ID && h.Digest != r.Digest() {
				t.Errorf("the driver holds %+v, want the digest %s", h, r.Digest())
			}
		}
		broken.Store(false)
		awaitHealth(t, client, "http", cluster.HealthHealthy)
	})
	t.Run("tcp", func(t *testing.T) {
		t.Parallel()
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		register("tcp", discovery.Check{Type: cluster.CheckTCP, Address: listener.Addr().String(), FailAfter: 1})
		awaitHealth(t, client, "tcp", cluster.HealthHealthy)
		listener.Close()
		awaitHealth(t, client, "tcp", cluster.HealthFailing)
	})
	t.Run("grpc", func(t *testing.T) {
		t.Parallel()
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		of, server := grpchealth.NewServer(), grpc.NewServer()
		of.SetServingStatus("shop.Cart", serving.HealthCheckResponse_SERVING)
		serving.RegisterHealthServer(server, of)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = server.Serve(listener) // until it is stopped
		}()
		t.Cleanup(func() { server.Stop(); <-ended })
		register("grpc", discovery.Check{
			Type: cluster.CheckGRPC, Address: listener.Addr().String(), Service: "shop.Cart", FailAfter: 1,
		})
		awaitHealth(t, client, "grpc", cluster.HealthHealthy)
		of.SetServingStatus("shop.Cart", serving.HealthCheckResponse_NOT_SERVING)
		awaitHealth(t, client, "grpc", cluster.HealthFailing)
		of.SetServingStatus("shop.Cart", serving.HealthCheckResponse_SERVING)
		awaitHealth(t, client, "grpc", cluster.HealthHealthy)
	})
}

// TestReplacedToken replaces the token and revokes the old one. The driver notices which registrations were made with
// the old one. Once they are made again, their changes reach Consul's catalogue.
func TestReplacedToken(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, 1, consultest.Options{ACLs: true})[0]
	client := s.Client()
	var token atomic.Pointer[string]
	first, second := s.Permit(rules), s.Permit(rules)
	token.Store(&first)
	d, err := Open(Config{
		Endpoint: s.URL(), Owner: "one", Token: func() (string, error) { return *token.Load(), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	r := web("berth-1", 80)
	if err := d.Register(t.Context(), r, healthy); err != nil {
		t.Fatal(err)
	}
	token.Store(&second)
	s.Revoke(first)
	if list, err := d.List(t.Context()); err != nil || len(list) != 1 || list[0].Digest != "" {
		t.Fatalf("the driver holds %+v, error %v, want one that is to be made again", list, err)
	}
	if err := d.Register(t.Context(), r, healthy); err != nil {
		t.Fatal(err)
	}
	if list, err := d.List(t.Context()); err != nil || len(list) != 1 || list[0].Digest != r.Digest() {
		t.Fatalf("the driver holds %+v, error %v, want %s", list, err, r.Digest())
	}
	if err := d.Report(t.Context(), r.ID, discovery.State{Health: cluster.HealthFailing, Text: "x"}); err != nil {
		t.Fatal(err)
	}
	awaitHealth(t, client, "web", cluster.HealthFailing)
	if err := d.Deregister(t.Context(), r.ID); err != nil {
		t.Fatal(err)
	}
	awaitHealth(t, client, "web", "")
}

// TestNextAgentChangesNothing has the next driver of an owner make the registrations again, as after a restart of the
// agent. Consul's catalogue does not change: no client sees a task leave or fail.
func TestNextAgentChangesNothing(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, 1, consultest.Options{ACLs: true})[0]
	token, client := s.Permit(rules), s.Client()
	r := web("berth-1", 80)
	first := open(t, s, "one", token)
	if err := first.Register(t.Context(), r, healthy); err != nil {
		t.Fatal(err)
	}
	// Consul writes the text of a check with the next change of its state, or at a time of its choice. After these two
	// changes the catalogue has the text.
	awaitHealth(t, client, "web", cluster.HealthHealthy)
	for _, state := range []discovery.State{{Health: cluster.HealthFailing, Text: "failing"}, healthy} {
		if err := first.Report(t.Context(), r.ID, state); err != nil {
			t.Fatal(err)
		}
		awaitHealth(t, client, "web", state.Health)
	}
	other := open(t, s, "two", token)
	// flush waits until all changes before it are in the catalogue: that of another service has a higher index.
	flush := func(name string) {
		t.Helper()
		if err := other.Register(t.Context(), &discovery.Registration{
			ID: "berth-" + name, Name: name, Address: "127.0.0.1",
		}, healthy); err != nil {
			t.Fatal(err)
		}
		awaitHealth(t, client, name, cluster.HealthHealthy)
	}
	// changes returns the indexes at which the service and its check last changed. That of the whole answer also grows
	// when Consul registers its own node, which it may do late in its start.
	changes := func() map[string]uint64 {
		t.Helper()
		entries, _, err := client.Health().Service("web", "", false, nil)
		if err != nil || len(entries) != 1 {
			t.Fatalf("%d entries, error %v, want one", len(entries), err)
		}
		indexes := map[string]uint64{"service": entries[0].Service.ModifyIndex}
		for _, check := range entries[0].Checks {
			if check.ServiceID == r.ID {
				indexes[check.CheckID] = check.ModifyIndex
			}
		}
		if len(indexes) != 2 || slices.Contains(slices.Collect(maps.Values(indexes)), 0) {
			t.Fatalf("indexes %v, want those of the service and of one check", indexes)
		}
		return indexes
	}
	flush("first")
	before := changes()
	for range 3 {
		next := open(t, s, "one", token)
		if list, err := next.List(t.Context()); err != nil || len(list) != 1 || list[0].ID != r.ID {
			t.Fatalf("the next driver holds %+v, error %v, want %s", list, err, r.ID)
		}
		if err := next.Register(t.Context(), r, healthy); err != nil {
			t.Fatal(err)
		}
		if err := next.Report(t.Context(), r.ID, healthy); err != nil {
			t.Fatal(err)
		}
	}
	flush("last")
	if after := changes(); !maps.Equal(after, before) {
		t.Errorf("the service and its check changed at %v, before at %v", after, before)
	}
}

// TestDeadAgent leaves a registration alone. It fails after its TTL, and Consul removes it after the shortest time that
// Consul accepts.
func TestDeadAgent(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, 1, consultest.Options{ACLs: true})[0]
	d, err := Open(Config{
		Endpoint: s.URL(), Owner: "one", Token: func() (string, error) { return s.Token, nil },
		TTL: 2 * time.Second, RemoveAfter: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Register(t.Context(), web("berth-1", 80), healthy); err != nil {
		t.Fatal(err)
	}
	client := s.Client()
	awaitHealth(t, client, "web", cluster.HealthHealthy)
	awaitHealth(t, client, "web", cluster.HealthFailing)
	testkit.Eventually(t, 3*time.Minute, func() error {
		seen, err := see(t.Context(), client, "web")
		if err == nil && len(seen) > 0 {
			err = fmt.Errorf("consul still has %+v", seen)
		}
		return err
	})
}

// TestNamespace checks that requests name the namespace of the configuration and no other one. The namespaces of Consul
// Enterprise are not in the Consul of the tests, so a server of the test's own takes the requests.
func TestNamespace(t *testing.T) {
	t.Setenv("CONSUL_NAMESPACE", "other")
	t.Setenv("CONSUL_HTTP_TOKEN", "other")
	for _, namespace := range []string{"", "team"} {
		var requests atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			if got := r.URL.Query().Get("ns"); got != namespace || r.URL.Query().Has("ns") != (namespace != "") {
				t.Errorf("%s %s: the namespace is %q, want %q", r.Method, r.URL, got, namespace)
			}
			if got := r.Header.Get("X-Consul-Token"); got != "mine" {
				t.Errorf("%s %s: the token is %q, want mine", r.Method, r.URL, got)
			}
			if strings.HasPrefix(r.URL.Path, "/v1/agent/service/berth-") {
				fmt.Fprint(w, `{"Meta": {"berth-agent": "one"}}`)
			} else {
				fmt.Fprint(w, `{}`)
			}
		}))
		t.Cleanup(server.Close)
		d, err := Open(Config{
			Endpoint: server.URL, Owner: "one", Namespace: namespace,
			Token: func() (string, error) { return "mine", nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		_, list := d.List(t.Context())
		if err := errors.Join(list, d.Register(t.Context(), web("berth-1", 80), healthy),
			d.Deregister(t.Context(), "berth-1")); err != nil {
			t.Errorf("namespace %q: %v", namespace, err)
		}
		if got := requests.Load(); got < 6 {
			t.Errorf("namespace %q: the server got %d requests, want those of all calls", namespace, got)
		}
	}
}
