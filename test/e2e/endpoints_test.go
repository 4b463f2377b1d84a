package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/freeport"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// proxied is a service behind a proxy that reads a file of `berth addresses`, as in examples/haproxy or examples/nginx.
type proxied struct {
	*harness.Site
	t       *testing.T
	folder  string // of the proxy's files in examples
	program string
	// tolerant and strict are the addresses of the proxy: with the retries of the example, and without any.
	tolerant, strict string
	config           string // the file of `berth addresses`
}

// example returns a file of the proxy's examples with replacements, each of which must occur.
func (p *proxied) example(name string, replacements ...string) string {
	p.t.Helper()
	return p.exampleOf(p.folder, name, replacements...)
}

func (p *proxied) exampleOf(folder, name string, replacements ...string) string {
	p.t.Helper()
	root, err := harness.Root()
	if err != nil {
		p.t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "examples", folder, name))
	if err != nil {
		p.t.Fatal(err)
	}
	for i := 0; i < len(replacements); i += 2 {
		if !strings.Contains(string(text), replacements[i]) {
			p.t.Fatalf("examples/%s/%s has no %q", folder, name, replacements[i])
		}
	}
	return strings.NewReplacer(replacements...).Replace(string(text))
}

// run applies the service with a version of its program.
func (p *proxied) run(version int) harness.Result {
	p.t.Helper()
	return p.Berth("run", p.Write("kiosk.yaml", p.exampleOf("haproxy", "kiosk.yaml",
		"      image: berth.local/web:1\n", "", "command: [web]", fmt.Sprintf("command: [%q]", p.program),
		`VERSION: "1"`, fmt.Sprintf(`VERSION: "%d"`, version), "shutdown_delay: 5s", "shutdown_delay: scaled(2s)",
		"interval: 1s", "interval: scaled(2s), timeout: scaled(2s)", "count: 3\n",
		"count: 3\nupdate: {max_surge: 3}\n")))
}

// startProxy starts HAProxy with the example's configuration and the file of `berth addresses`.
func (p *proxied) startProxy() (pidFile string) {
	p.t.Helper()
	var ports [2]string
	for i := range ports {
		address, err := freeport.Address(p.t.Context())
		if err != nil {
			p.t.Fatal(err)
		}
		ports[i] = address
	}
	p.tolerant, p.strict = ports[0], ports[1]
	pidFile = filepath.Join(p.Dir, "haproxy.pid")
	main := p.Write("haproxy.cfg", p.example("haproxy.cfg", "127.0.0.1:8080", p.tolerant, "hard-stop-after 30s",
		"hard-stop-after 10s"))
	second := p.Write("strict.cfg", fmt.Sprintf("frontend strict\n    bind %s\n    default_backend strict\n", p.strict))
	var out harness.Output
	cmd := exec.CommandContext(context.WithoutCancel(p.t.Context()), "haproxy", "-W", "-p", pidFile, "-f", main, "-f",
		second, "-f", p.config)
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.WaitDelay = &out, &out, p.Dir, time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	p.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // its workers are in its group
		<-ended
		if p.t.Failed() {
			p.t.Logf("HAProxy:\n%s", out.String())
		}
	})
	p.Eventually(soon, func() error {
		if _, err := os.ReadFile(pidFile); err != nil {
			return err
		}
		return p.get(http.DefaultClient, p.strict)
	})
	return pidFile
}

// get requests a page through the proxy.
func (p *proxied) get(c *http.Client, address string) error {
	req, err := http.NewRequestWithContext(context.WithoutCancel(p.t.Context()), http.MethodGet,
		"http://"+address+"/version", nil)
	if err != nil {
		return err
	}
	res, err := c.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	var answer struct{ Task string }
	if err := json.Unmarshal(body, &answer); res.StatusCode != http.StatusOK || err != nil || answer.Task == "" {
		return fmt.Errorf("status %d: %s", res.StatusCode, body)
	}
	return nil
}

