package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store/consul/consultest"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// discoveryVariable is the environment variable with the number of tasks that TestDiscovery registers.
const discoveryVariable = "BERTH_DISCOVERY_TASKS"

// agentRules are the rules of the guide for the token of agents that register tasks.
const agentRules = `service_prefix "" { policy = "write" } agent_prefix "" { policy = "read" }`

// inConsul is a service that is registered in Consul. A version ends at TERM without serving a last request.
const inConsul = `
kind: Service
name: web
count: %[2]d
template:
  name: web
  containers:
    - name: main
      command: [%[3]q]
      env: {VERSION: "%[1]d", DRAIN: 0s, GOMAXPROCS: "1"}
  ports: [{name: http}]
  checks:
    - {name: answers, type: http, port: http, path: /healthz, interval: %[4]s, timeout: %[4]s}
  shutdown_delay: %[4]s
  discovery:
    consul:
      - {tags: ["v%[1]d"]}
      - {name: web-native, checks: native}
`

// resolving is a client that finds the service by Consul's DNS for each request.
type resolving struct {
	resolver *net.Resolver
	http     http.Client
	end      context.CancelFunc
	ended    sync.WaitGroup

	mu       sync.Mutex
	answered int
	failures map[string][]error // of requests, by address
	last     []string           // the newest answer of Consul
}

// beginResolving begins to send requests to the service.
func beginResolving(t *testing.T, dns string) *resolving {
	ctx, cancel := context.WithCancel(t.Context())
	c := &resolving{
		end: cancel, failures: map[string][]error{},
		resolver: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, dns)
		}},
		http: http.Client{
			Timeout: testkit.Scaled(10 * time.Second), Transport: &http.Transport{DisableKeepAlives: true},
		},
	}
	for range 3 {
		c.ended.Go(func() {
			for ctx.Err() == nil {
				c.request(ctx)
				testkit.Pause(ctx, 10*time.Millisecond)
			}
		})
	}
	t.Cleanup(c.stop)
	return c
}

func (c *resolving) stop() {
	c.end()
	c.ended.Wait()
}

// resolve returns the addresses of the service. While Consul does not answer they stay what they were.
func (c *resolving) resolve(ctx context.Context) []string {
	_, records, err := c.resolver.LookupSRV(ctx, "", "", "web.service.consul.")
	c.mu.Lock()
	defer c.mu.Unlock()
	if missing, ok := errors.AsType[*net.DNSError](err); ok && missing.IsNotFound {
		c.last = nil
	}
	if err != nil {
		return c.last
	}
	c.last = nil
	for _, r := range records {
		// Consul names an address such as 7f200001.addr.dc1.consul.
		var a, b, e, d byte
		if _, err := fmt.Sscanf(r.Target, "%02x%02x%02x%02x.addr.", &a, &b, &e, &d); err == nil {
			c.last = append(c.last, net.JoinHostPort(net.IPv4(a, b, e, d).String(), strconv.Itoa(int(r.Port))))
		}
	}
	return c.last
}

// request sends one request to one of the addresses.
func (c *resolving) request(ctx context.Context) {
	all := c.resolve(ctx)
	if len(all) == 0 {
		return
	}
	to := all[rand.IntN(len(all))]
	err := c.post(ctx, to)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.answered++
	} else if ctx.Err() == nil {
		c.failures[to] = append(c.failures[to], err)
	}
}

func (c *resolving) post(ctx context.Context, to string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+to+"/", nil)
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %s", response.Status)
	}
	return nil
}