// sendRequests sends requests through the proxy until stop, which returns their number and the failures.
func (p *proxied) sendRequests(address string) (stop func() (sent int, failures []string)) {
	ctx, cancel := context.WithCancel(p.t.Context())
	var mu sync.Mutex
	var clients sync.WaitGroup
	sent, failures := 0, []string(nil)
	for range 4 {
		clients.Go(func() {
			c := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
			defer c.CloseIdleConnections()
			pace := time.NewTicker(25 * time.Millisecond)
			defer pace.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-pace.C:
					err := p.get(c, address)
					mu.Lock()
					sent++
					if err != nil {
						failures = append(failures, time.Now().Format(time.StampMilli)+" "+err.Error())
					}
					mu.Unlock()
				}
			}
		})
	}
	return func() (int, []string) {
		cancel()
		clients.Wait()
		return sent, failures
	}
}

// wantNone requires that requests were sent, and that at most some failed.
func (p *proxied) wantNone(what string, stop func() (int, []string), most int) {
	p.t.Helper()
	sent, failures := stop()
	p.t.Logf("%s: %d requests, %d failed", what, sent, len(failures))
	if sent < 10 || len(failures) > most {
		p.t.Errorf("%s: %d of %d requests failed:\n%s", what, len(failures), sent, strings.Join(failures, "\n"))
	}
}

// servers returns the lines of the servers in the file, without their names of versions and nodes.
func (p *proxied) servers() (list []string, err error) {
	text, err := os.ReadFile(p.config)
	if err != nil {
		return nil, err
	}
	if n := strings.Count(string(text), "backend "); n != 2 || !strings.HasSuffix(string(text), "\n") {
		return nil, fmt.Errorf("a part of a file:\n%s", text)
	}
	_, strict, _ := strings.Cut(string(text), "backend strict")
	for line := range strings.Lines(strict) {
		if line, ok := strings.CutPrefix(strings.TrimSpace(line), "server "); ok {
			line, _, _ = strings.Cut(line, " #")
			list = append(list, line)
		}
	}
	return list, nil
}

// wantServers waits until the file has a number of enabled and of disabled servers.
func (p *proxied) wantServers(enabled, disabled int) {
	p.t.Helper()
	p.Eventually(2*soon, func() error {
		list, err := p.servers()
		if err != nil {
			return err
		}
		off := 0
		for _, line := range list {
			if strings.HasSuffix(line, " disabled") {
				off++
			}
		}
		if len(list)-off != enabled || off != disabled {
			return fmt.Errorf("the file has the servers %q, want %d and %d disabled", list, enabled, disabled)
		}
		return nil
	})
}

// reloadScript has HAProxy read its files again, and waits until it did, as its service of systemd does. A second
// signal during a reload may be lost: in a run with 16 changes HAProxy counted 12 reloads, and sent requests to tasks
// that had left the file long before.
const reloadScript = `
test -e %[1]s || exit 0
master=$(cat %[1]s)
before=$(pgrep -n -P "$master")
kill -USR2 "$master" || exit 1
n=0
while [ $n -lt 200 ]; do
	now=$(pgrep -n -P "$master")
	test -n "$now" && test "$now" != "$before" && exit 0
	sleep 0.05
	n=$((n+1))
done
echo "HAProxy started no worker" >&2
exit 1
`