// check waits for a hundred more answers. It fails the test for failures since the last check, other than at an excused
// address.
func (c *resolving) check(t *testing.T, after, excused string) {
	t.Helper()
	c.mu.Lock()
	before := c.answered
	c.mu.Unlock()
	testkit.Eventually(t, soon, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.answered < before+100 {
			return fmt.Errorf("%s: %d requests were answered, want %d", after, c.answered, before+100)
		}
		return nil
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	for to, errs := range c.failures {
		if to != excused {
			t.Errorf("%s: %d requests to %s failed, the first with: %v", after, len(errs), to, errs[0])
		}
	}
	t.Logf("%s: %d requests were answered", after, c.answered)
	c.answered, c.failures = 0, map[string][]error{}
}

// registered returns the IDs of the healthy registrations of a service, and waits for their number.
func registered(t *testing.T, f *harness.Fleet, consul *consultest.Server, service string, count int) (ids []string) {
	t.Helper()
	client := consul.Client()
	f.Eventually(2*soon, func() error {
		found, _, err := client.Health().Service(service, "", true, nil)
		if err != nil {
			return err
		}
		ids = nil
		for _, e := range found {
			ids = append(ids, e.Service.ID)
		}
		slices.Sort(ids)
		if len(ids) != count {
			return fmt.Errorf("consul has %d healthy instances of %s, want %d: %v", len(ids), service, count, ids)
		}
		return nil
	})
	return ids
}

// TestDiscovery registers some tasks in a Consul with ACLs, and resolves them by Consul's DNS for each request. The
// service is rolled out, a node is drained, an agent is killed, Consul restarts, and a program is killed. No request
// fails by an act of Berth, and nothing of others changes.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	count := int(testkit.Setting(t, discoveryVariable, 6))
	all, fewer := fmt.Sprintf("%d/%d", count, count), count-1
	consul := consultest.Start(t, 1, consultest.Options{ACLs: true, DNS: true})[0]
	reader := consul.Permit(`service_prefix "" { policy = "read" } node_prefix "" { policy = "read" }`)
	allowAnonymous := func() {
		t.Helper()
		if _, err := consul.Client().Agent().UpdateDefaultACLToken(reader, nil); err != nil {
			t.Fatal(err)
		}
	}
	allowAnonymous()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(consul.Permit(agentRules)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := harness.NewFleet(t)
	hosts := harness.Loopback(5)
	f.Start(hosts[0])
	discovery := func(h harness.Host) []string {
		return []string{
			"--address", h.Address, "--discovery", "consul://" + consul.Address, "--discovery-token-file", file,
		}
	}
	program := harness.Program(t, f.Dir, "./test/load/task")
	manifest := func(version, count int) string {
		return f.Write(fmt.Sprintf("v%d.yaml", version),
			fmt.Sprintf(inConsul, version, count, program, harness.Scaled(time.Second)))
	}

	// A node whose agent has no Consul gets none of the tasks.
	f.Agent(hosts[1], "--address", hosts[1].Address)
	f.Berth("run", "--detach", manifest(1, count)).Want(t, 0)
	f.Eventually(soon, func() error {
		if r := f.Berth("explain", "web"); !strings.Contains(r.Stdout, "agent does not register tasks in Consul") {
			return fmt.Errorf("want the reason:\n%v", r)
		}
		return nil
	})
	for _, h := range hosts[2:] {
		f.Agent(h, discovery(h)...)
	}
	before := running(t, f.Site, "web", count)
	for _, task := range before {
		if task.Node == "n1" {
			t.Errorf("%s runs on n1, whose agent has no Consul", task.ID)
		}
	}
	registered(t, f, consul, "web", count)
	registered(t, f, consul, "web-native", count)
	f.Eventually(soon, func() error {
		if r := f.Berth("node", "status", "n2"); !strings.Contains(r.Stdout, "consul 1.") {
			return fmt.Errorf("want the version of consul:\n%v", r)
		}
		return nil
	})
	client := beginResolving(t, consul.DNS)

	f.Berth("run", manifest(2, count)).Want(t, 0, all)
	registered(t, f, consul, "web", count)
	client.check(t, "a rollout", "")
	f.Berth("node", "drain", "n2", "--wait").Want(t, 0, "n2 is empty")
	registered(t, f, consul, "web", count)
	registered(t, f, consul, "web-native", count)
	client.check(t, "a drain", "")
	f.Berth("scale", "service/web", strconv.Itoa(fewer)).Want(t, 0)
	ids := registered(t, f, consul, "web", fewer)
	client.check(t, "a smaller count", "")

	// An agent dies and comes back: its registrations are the same.
	agent := f.Agents[2]
	agent.Kill()
	agent.Begin(discovery(agent.Host)...)
	f.NodeIs(agent.Name, cluster.NodeReady)
	if again := registered(t, f, consul, "web", fewer); !slices.Equal(ids, again) {
		t.Errorf("after the restart of an agent consul has %v, want %v", again, ids)
	}
	client.check(t, "the death of an agent", "")

	// Consul dies and comes back: so do the registrations.
	consul.Kill()
	consul.Start()
	consul.AwaitLeader()
	allowAnonymous()
	if again := registered(t, f, consul, "web", fewer); !slices.Equal(ids, again) {
		t.Errorf("after the restart of consul it has %v, want %v", again, ids)
	}
	client.check(t, "a restart of consul", "")

	// A program dies. Only requests to it fail, and it is registered again.
	victim := running(t, f.Site, "web", fewer)[0]
	address := net.JoinHostPort(f.Agents[mustNumber(t, victim.Node)-1].Host.Address, strconv.Itoa(victim.Ports["http"]))
	if err := syscall.Kill(victim.Containers[0].Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	f.Eventually(soon, func() error {
		now := running(t, f.Site, "web", fewer)
		for _, task := range now {
			if task.UUID == victim.UUID && task.Restarts == 0 {
				return fmt.Errorf("%s is not restarted", task.ID)
			}
		}
		return nil
	})
	registered(t, f, consul, "web", fewer)
	client.check(t, "the death of a program", address)
	client.stop()

	// A registration of another program stays, whatever its ID. Those of the service go with it.
	put, err := http.NewRequestWithContext(t.Context(), http.MethodPut, consul.URL()+"/v1/agent/service/register",
		strings.NewReader(`{"ID": "berth-other", "Name": "other"}`))
	if err != nil {
		t.Fatal(err)
	}
	put.Header.Set("X-Consul-Token", consul.Token)
	response, err := http.DefaultClient.Do(put)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	registered(t, f, consul, "other", 1)
	f.Berth("delete", "service/web").Want(t, 0)
	registered(t, f, consul, "web", 0)
	registered(t, f, consul, "web-native", 0)
	registered(t, f, consul, "other", 1)
}

// mustNumber returns the number of a node.
func mustNumber(t *testing.T, node string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimPrefix(node, "n"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