// TestProxyFollowsEndpoint runs a real HAProxy that reads the file of `berth addresses`. While clients send requests
// through it, the service is rolled out and scaled, tasks are killed, and the server is away. No request fails because
// of Berth.
func TestProxyFollowsEndpoint(t *testing.T) {
	// not parallel: a machine that is busy with other tests delays the proxy's own checks and reloads
	testkit.NeedCommand(t, "haproxy")
	s := harness.New(t, harness.Process)
	p := &proxied{Site: s, t: t, folder: "haproxy", config: filepath.Join(s.Dir, "kiosk.cfg")}
	p.program = harness.Program(t, s.Dir, "./examples/programs/web")
	server := s.Server()
	dns, err := freeport.Address(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Agent("--dns-listen", dns)
	p.run(1).Want(t, 0, "created    endpoint/kiosk-http")
	p.answersDNS(dns)

	// The template has a second backend of the same servers, whose requests are tried once.
	backend := p.example("kiosk.cfg.template")
	_, servers, _ := strings.Cut(backend, "backend kiosk\n")
	template := s.Write("kiosk.cfg.template", backend+"\nbackend strict\n    retries 0\n"+servers)
	pidFile := filepath.Join(s.Dir, "haproxy.pid")
	follower := s.Start("addresses", "kiosk-http", "--file", p.config, "--template", template,
		"--min-interval", "200ms", "--exec", "sh "+s.Write("reload.sh", fmt.Sprintf(reloadScript, pidFile)))
	p.wantServers(3, 0)
	if info, err := os.Stat(p.config); err != nil || info.Mode().Perm() != 0o644 {
		t.Fatalf("the file has the mode %v: %v", info.Mode(), err)
	}
	p.startProxy()

	// 1. A rollout and a smaller count: each task leaves the file before its TERM, after which it takes no request.
	stop := p.sendRequests(p.strict)
	s.Berth("scale", "kiosk", "4").Want(t, 0)
	p.wantServers(4, 0)
	p.run(2).Want(t, 0)
	p.wantServers(3, 0)
	p.wantNone("a rollout", stop, 0)
	if list, err := p.servers(); err != nil || !strings.HasPrefix(list[0], "default.kiosk.2.") {
		t.Errorf("the file has the servers %q after the rollout: %v", list, err)
	}

	// 2. Killed tasks are marked until they are healthy again. A request in flight at a killed task may fail.
	stop = p.sendRequests(p.tolerant)
	kills, begin := 0, len(follower.Output())
	for kills < 10 && !strings.Contains(follower.Output()[begin:], "kiosk-http has 3 addresses, 2 of them healthy") {
		task := running(t, s, "kiosk", 3)[kills%3]
		if err := syscall.Kill(task.Containers[0].Pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		kills++
		s.Eventually(2*soon, func() error {
			now, err := s.Client().Task(t.Context(), task.ID)
			if err == nil && (now.Restarts == task.Restarts || now.Health != api.HealthHealthy) {
				err = fmt.Errorf("%s is %s and %s after %d restarts", task.ID, now.State, now.Health, now.Restarts)
			}
			return err
		})
		p.wantServers(3, 0)
	}
	p.wantNone(fmt.Sprintf("%d killed tasks", kills), stop, kills)
	if kills == 10 {
		t.Errorf("the file never had a killed task that is not healthy:\n%s", follower.Output())
	}

	// 3. Without a server the file and the proxy stay as they are. Changes arrive once the server is back.
	before, err := p.servers()
	if err != nil {
		t.Fatal(err)
	}
	stop = p.sendRequests(p.strict)
	server.Kill()
	s.Eventually(2*soon, func() error {
		if !strings.Contains(follower.Output(), p.config+" stays as it is, trying again") {
			return errors.New("it does not say that no server answers:\n" + follower.Output())
		}
		return nil
	})
	if now, err := p.servers(); err != nil || !slices.Equal(before, now) {
		t.Errorf("the file changed in an outage from %q to %q: %v", before, now, err)
	}
	s.Server()
	s.Berth("scale", "kiosk", "4").Want(t, 0)
	p.wantServers(4, 0)
	p.wantNone("an outage", stop, 0)

	// 4. The endpoint is gone: the file stays. An end by a signal leaves the file, too.
	s.Berth("delete", "endpoint/kiosk-http").Want(t, 0)
	s.Eventually(2*soon, func() error {
		if !strings.Contains(follower.Output(), "endpoint default/kiosk-http") {
			return errors.New("it does not say that the endpoint is gone:\n" + follower.Output())
		}
		return nil
	})
	if code := follower.Terminate(); code != 130 {
		t.Errorf("exit code %d after TERM:\n%s", code, follower.Output())
	}
	p.wantServers(4, 0)
	s.Berth("addresses", "kiosk-http", "--file", p.config).Want(t, 2, "read the addresses of kiosk-http", "there is no")
	p.wantServers(4, 0)
}

// answersDNS requires the answers of the agent for the endpoint: A and SRV records of all tasks.
func (p *proxied) answersDNS(server string) {
	p.t.Helper()
	var want []string
	for _, a := range p.addresses() {
		want = append(want, fmt.Sprint(a.Port))
	}
	slices.Sort(want)
	for _, name := range []string{"kiosk-http.default.berth", "_http._tcp.kiosk-http.default.berth"} {
		p.Eventually(soon, func() error {
			m, err := askDNS(p.t, server, name, dnsmessage.TypeSRV)
			if err != nil {
				return err
			}
			var got []string
			for _, r := range m.Answers {
				if srv, ok := r.Body.(*dnsmessage.SRVResource); ok {
					got = append(got, fmt.Sprint(srv.Port))
				}
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				return fmt.Errorf("SRV of %s: got %s with the ports %q, want %q", name, m.RCode, got, want)
			}
			return nil
		})
	}
	m, err := askDNS(p.t, server, "kiosk-http.default.berth", dnsmessage.TypeA)
	if err != nil || len(m.Answers) != 1 {
		p.t.Errorf("A of the endpoint: got %v, %v", m, err)
	}
	m, err = askDNS(p.t, server, "kiosk-grpc.default.berth", dnsmessage.TypeA)
	if err != nil || m.RCode != dnsmessage.RCodeNameError {
		p.t.Errorf("A of an endpoint that does not exist: got %v, %v", m, err)
	}
}

// addresses returns the addresses of the endpoint.
func (p *proxied) addresses() []api.EndpointAddress {
	p.t.Helper()
	page, err := p.Client().EndpointAddresses(p.t.Context(), "default", "kiosk-http", client.ListOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	return page.Items
}

// askDNS asks a nameserver for the records of a kind.
func askDNS(t *testing.T, server, name string, kind dnsmessage.Type) (*dnsmessage.Message, error) {
	t.Helper()
	q := dnsmessage.Message{
		Header: dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{
			Name: dnsmessage.MustNewName(name + "."), Type: kind, Class: dnsmessage.ClassINET,
		}},
	}
	text, err := q.Pack()
	if err != nil {
		return nil, err
	}
	conn, err := new(net.Dialer).DialContext(t.Context(), "udp", server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(soon)); err != nil {
		return nil, err
	}
	if _, err := conn.Write(text); err != nil {
		return nil, err
	}
	answer := make([]byte, 4096)
	n, err := conn.Read(answer)
	if err != nil {
		return nil, err
	}
	var m dnsmessage.Message
	return &m, m.Unpack(answer[:n])
}

// TestEndpointOfIPv6Node: the tasks of an endpoint are on a node with an address of IPv6. The agents' DNS answers with
// AAAA records, and the addresses have brackets.
func TestEndpointOfIPv6Node(t *testing.T) {
	t.Parallel()
	const address = "2001:db8::7" // of documentation: nothing connects to it
	s := harness.New(t, harness.Process)
	s.Server()
	dns, err := freeport.Address(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Agent("--dns-listen", dns, "--address", address)
	s.Berth("run", s.Write("six.yaml", `
kind: Service
name: six
count: 2
template:
  containers: [{name: main, command: [/bin/sleep, "1000"], resources: {cpu: 10m, memory: 16MiB}}]
  ports: [{name: http}]
---
kind: Endpoint
name: six-http
service: six
port: http
`)).Want(t, 0)
	page, err := s.Client().EndpointAddresses(t.Context(), "default", "six-http", client.ListOptions{})
	if err != nil || len(page.Items) != 2 || page.Items[0].Host != address {
		t.Fatalf("the addresses are %+v, %v", page.Items, err)
	}
	s.Berth("addresses", "six-http", "-o", "name").Want(t, 0, fmt.Sprintf("[%s]:%d", address, page.Items[0].Port))
	for _, want := range []struct {
		name    string
		kind    dnsmessage.Type
		answers int // all tasks of a node have one address
	}{
		{"six-http.default.berth", dnsmessage.TypeAAAA, 1},
		{"six-http.default.berth", dnsmessage.TypeA, 0},
		{"_http._tcp.six-http.default.berth", dnsmessage.TypeSRV, 2},
	} {
		s.Eventually(soon, func() error {
			m, err := askDNS(t, dns, want.name, want.kind)
			if err != nil {
				return err
			}
			if m.RCode != dnsmessage.RCodeSuccess || len(m.Answers) != want.answers {
				return fmt.Errorf("%s %s: got %s with %v, want %d answers", want.name, want.kind, m.RCode, m.Answers,
					want.answers)
			}
			for _, r := range slices.Concat(m.Answers, m.Additionals) {
				if six, ok := r.Body.(*dnsmessage.AAAAResource); ok && netip.AddrFrom16(six.AAAA).String() != address {
					return fmt.Errorf("%s %s: got the address %v", want.name, want.kind, netip.AddrFrom16(six.AAAA))
				}
			}
			return nil
		})
	}
}
